/* With arguments: forbids `sendmsg`, and becomes the program that they name. Without: sends 4 MiB to itself by `write`,
 * `writev`, `sendto` and `sendmmsg`, each of which says that all was sent, while `sendmsg` says EPERM. Prints "done". */
#include "program.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { BYTES = 4 << 20 };
static int ends[2];

static void forbid_sendmsg(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
}

/* Receives as much as `calls` calls send, and looks at it. */
static void *receive(void *calls) {
    static unsigned char part[65536];
    for (long left = (long)calls * BYTES; left > 0;) {
        long got = read(ends[1], part, sizeof part);
        CHECK(got > 0);
        for (long i = 0; i < got; i++) CHECK(part[i] == 7);
        left -= got;
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1) {
        forbid_sendmsg();
        execv(arguments[1], arguments + 1);
        return 1;
    }
    unsigned char *memory = map(BYTES);
    CHECK(memory != MAP_FAILED);
    memset(memory, 7, BYTES);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t receiver;
    CHECK(!pthread_create(&receiver, 0, receive, (void *)4));
    struct iovec halves[2] = {{memory, BYTES / 2}, {memory + BYTES / 2, BYTES / 2}};
    struct mmsghdr messages[1] = {{.msg_hdr = {.msg_iov = halves, .msg_iovlen = 2}}};
    CHECK(sendmsg(ends[0], &messages[0].msg_hdr, 0) == -1 && errno == EPERM);
    CHECK(write(ends[0], memory, BYTES) == BYTES);
    CHECK(writev(ends[0], halves, 2) == BYTES);
    CHECK(sendto(ends[0], memory, BYTES, 0, 0, 0) == BYTES);
    CHECK(syscall(SYS_sendmmsg, ends[0], messages, 1, 0) == 1 && messages[0].msg_len == BYTES);
    CHECK(!pthread_join(receiver, 0));
    puts("done");
    return 0;
}
