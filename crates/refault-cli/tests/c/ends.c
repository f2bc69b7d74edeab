/* Looks at 16 MiB and ends in the way that its argument names: by a `thread` that outlives the first, by being
 * `killed`, when it `aborts`, after a `child` was killed (exit code 7), or else by returning 0. Prints nothing. */
#include "program.h"

static void *last(void *argument) {
    usleep(50000);
    syscall(SYS_exit, 0);
    return 0;
}

int main(int count, char **arguments) {
    unsigned char *memory = map(16 * MIB);
    fill(memory, 16 * MIB);
    CHECK(whole(memory, 16 * MIB));
    const char *how = count > 1 ? arguments[1] : "";
    if (!strcmp(how, "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, last, 0);
        syscall(SYS_exit, 0);
    }
    if (!strcmp(how, "killed")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "aborts")) abort();
    if (!strcmp(how, "child")) {
        pid_t pid = fork();
        if (pid == 0) {
            fill(memory, 16 * MIB);
            kill(getpid(), SIGKILL);
        }
        waitpid(pid, 0, 0);
        return 7;
    }
    return 0;
}
