/* Calls that something comes in between. */
#include "probe.h"
#include <elf.h>
#include <linux/filter.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const char *mode;
static volatile int handled;
static void handler(int number) { (void)number; handled++; }

/* Writes evicted memory to a child by way of `ends` with one call, or as many as it takes where `interrupted`. Says
 * what the first call answered if it was one, and whether the child has read everything, once and in order. */
static void send_all(const char *what, int ends[2], int interrupted) {
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
        printf("%s: all was read %d, wrong %lu\n", what, at == bytes, wrong); _exit(0);
    }
    close(ends[0]);
    long n = write(ends[1], p, bytes);
    if (!interrupted) printf("%s: one call writes %ld\n", what, n);
    for (done = n > 0 ? n : 0; done < bytes; done += n > 0 ? n : 0)
        if ((n = write(ends[1], p + done, bytes - done)) < 0 && errno != EINTR) { printf("%s: %s\n", what, strerror(errno)); break; }
    close(ends[1]); waitpid(reader, 0, 0);
}
int main(int n, char **v) {
    mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); alarm(50);
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
    }
    MODE("written") {
        int ends[2];
        if (pipe(ends)) return 1;
        send_all("pipe", ends, 0);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
        send_all("stream", ends, 0);
    }
    MODE("interrupted") {
        /* Handlers run between the pieces of a call: with and without restarting it. */
        for (int restart = 0; restart < 2; restart++) {
            struct sigaction a = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0}; sigaction(SIGVTALRM, &a, 0);
            timer_t timer; struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM};
            struct itimerspec every = {{0, 700000}, {0, 700000}}, never = {{0, 0}, {0, 0}};
            int ends[2]; if (pipe(ends) || timer_create(CLOCK_MONOTONIC, &e, &timer) || timer_settime(timer, 0, &every, 0)) return 1;
            send_all("pipe", ends, 1); timer_settime(timer, 0, &never, 0); timer_delete(timer);
        }
        printf("signals came %d\n", handled > 10);
    }
    return 0;
}
