/* The first thread ends; another fills 8 MiB, looks at them, forks and prints "done". */
#include "program.h"

static void *work(void *argument) {
    usleep(100000);
    unsigned long bytes = 8 * MIB;
    unsigned char *memory = map(bytes);
    for (int round = 0; round < 3; round++) {
        fill(memory, bytes);
        CHECK(whole(memory, bytes));
    }
    pid_t pid = fork();
    if (pid == 0) _exit(whole(memory, bytes) ? 0 : 7);
    CHECK(ended_well(pid));
    CHECK(whole(memory, bytes));
    puts("done");
    exit(0);
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    pthread_exit(0);
}
