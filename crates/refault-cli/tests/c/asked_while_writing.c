/* Writes 96 KiB at a time to a slow reader, by a pipe or as it `sends`, while a child queues the tree's request for memory
 * (whose value is the second argument) to the thread that writes, again and again. Each write waits until all is
 * through. Prints "done". */
#include "program.h"
#include <signal.h>
#include <sys/socket.h>

static pid_t reader(const int *ends) {
    static char part[24 << 10];
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid) return pid;
    close(ends[1]);
    while (read(ends[0], part, sizeof part) > 0) usleep(500);
    _exit(0);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    int ends[2], status;
    CHECK(!(strcmp(arguments[1], "sends") ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)));
    unsigned char *memory = map(96 << 10);
    memset(memory, 7, 96 << 10);
    pid_t reads = reader(ends), asks = asker(strtoul(arguments[2], 0, 10));
    close(ends[0]);
    for (int time = 0; time < 200; time++) CHECK(write(ends[1], memory, 96 << 10) == 96 << 10);
    CHECK(!kill(asks, SIGKILL) && waitpid(asks, &status, 0) == asks);
    close(ends[1]);
    CHECK(ended_well(reads));
    puts("done");
    return 0;
}
