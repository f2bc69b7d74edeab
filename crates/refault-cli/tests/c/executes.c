// Executes a program in the way that its first argument names, with the environment that its second names: `same`, `none`,
// or a value of LD_PRELOAD before the one that there is. What follows is the program with its arguments. Ends as it ends.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int ended(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return 99;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

int main(int count, char **words) {
    if (count < 4) return 98;
    char *none[] = {0}, *way = words[1], **program = words + 3, **with = environ;
    if (!strcmp(words[2], "none")) with = none;
    else if (strcmp(words[2], "same")) {
        char value[8192];
        const char *before = getenv("LD_PRELOAD");
        snprintf(value, sizeof value, "%s:%s", words[2], before ? before : "");
        setenv("LD_PRELOAD", value, 1);
        with = environ;
    }
    if (!strcmp(way, "posix_spawn")) {
        pid_t child;
        errno = posix_spawn(&child, program[0], 0, 0, program, with);
        return errno ? 97 : ended(child);
    }
    if (!strcmp(way, "vfork")) {
        pid_t child = vfork();
        if (!child) {
            execve("/nonexistent/program", program, with);
            execve(program[0], program, with);
            _exit(96);
        }
        return ended(child);
    }
    if (!strcmp(way, "fexecve")) fexecve(open(program[0], O_RDONLY | O_CLOEXEC), program, with);
    else if (!strcmp(way, "O_PATH")) syscall(SYS_execveat, open(program[0], O_PATH | O_CLOEXEC), "", program, with, AT_EMPTY_PATH);
    else if (!strcmp(way, "execveat")) syscall(SYS_execveat, open("/", O_PATH), program[0] + 1, program, with, 0);
    else execve(program[0], program, with);
    perror(way);
    return 95;
}
