/* Finds out whether there are system-call filters by setting some that the kernel refuses: what it says is what it says alone,
 * and memory goes out as before. Then it sets one. Prints "done". */
#include "program.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#define BYTES (24 * MIB)

static void refused(struct sock_fprog *program, int error) {
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == -1 && errno == error);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) == -1 && errno == error);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program) == -1 && errno == error);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1ul << 30, program) == -1 && errno == EINVAL);
}

int main(void) {
    unsigned char *gone = map(2 * PAGE);
    CHECK(gone != MAP_FAILED && !munmap(gone + PAGE, PAGE));
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog all = {.len = 1, .filter = &allow};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    refused(0, EFAULT);
    refused((struct sock_fprog *)(gone + PAGE - 8), EFAULT);
    refused(&(struct sock_fprog){.len = 0, .filter = &allow}, EINVAL);
    refused(&(struct sock_fprog){.len = 5000, .filter = &allow}, EINVAL);
    refused(&(struct sock_fprog){.len = 2, .filter = (void *)(gone + PAGE - 8)}, EFAULT);

    unsigned char *memory = map(BYTES);
    fill(memory, BYTES);
    CHECK(whole(memory, BYTES));
    CHECK(prctl(PR_GET_SECCOMP) == 0);
    CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all));
    CHECK(prctl(PR_GET_SECCOMP) == 2);
    CHECK(whole(memory, BYTES));
    puts("done");
}
