/* Three threads fill 8 MiB each and fork, at any moment of the others: parent and child must see what the thread
 * wrote. Each child starts its pager in a copy of the forking thread, whose tables of libc must be there. Prints
 * "done". */
#include "program.h"

static void *churn(void *argument) {
    unsigned char *memory = map(8 * MIB);
    for (int round = 0; round < 4; round++) {
        fill(memory, 8 * MIB);
        pid_t pid = fork();
        if (pid == 0) {
            unsigned char *block = malloc(MIB);
            fill(block, MIB);
            _exit(!whole(memory, 8 * MIB) || !whole(block, MIB));
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || status) {
            printf("the child ended with %x\n", status);
            exit(1);
        }
        CHECK(whole(memory, 8 * MIB));
    }
    return argument;
}

int main(void) {
    alarm(50);
    pthread_t threads[3];
    for (int at = 0; at < 3; at++) pthread_create(threads + at, 0, churn, 0);
    for (int at = 0; at < 3; at++) pthread_join(threads[at], 0);
    puts("done");
    return 0;
}
