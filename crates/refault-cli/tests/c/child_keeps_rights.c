/* Takes rights away from parts of a MiB and forks: parent and child must be refused the same accesses, and see the
 * same once they have the rights again. Prints "done". */
#include "program.h"

static sigjmp_buf before_access;

static void caught(int number) {
    siglongjmp(before_access, number);
}

#define REFUSED(access) (sigsetjmp(before_access, 1) || (access, 0))

int main(void) {
    unsigned long bytes = MIB;
    unsigned char *memory = map(bytes);
    fill(memory, bytes);
    CHECK(!mprotect(memory, bytes / 2, PROT_READ));
    CHECK(!mprotect(memory + bytes / 2, bytes / 4, PROT_NONE));
    signal(SIGSEGV, caught);

    pid_t pid = fork();
    CHECK(REFUSED(memory[0] = 1));
    CHECK(REFUSED(*(volatile char *)(memory + bytes / 2)));
    memory[bytes - 8]++;
    memory[bytes - 8]--;
    CHECK(!mprotect(memory, bytes, PROT_READ | PROT_WRITE));
    CHECK(whole(memory, bytes));
    if (pid == 0) _exit(0);
    int status;
    waitpid(pid, &status, 0);
    if (status) {
        printf("the child ended with %x\n", status);
        return 1;
    }
    puts("done");
    return 0;
}
