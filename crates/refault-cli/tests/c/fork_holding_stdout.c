/* Forks while the forking thread itself holds the lock of standard output: the child still holds it, can give it back,
 * and a thread of the child can print. Prints "child", "thread" and "done". */
#include "program.h"

static void *prints(void *argument) {
    printf("thread\n");
    return 0;
}

int main(void) {
    flockfile(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(20);
        funlockfile(stdout);
        printf("child\n");
        pthread_t thread;
        CHECK(!pthread_create(&thread, 0, prints, 0));
        CHECK(!pthread_join(thread, 0));
        fflush(stdout);
        _exit(0);
    }
    funlockfile(stdout);
    CHECK(ended_well(pid));
    puts("done");
    return 0;
}
