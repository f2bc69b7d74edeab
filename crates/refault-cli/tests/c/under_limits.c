/* Fills 8 MiB, has libc keep domains of messages, evicts all of it and forks: for runs under a shell's limits. Prints
 * "done"; if it cannot fork, "fork: 1" where the error is EAGAIN, and else what the child ended with. */
#include "program.h"
#include <libintl.h>

int main(void) {
    unsigned long bytes = 8 * MIB;
    unsigned char *memory = map(bytes);
    fill(memory, bytes);
    /* The domains lie in memory that a child without a pager has not. */
    char name[50];
    for (int number = 0; number < 300; number++) {
        sprintf(name, "domain%d", number);
        bindtextdomain(name, "/nowhere");
    }
    madvise(memory, bytes, MADV_PAGEOUT);
    fill(memory, bytes);
    pid_t pid = fork();
    if (pid < 0) {
        printf("fork: %d\n", errno == EAGAIN);
        return 3;
    }
    if (pid == 0) _exit(whole(memory, bytes) ? 0 : 7);
    int status;
    waitpid(pid, &status, 0);
    if (status) {
        printf("the child ended with %x\n", status);
        return 1;
    }
    CHECK(whole(memory, bytes));
    puts("done");
    return 0;
}
