/* Takes a read lease on the file in argv[1], which any open for writing breaks, and runs the command in the rest of argv with
 * the lease held. It prints what the command prints, then whether the lease is still held. Status 77: no leases here. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int file, status;
    pid_t child;
    if (count < 3 || (file = open(arguments[1], O_RDONLY | O_CLOEXEC)) < 0) return 1;
    signal(SIGIO, SIG_IGN);
    if (fcntl(file, F_SETLEASE, F_RDLCK)) return 77;
    child = fork();
    if (!child) {
        execvp(arguments[2], arguments + 2);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || status) return 1;
    puts(fcntl(file, F_GETLEASE) == F_RDLCK ? "the lease is held" : "the lease is broken");
    return 0;
}
