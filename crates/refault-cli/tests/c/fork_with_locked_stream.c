/* Forks while another thread holds the lock of a stream: the child must be able to lock it. Prints "done". */
#include "program.h"

static FILE *stream;
static volatile int held, over;

static void *hold(void *argument) {
    flockfile(stream);
    held = 1;
    while (!over) usleep(1000);
    funlockfile(stream);
    return 0;
}

int main(void) {
    stream = tmpfile();
    CHECK(stream);
    pthread_t thread;
    pthread_create(&thread, 0, hold, 0);
    while (!held) usleep(1000);
    pid_t pid = fork();
    if (pid == 0) _exit(ftrylockfile(stream) != 0);
    int status;
    waitpid(pid, &status, 0);
    over = 1;
    pthread_join(thread, 0);
    if (status) {
        puts("the child could not lock it");
        return 1;
    }
    puts("done");
    return 0;
}
