/* Calls that something comes in between. */
#include "probe.h"
#include <elf.h>
#include <linux/filter.h>
#include <linux/random.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

static const char *mode;
static volatile int handled;
static void handler(int number) { (void)number; handled++; }

/* How bytes go out: by the call of that name, in vectors that are no multiples of a page where it takes several. */
static long sends(const char *by, int to, unsigned char *p, unsigned long n) {
    unsigned long first = n < 100000 ? n : 100000, second = (n - first) / 3; struct iovec parts[] = {{p, first}, {0, 0}, {p + first, second}, {p + first + second, n - first - second}};
    struct mmsghdr many[2] = {{{.msg_iov = parts, .msg_iovlen = 3}, 77}, {{.msg_iov = parts + 3, .msg_iovlen = 1}, 78}}; struct msghdr one = {.msg_iov = parts, .msg_iovlen = 4};
    if (!strcmp(by, "write")) return write(to, p, n);
    if (!strcmp(by, "writev")) return writev(to, parts, 4);
    if (!strcmp(by, "sendto")) return sendto(to, p, n, 0, 0, 0);
    if (!strcmp(by, "sendmsg")) return sendmsg(to, &one, 0);
    int sent = sendmmsg(to, many, 2, 0); if (sent < 1) return sent; return (long)many[0].msg_len + (sent > 1 ? many[1].msg_len : 0);
}

/* Sends evicted memory to a child by way of `ends` with one call, or as many as it takes where `interrupted`. Says
 * what the first call answered if it was one, and whether the child has read everything, once and in order. */
static void send_all(const char *what, const char *by, int ends[2], int interrupted) {
    unsigned long bytes = 24 * MIB, done = 0; unsigned char *p = map(bytes);
    fill(p, bytes); push_out(p, bytes);
    pid_t reader = fork();
    if (!reader) {
        static unsigned char part[64 * KIB]; unsigned long at = 0, wrong = 0; long n;
        close(ends[1]);
        while ((n = read(ends[0], part, sizeof part)) > 0)
            for (long i = 0; i < n; i++, at++) {
                unsigned long word = at / 8, value = word % 512 < 256 ? pattern(word) : word / 512;
                wrong += part[i] != ((unsigned char *)&value)[at % 8];
            }
        printf("%s by %s: all was read %d, wrong %lu\n", what, by, at == bytes, wrong); _exit(0);
    }
    close(ends[0]);
    long n = sends(by, ends[1], p, bytes);
    if (!interrupted) printf("%s: one call of %s sends %ld\n", what, by, n);
    for (done = n > 0 ? n : 0; done < bytes; done += n > 0 ? n : 0)
        if ((n = sends(by, ends[1], p + done, bytes - done)) < 0 && errno != EINTR) { printf("%s: %s\n", what, strerror(errno)); break; }
    close(ends[1]); waitpid(reader, 0, 0); munmap(p, bytes);
}
static int pair(const char *what, int ends[2]) { return !strcmp(what, "pipe") ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends); }
static const struct way { const char *what, *by; } ways[] = {{"pipe", "write"}, {"pipe", "writev"}, {"stream", "write"}, {"stream", "writev"}, {"stream", "sendto"}, {"stream", "sendmsg"}, {"stream", "sendmmsg"}};
#define EACH_WAY for (const struct way *w = ways; w < ways + sizeof ways / sizeof *ways; w++)

/* A child sends what is evicted there and ends; this one receives it into memory that is out. */
static void receive_all(const char *by, int flags) {
    int ends[2]; unsigned long bytes = 24 * MIB; unsigned char *p = map(bytes); if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return;
    pid_t sender = fork(); if (!sender) { close(ends[0]); fill(p, bytes); for (unsigned long at = 0; at < bytes; at += 96 * KIB) { if (at % (960 * KIB) == 0) usleep(5000); unsigned long n = bytes - at < 96 * KIB ? bytes - at : 96 * KIB; if (write(ends[1], p + at, n) != (long)n) _exit(1); } _exit(0); }
    close(ends[1]); memset(p, 1, bytes); push_out(p, bytes); unsigned long at = 0; long n = 0, least = bytes; int said = -1; struct iovec parts[] = {{0}, {0}};
    do {
        parts[0] = (struct iovec){p + at, bytes - at < 5000 ? bytes - at : 5000}; parts[1] = (struct iovec){p + at + parts[0].iov_len, bytes - at - parts[0].iov_len};
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2, .msg_flags = 77, .msg_namelen = 99}; char name[32]; m.msg_name = name;
        if (!strcmp(by, "read")) n = read(ends[0], p + at, bytes - at);
        if (!strcmp(by, "readv")) n = readv(ends[0], parts, 2);
        if (!strcmp(by, "recvfrom")) n = recvfrom(ends[0], p + at, bytes - at, flags, 0, 0);
        if (!strcmp(by, "recvmsg")) { n = recvmsg(ends[0], &m, flags); said = m.msg_flags * 1000 + m.msg_namelen; }
        if (n > 0) { at += n; if (n < least) least = n; }
    } while (n > 0 && at < bytes);
    printf("%s, flags %d: %lu, changed %ld, at once %d, said %d\n", by, flags, at, changed(p, bytes), least == (long)bytes, said); waitpid(sender, 0, 0); close(ends[0]); munmap(p, bytes);
}
int main(int n, char **v) {
    mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); alarm(170);
    MODE("signalled") {
        /* Another process sends this thread SIGSYS while it makes calls, each of which must be made. */
        struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART}; sigaction(SIGSYS, &a, 0);
        int ends[2]; if (pipe(ends)) return 1;
        pid_t self = getpid(), thread = syscall(SYS_gettid), sender = fork();
        if (!sender) for (;;) if (syscall(SYS_tgkill, self, thread, SIGSYS)) _exit(0);
        long wrong = 0;
        for (long i = 0; i < 30000 || (handled < 1000 && i < 3000000); i++) {
            long back = ~i;
            wrong += write(ends[1], &i, sizeof i) != sizeof i; wrong += read(ends[0], &back, sizeof back) != sizeof back; wrong += back != i;
        }
        kill(sender, SIGKILL); waitpid(sender, 0, 0);
        printf("signals came %d, calls went wrong %ld\n", handled >= 1000, wrong);
    }
    MODE("pointed") {
        /* Requests whose structures name further memory, which was never touched or is out. */
        int s = socket(AF_INET, SOCK_DGRAM, 0); unsigned char *far = map(16 * MIB); struct ifconf list = {.ifc_len = 1 << 16, .ifc_buf = (char *)far + 8 * MIB - 100};
        int asked = ioctl(s, SIOCGIFCONF, &list); printf("interfaces %d, some %d\n", asked, asked == 0 && list.ifc_len > 0);
        struct sock_filter *filter = (void *)(far + 4 * MIB - 16); for (int i = 0; i < 600; i++) filter[i] = (struct sock_filter){BPF_LD | BPF_IMM, 0, 0, i};
        filter[600] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 0xffff}; struct sock_fprog program = {601, filter}; push_out(far, 16 * MIB);
        printf("filter %d\n", setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
        pid_t c = fork(); if (!c) for (;;) pause();
        int status; ptrace(PTRACE_SEIZE, c, 0, 0); ptrace(PTRACE_INTERRUPT, c, 0, 0); waitpid(c, &status, 0);
        struct iovec into = {far + 12 * MIB - 50, 4096}; long answer = ptrace(PTRACE_GETREGSET, c, NT_PRSTATUS, &into); printf("registers %ld %zu\n", answer, into.iov_len);
        kill(c, SIGKILL); waitpid(c, &status, 0);
        /* A request whose number says fewer bytes than the kernel reads: the rest lies in the next page. */
        int *entropy = (int *)(far + 14 * MIB - 8), random = open("/dev/urandom", O_RDWR); entropy[0] = 0; entropy[1] = 512; memset(entropy + 2, 1, 512); push_out(far, 16 * MIB);
        answer = ioctl(random, RNDADDENTROPY, entropy); printf("entropy %ld %s\n", answer, strerror(answer ? errno : 0));
    }
    MODE("written") EACH_WAY { int ends[2]; if (pair(w->what, ends)) return 1; send_all(w->what, w->by, ends, 0); }
    MODE("received") for (int all = 0; all <= MSG_WAITALL; all += MSG_WAITALL) { receive_all("read", 0); receive_all("readv", 0); receive_all("recvfrom", all); receive_all("recvmsg", all); }
    MODE("files") {
        /* Positions, the end of a file, and devices that are never short. */
        unsigned long bytes = 12 * MIB; unsigned char *p = map(bytes), *q = map(bytes); fill(p, bytes); struct iovec parts[] = {{p, 4096 * 3}, {p + 4096 * 3, bytes - 4096 * 3}}, back[] = {{q, 100}, {q + 100, bytes - 100}};
        int f = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600); long a = writev(f, parts, 2), b = pwritev(f, parts, 2, 5 * MIB), c = pwritev2(f, parts, 2, -1, 0); printf("%ld %ld %ld, at %ld of %ld\n", a, b, c, (long)lseek(f, 0, SEEK_CUR), (long)lseek(f, 0, SEEK_END));
        printf("%ld, changed %d\n", (long)preadv(f, back, 2, bytes), changed(q, bytes) > 0); a = preadv(f, back, 2, 5 * MIB + bytes); printf("the end %ld\n", a); lseek(f, 0, SEEK_SET); a = readv(f, back, 2); printf("%ld, same %d\n", a, !memcmp(q, p, 5 * MIB));
        f = open("appended", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600); a = writev(f, parts, 2); b = write(f, p, bytes); c = pwritev(f, parts, 2, 0); printf("%ld %ld %ld of %ld\n", a, b, c, (long)lseek(f, 0, SEEK_END)); a = pread(f, q, bytes, bytes); printf("%ld, changed %ld\n", a, changed(q, bytes));
        f = open("/dev/zero", O_RDWR); a = read(f, q, bytes); b = readv(f, back, 2); c = write(f, q, bytes); printf("%ld %ld %ld, zeros %d\n", a, b, c, !q[0] && !memcmp(q, q + 1, bytes - 1));
        f = open("/dev/urandom", O_RDONLY); printf("%ld\n", (long)read(f, q, bytes)); f = open("/dev/full", O_WRONLY); a = write(f, q, bytes); printf("%ld %s\n", a, strerror(errno)); a = read(-1, q, bytes); printf("%ld %s\n", a, strerror(errno));
        int ends[2]; struct iovec far[] = {{p, bytes}, {(void *)-4096, 8192}}; if (pair("stream", ends)) return 1; a = writev(f, far, 2); printf("%ld %s\n", a, strerror(errno)); a = writev(ends[1], far, -1); printf("%ld %s\n", a, strerror(errno));
    }
    MODE("accompanied") {
        /* A descriptor goes once, with the first byte; a datagram goes whole or not; what waits for a limited time ends then. */
        unsigned long bytes = 12 * MIB; unsigned char *p = map(bytes); fill(p, bytes); int ends[2]; if (pair("stream", ends)) return 1; struct iovec part = {p, bytes}; char control[CMSG_SPACE(sizeof(int))] = {0};
        struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}; struct cmsghdr *c = CMSG_FIRSTHDR(&m); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof(int)); *(int *)CMSG_DATA(c) = 1;
        pid_t reader = fork(); if (!reader) {
            close(ends[1]); unsigned char *q = map(bytes); long n, at = 0, came = 0, first = -1; for (;;) { part = (struct iovec){q + at, bytes - at}; m = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}; if ((n = recvmsg(ends[0], &m, 0)) <= 0) break; if (m.msg_controllen) { came++; first = at; if (m.msg_controllen != sizeof control || m.msg_flags) puts("another control"); } at += n; }
            printf("%ld bytes, changed %ld, descriptors %ld, at %ld\n", at, changed(q, bytes), came, first); _exit(0); }
        close(ends[0]); printf("%ld\n", (long)sendmsg(ends[1], &m, 0)); close(ends[1]); waitpid(reader, 0, 0);
        for (int type = SOCK_DGRAM; type <= SOCK_SEQPACKET; type += SOCK_SEQPACKET - SOCK_DGRAM) { if (socketpair(AF_UNIX, type, 0, ends)) return 1; int room = 64 * MIB; setsockopt(ends[1], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room); part = (struct iovec){p, bytes}; m = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1}; errno = 0; long n = sendmsg(ends[1], &m, MSG_DONTWAIT); printf("type %d: %ld %s", type, n, strerror(errno)); n = write(ends[1], p, 150000); unsigned char *q = map(bytes); long a = n > 0 ? recv(ends[0], q, bytes, MSG_DONTWAIT) : 0; printf(", %ld %ld\n", n, a); close(ends[0]); close(ends[1]); }
        /* The other side reads some and goes: part is sent, and only the next call is told. */
        signal(SIGPIPE, handler); for (int i = 0; i < 2; i++) { if (pair("stream", ends)) return 1; reader = fork(); if (!reader) { close(ends[1]); for (long at = 0, n; at < 4 * MIB; at += n) if ((n = read(ends[0], p, 64 * KIB)) <= 0) break; _exit(0); } close(ends[0]); part = (struct iovec){p, bytes}; int before = handled; long n = i ? sendmsg(ends[1], &m, 0) : write(ends[1], p, bytes); printf("part %d, signals %d", n >= 4 * MIB && n < bytes, handled - before); n = write(ends[1], p, bytes); printf(", then %ld %s, signals %d\n", n, strerror(errno), handled - before); waitpid(reader, 0, 0); close(ends[1]); }
        if (pair("stream", ends)) return 1; struct timeval limit = {0, 300000}; setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit); long n = write(ends[1], p, bytes); printf("part of it %d", n > 0 && n < bytes); n = recv(ends[0], p, bytes, MSG_WAITALL); printf(" and %d\n", n > 0 && n < bytes);
    }
    MODE("interrupted") {
        /* Handlers run between the pieces of a call: with and without restarting it. */
        for (int restart = 0; restart < 2; restart++) EACH_WAY {
            struct sigaction a = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0}; sigaction(SIGVTALRM, &a, 0);
            timer_t timer; struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM};
            struct itimerspec every = {{0, 700000}, {0, 700000}}, never = {{0, 0}, {0, 0}};
            int ends[2]; if (pair(w->what, ends) || timer_create(CLOCK_MONOTONIC, &e, &timer) || timer_settime(timer, 0, &every, 0)) return 1;
            send_all(w->what, w->by, ends, 1); timer_settime(timer, 0, &never, 0); timer_delete(timer);
        }
        printf("signals came %d\n", handled > 10);
    }
    return 0;
}
