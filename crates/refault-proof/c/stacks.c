/* Small alternate stacks, small threads' stacks, and stacks that lie in managed memory themselves. */
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <ucontext.h>

static unsigned char *far_away;
static volatile int done;
static void touch(void) { for (unsigned i = 0; i < 6000; i++) far_away[i * 2654435761u % 4096 * PAGE]++; done = 1; }
static void handler(int s) { (void)s; touch(); }
static void counts(int s) { (void)s; done++; }
static unsigned char *volatile place;
static void on_stack(int s) { unsigned char here; (void)s; place = &here; }
static void *in_thread(void *x) { (void)x; touch(); return 0; }
static void prepare(void) { far_away = map(16 * MIB); fill(far_away, 16 * MIB); }
static ucontext_t outside, inside[8];
static long sums[8];
static void coroutine(int number) {
    volatile unsigned char room[20000]; for (int i = 0; i < 20000; i++) room[i] = i * (number + 1);
    for (int turn = 0; turn < 4; turn++) { swapcontext(&inside[number], &outside); for (int i = 0; i < 20000; i++) sums[number] += room[i]; }
}
static void *fills_its_stack(void *x) {
    volatile unsigned char room[200 * KIB]; long sum = 0; for (unsigned i = 0; i < sizeof room; i++) room[i] = i * 7;
    for (int turn = 0; turn < 5; turn++) { usleep(20000); for (unsigned i = 0; i < sizeof room; i++) sum += room[i]; } *(long *)x = sum; return 0;
}
int main(int n, char **v) {
    const char *mode = n > 1 ? v[1] : ""; unsigned long size = n > 2 ? atol(v[2]) : 0; setvbuf(stdout, 0, _IONBF, 0); prepare();
    MODE("alternate") {
        /* Too small to be managed, full of a pattern below the stack. */
        unsigned char *a = map(96 * KIB), *top = a + 96 * KIB; memset(a, 0xab, 96 * KIB); stack_t s = {.ss_sp = top - size, .ss_size = size}; if (sigaltstack(&s, 0)) perror("sigaltstack");
        struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK}; sigaction(SIGUSR1, &act, 0); raise(SIGUSR1);
        long bad = 0; for (unsigned char *q = a; q < top - size; q++) bad += *q != 0xab; printf("%ld bytes below the stack overwritten, done %d\n", bad, done);
        stack_t seen; sigaltstack(0, &seen); printf("still the program's: %d %d %d\n", seen.ss_sp == s.ss_sp, seen.ss_size == s.ss_size, seen.ss_flags);
    }
    MODE("filtered") {
        /* Signals, before and after a filter that allows everything, on another stack than before it. */
        static stack_t before = {.ss_size = 64 * KIB}, after = {.ss_size = 64 * KIB}; before.ss_sp = map(64 * KIB); after.ss_sp = map(64 * KIB); sigaltstack(&before, 0);
        struct sigaction act = {.sa_handler = on_stack, .sa_flags = SA_ONSTACK}, seen; sigaction(SIGUSR1, &act, 0); sigaction(SIGSEGV, &act, 0); raise(SIGUSR1); printf("before: in the first %d\n", place - (unsigned char *)before.ss_sp < 64 * KIB);
        sigset_t mask; sigemptyset(&mask); sigaddset(&mask, SIGBUS); sigaddset(&mask, SIGUSR2); sigprocmask(SIG_BLOCK, &mask, 0);
        struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}; struct sock_fprog program = {1, &allow}; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); printf("filter %ld\n", (long)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
        raise(SIGUSR1); printf("after: in the first %d\n", place - (unsigned char *)before.ss_sp < 64 * KIB); int changes = sigaltstack(&after, 0); raise(SIGUSR1); printf("%d, in the second %d\n", changes, place - (unsigned char *)after.ss_sp < 64 * KIB);
        place = 0; raise(SIGSEGV); printf("sent: in the second %d\n", place - (unsigned char *)after.ss_sp < 64 * KIB); sigprocmask(SIG_BLOCK, 0, &mask); printf("blocked %d %d %d\n", sigismember(&mask, SIGBUS), sigismember(&mask, SIGUSR2), sigismember(&mask, SIGSEGV));
        sigaction(SIGUSR1, 0, &seen); printf("handler %d, flags %d\n", seen.sa_handler == on_stack, !!(seen.sa_flags & SA_ONSTACK)); act.sa_handler = handler; sigaction(SIGUSR1, &act, 0); raise(SIGUSR1); printf("done %d\n", done);
        printf("fault %d\n", fault_of((unsigned char *)8192, 1));
    }
    MODE("sandboxed") {
        /* A filter that kills for what only a signal handler does, as OpenSSH's has it. */
        unsigned char *p = map(4 * MIB); fill(p, 4 * MIB); push_out(p, 4 * MIB);
        struct sock_filter lines[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {4, lines}; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); printf("filter %d\n", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
        printf("changed %ld, another filter %ld\n", changed(p, 4 * MIB), syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
    }
    MODE("asked") {
        /* A filter, for which all memory is brought in, while another process lacks memory. */
        struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}; struct sock_fprog program = {1, &allow}; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        pid_t other = fork(); if (!other) { raise(SIGSTOP); unsigned char *p = map(8 * MIB); for (;;) fill(p, 8 * MIB); } waitpid(other, 0, WUNTRACED);
        pid_t child = fork();
        if (!child) { kill(other, SIGCONT); int set = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0); kill(other, SIGKILL); printf("%d %ld, ", set, changed(far_away, 16 * MIB)); _exit(0); }
        int status; waitpid(child, &status, 0); kill(other, SIGKILL); waitpid(other, 0, 0); printf("status %d\n", status);
    }
    MODE("kept") {
        /* Sent while it is blocked: it waits, whatever filter is set meanwhile, and reaches its handler. */
        struct sigaction act = {.sa_handler = counts, .sa_flags = 0}; int numbers[] = {SIGBUS, SIGSEGV, SIGSYS}; sigset_t mask, waits; sigemptyset(&mask);
        for (int i = 0; i < 3; i++) { sigaction(numbers[i], &act, 0); sigaddset(&mask, numbers[i]); } sigprocmask(SIG_BLOCK, &mask, 0); for (int i = 0; i < 3; i++) raise(numbers[i]);
        struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}; struct sock_fprog program = {1, &allow}; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); printf("filter %ld\n", (long)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
        sigpending(&waits); printf("handled %d, waiting %d %d %d\n", done, sigismember(&waits, SIGBUS), sigismember(&waits, SIGSEGV), sigismember(&waits, SIGSYS)); sigprocmask(SIG_UNBLOCK, &mask, 0); printf("handled %d\n", done);
    }
    MODE("thread") {
        pthread_attr_t a; pthread_attr_init(&a); int e = pthread_attr_setstacksize(&a, size); pthread_t t; e |= pthread_create(&t, &a, in_thread, 0); if (!e) pthread_join(t, 0); printf("%d done %d\n", e, done);
    }
    MODE("overflow") {
        /* A handler on an alternate stack sees the overflow of the ordinary one. */
        pid_t p = fork(); if (!p) { struct rlimit l = {256 * KIB, 256 * KIB}; setrlimit(RLIMIT_STACK, &l); volatile char *q = __builtin_frame_address(0); stack_t s = {.ss_sp = map(64 * KIB), .ss_size = 64 * KIB}; sigaltstack(&s, 0);
            struct sigaction act = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK | SA_NODEFER}; sigaction(SIGSEGV, &act, 0); expected = 1; int sig = sigsetjmp(before_access, 1); if (!sig) for (;;) { q -= 4096; *q = 1; } printf("overflow: signal %d\n", sig); _exit(0); }
        int status; waitpid(p, &status, 0); printf("status %d\n", status);
    }
    MODE("mapped") {
        pthread_t t[4]; long sum[4] = {0}; for (int i = 0; i < 4; i++) { pthread_attr_t a; pthread_attr_init(&a); unsigned char *stack = map(512 * KIB); pthread_attr_setstack(&a, stack, 512 * KIB); if (pthread_create(&t[i], &a, fills_its_stack, &sum[i])) puts("no thread"); }
        for (int i = 0; i < 3; i++) push_out(far_away, 16 * MIB); for (int i = 0; i < 4; i++) { pthread_join(t[i], 0); printf("%ld ", sum[i]); } puts("");
    }
    MODE("coroutines") {
        for (int i = 0; i < 8; i++) { getcontext(&inside[i]); inside[i].uc_stack.ss_sp = map(128 * KIB); inside[i].uc_stack.ss_size = 128 * KIB; inside[i].uc_link = &outside; makecontext(&inside[i], (void (*)(void))coroutine, 1, i); }
        for (int turn = 0; turn < 5; turn++) for (int i = 0; i < 8; i++) { push_out(inside[i].uc_stack.ss_sp, 128 * KIB); swapcontext(&outside, &inside[i]); }
        for (int i = 0; i < 8; i++) printf("%ld ", sums[i]); puts("");
    }
    return 0;
}
