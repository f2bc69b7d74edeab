/* Calls from sites that are made often, which the tool rewrites: results, contents and signals are as they
 * are without it. */
#include "probe.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#define MUST(c) do { if (!(c)) { printf("line %d: %s\n", __LINE__, #c); fflush(stdout); _exit(1); } } while (0)
static const char *mode;
static volatile long handled;
static int ticks[2];
static unsigned char *area;
static const unsigned long PART = 4 * MIB;
static int rounds;
static volatile int stop;

static unsigned long random_word(unsigned long *x) { *x ^= *x << 13; *x ^= *x >> 7; *x ^= *x << 17; return *x; }
static double milliseconds(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec / 1e6; }
/* Enough calls that their sites are worth rewriting. */
static void often(void) { for (int i = 0; i < 1000; i++) { lseek(0, 0, SEEK_CUR); getppid(); } }
static void calls_too(int s) {
    (void)s; char one; int before = errno;
    handled++; MUST(write(ticks[1], "x", 1) == 1); MUST(read(ticks[0], &one, 1) == 1);
    errno = before;
}
static int all_are(unsigned char *p, unsigned long n, unsigned char value) {
    for (unsigned long i = 0; i < n; i++) if (p[i] != value) return 0;
    return 1;
}
/* Sends and receives, out of and into memory that may be away. */
static void *sends(void *which) {
    unsigned char *part = area + (long)which * PART; unsigned long x = 88172645463325252ul + (long)which;
    int s[2]; MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    for (int i = 0; i < rounds && !stop; i++) {
        unsigned long n = 1 + random_word(&x) % 3000;
        unsigned char *from = part + random_word(&x) % (PART / 2 - 8192), *to = part + PART / 2 + random_word(&x) % (PART / 2 - 8192);
        volatile double number = i * 1.5;
        memset(from, i, n); MUST(write(s[0], from, n) == (long)n);
        for (unsigned long got = 0; got < n;) { long r = read(s[1], to + got, n - got); MUST(r > 0); got += r; }
        MUST(all_are(to, n, i)); MUST(number == i * 1.5);
        memset(from, i + 1, n);
        struct iovec parts[2] = {{from, n / 2}, {from + n / 2, n - n / 2}}; struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        MUST(sendmsg(s[0], &message, 0) == (long)n); MUST(recv(s[1], to, n, MSG_WAITALL) == (long)n); MUST(all_are(to, n, i + 1));
        if (i % 64 == 0) {
            struct pollfd p = {s[1], POLLIN, 0}; double begun = milliseconds(); int r = poll(&p, 1, 3);
            MUST(r ? r == -1 && errno == EINTR : milliseconds() - begun >= 2.9);
        }
    }
    close(s[0]); close(s[1]);
    return 0;
}
static sigjmp_buf away;
static void jumps(int s) { (void)s; siglongjmp(away, 1); }
static void nothing(int s) { (void)s; }
static int cleaned;
static void cleans(void *unused) { (void)unused; cleaned++; }
static void *waits(void *ends) { char b[8]; pthread_cleanup_push(cleans, 0); MUST(read(((int *)ends)[1], b, 8) == 99); pthread_cleanup_pop(0); return 0; }
static void handle(int s, void (*what)(int), int flags) { struct sigaction a = {.sa_handler = what, .sa_flags = flags}; sigaction(s, &a, 0); }
/* Calls of write() that this process has made, by the kernel's count. */
static long writes_made(void) {
    char text[512] = "", *at; int d = open("/proc/self/io", O_RDONLY); MUST(d >= 0);
    MUST(read(d, text, sizeof text - 1) > 0); close(d); MUST(at = strstr(text, "syscw: "));
    return atol(at + 7);
}
static _Atomic int turn, done_with;
/* Ignores a signal at the moment in which the other thread handles it. */
static void *ignores(void *unused) {
    (void)unused;
    for (int i = 1; i <= rounds; i++) {
        while (turn != i) {}
        handle(SIGUSR2, SIG_IGN, 0); done_with = i;
    }
    return 0;
}
static void counts(int s) { (void)s; handled++; }

int main(int n, char **v) {
    mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); alarm(170); often();
    int s[2]; MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, s)); MUST(!pipe(ticks)); area = map(4 * PART);
    MODE("storm") {
        rounds = 1500;
        int sent[] = {SIGPROF, SIGUSR1, SIGSEGV, SIGBUS};
        for (int i = 0; i < 4; i++) handle(sent[i], calls_too, SA_RESTART);
        struct itimerval often_ticks = {{0, 150}, {0, 150}}, never = {{0, 0}, {0, 0}}; setitimer(ITIMER_PROF, &often_ticks, 0);
        sends(0);
        rounds = 1 << 30;
        pthread_t t[3]; for (long i = 0; i < 3; i++) MUST(!pthread_create(&t[i], 0, sends, (void *)i));
        for (int k = 0; k < 300; k++) {
            for (int i = 0; i < 3; i++) pthread_kill(t[i], sent[1 + (k + i) % 3]);
            if (k % 60 == 0) {
                pid_t child = fork(); if (!child) { rounds = 20; stop = 0; sends((void *)3); _exit(7); }
                int status; while (waitpid(child, &status, 0) < 0) MUST(errno == EINTR);
                MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
            }
            usleep(300);
        }
        stop = 1;
        for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
        setitimer(ITIMER_PROF, &never, 0);
        printf("signals came %d\n", handled > 300);
    }
    MODE("interrupted") {
        struct itimerval once = {{0, 0}, {0, 20000}}; char b[4]; int interrupted = 0, restarted = 0, left = 0;
        handle(SIGALRM, nothing, 0);
        for (int i = 0; i < 10; i++) {
            setitimer(ITIMER_REAL, &once, 0); interrupted += read(s[1], b, 4) == -1 && errno == EINTR;
            struct pollfd p = {s[1], POLLIN, 0}; setitimer(ITIMER_REAL, &once, 0); interrupted += poll(&p, 1, 1000) == -1 && errno == EINTR;
        }
        handle(SIGALRM, nothing, SA_RESTART);
        pid_t writer = fork(); if (!writer) { for (int i = 0; i < 5; i++) { usleep(60000); MUST(write(s[0], "four", 4) == 4); } _exit(0); }
        for (int i = 0; i < 5; i++) { setitimer(ITIMER_REAL, &once, 0); restarted += read(s[1], b, 4) == 4; }
        waitpid(writer, 0, 0); handle(SIGALRM, jumps, 0);
        for (volatile int i = 0; i < 10; i++) if (!sigsetjmp(away, 1)) { setitimer(ITIMER_REAL, &once, 0); MUST(read(s[1], b, 4) == 99); } else left++;
        printf("interrupted %d, restarted %d, left %d\n", interrupted, restarted, left);
        printf("from nowhere %d %d\n", (int)write(s[0], (void *)(long)n, 10), errno); MUST(write(s[0], "abc", 3) == 3);
        printf("to nowhere %d %d\n", (int)read(s[1], (void *)(long)n, 3), errno);
    }
    MODE("once") {
        unsigned char *gone = map(PAGE); munmap(gone, PAGE);
        long before = writes_made(); int refused = 0;
        for (int i = 0; i < 100; i++) refused += write(s[0], gone, 1) == -1 && errno == EFAULT;
        printf("refused %d, made %ld\n", refused, writes_made() - before);
    }
    MODE("actions") {
        rounds = 20000; pthread_t t; MUST(!pthread_create(&t, 0, ignores, 0)); int wrong = 0;
        for (int i = 1; i <= rounds; i++) {
            turn = i; handle(SIGUSR2, counts, 0); while (done_with != i) {}
            struct sigaction now; sigaction(SIGUSR2, 0, &now); long before = handled; raise(SIGUSR2);
            wrong += handled - before != (now.sa_handler == counts);
        }
        pthread_join(t, 0); printf("signals that went elsewhere than their action says: %d\n", wrong);
    }
    MODE("pending") {
        int sent[] = {SIGUSR1, SIGSEGV, SIGBUS, SIGSYS}; sigset_t all, shown; sigemptyset(&all);
        for (int i = 0; i < 4; i++) { handle(sent[i], counts, 0); sigaddset(&all, sent[i]); }
        pthread_sigmask(SIG_BLOCK, &all, 0);
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < 4; i++) { MUST(!sigpending(&shown)); printf(" %d", sigismember(&shown, sent[i])); if (!k) raise(sent[i]); }
            MUST(handled == 0);
        }
        pthread_sigmask(SIG_UNBLOCK, &all, 0); MUST(!sigpending(&shown));
        printf("; handled %ld, left %d\n", handled, sigismember(&shown, SIGSEGV));
        printf("to nowhere %ld\n", syscall(SYS_rt_sigpending, (void *)8, 8));
    }
    MODE("cancelled") {
        for (int i = 0; i < 20; i++) { pthread_t t; void *end; pthread_create(&t, 0, waits, s); usleep(3000); pthread_cancel(t); pthread_join(t, &end); MUST(end == PTHREAD_CANCELED); }
        printf("cleaned up %d times\n", cleaned);
    }
    MODE("register") {
        /* The register by which a thread is found may become the program's. */
        unsigned long base = 5; rounds = 100;
        MUST(!syscall(SYS_arch_prctl, 0x1004, &base)); printf("%lx\n", base);
        sends(0); MUST(!syscall(SYS_arch_prctl, 0x1001, 0x12345000ul)); sends(0);
        MUST(!syscall(SYS_arch_prctl, 0x1004, &base)); printf("%lx\n", base);
        pthread_t t; MUST(!pthread_create(&t, 0, sends, (void *)1)); pthread_join(t, 0); puts("done");
    }
    return 0;
}
