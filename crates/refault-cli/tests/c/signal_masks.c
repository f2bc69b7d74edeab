/* Changes masks and actions of signals 10 000 times while a timer interrupts every step of the way: masks must be
 * exact, and signals must come where they are opened and only there; memory that is mapped and unmapped meanwhile is
 * whole. Prints "done". */
#include "program.h"

static volatile int ticks, sent;

/* The timer's own signal and what its action blocks must be blocked. */
static void on_timer(int number) {
    sigset_t mask;
    ticks++;
    sigprocmask(SIG_SETMASK, 0, &mask);
    if (!sigismember(&mask, SIGALRM) || !sigismember(&mask, SIGUSR2)) _exit(7);
}

static void on_user(int number, siginfo_t *info, void *context) {
    sent++;
}

/* Whether the mask holds these two signals and no others, the timer's aside. */
static int same(sigset_t *mask, int first, int second) {
    for (int number = 1; number < 65; number++) {
        int wanted = number == first || number == second;
        if (number != SIGALRM && (sigismember(mask, number) == 1) != wanted) return 0;
    }
    return 1;
}

static struct sigaction user_action = {.sa_sigaction = on_user, .sa_flags = SA_SIGINFO};
static sigset_t no_signals, two_signals;

static void calls_that_are_refused(void) {
    struct sigaction found;
    CHECK(sigaction(SIGUSR1, 0, &found) == 0 && found.sa_sigaction == on_user && found.sa_flags & SA_SIGINFO);
    CHECK(sigaction(SIGKILL, &user_action, 0) == -1 && errno == EINVAL);
    CHECK(sigaction(65, &user_action, 0) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 8, 0, 8) == -1 && errno == EFAULT);
    CHECK(sigprocmask(99, &no_signals, 0) == -1 && errno == EINVAL);
    CHECK(pthread_sigmask(99, &no_signals, 0) == EINVAL);
}

static void block_and_open(int round) {
    sigset_t mask, pending;
    struct sigaction found;
    CHECK(!sigprocmask(SIG_BLOCK, &two_signals, &mask) && same(&mask, 0, 0));
    CHECK(!sigprocmask(SIG_BLOCK, 0, &mask) && same(&mask, SIGUSR1, SIGSEGV));
    int before = sent;
    if (round % 16 == 0) {
        raise(SIGUSR1);
        CHECK(sent == before);
        CHECK(!sigpending(&pending) && sigismember(&pending, SIGUSR1));
    }
    CHECK(!sigaction(SIGUSR1, &user_action, &found) && found.sa_sigaction == on_user);
    if (round % 3 == 0)
        CHECK(!sigprocmask(SIG_SETMASK, &no_signals, &mask));
    else
        CHECK(!sigprocmask(SIG_UNBLOCK, &two_signals, &mask));
    CHECK(same(&mask, SIGUSR1, SIGSEGV));
    CHECK(sent == before + (round % 16 == 0));
}

static void map_and_unmap(int round) {
    unsigned char *pages = map(3 * PAGE);
    CHECK(zero(pages, 3 * PAGE));
    memset(pages, round, 3 * PAGE);
    CHECK(!mprotect(pages + PAGE, PAGE, PROT_READ));
    CHECK(pages[5000] == (round & 255));
    CHECK(!munmap(pages, 3 * PAGE));
}

static void no_tick_while_all_is_blocked(void) {
    sigset_t all;
    sigfillset(&all);
    CHECK(!sigprocmask(SIG_BLOCK, &all, 0));
    int before = ticks;
    usleep(400);
    CHECK(ticks == before);
    CHECK(!sigprocmask(SIG_SETMASK, &no_signals, 0));
    CHECK(ticks > before);
}

int main(void) {
    for (int call = 0; call < 2000; call++) close(-1);
    struct sigaction timer_action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    sigaddset(&timer_action.sa_mask, SIGUSR2);
    CHECK(!sigaction(SIGALRM, &timer_action, 0) && !sigaction(SIGUSR1, &user_action, 0));
    sigemptyset(&no_signals);
    sigemptyset(&two_signals);
    sigaddset(&two_signals, SIGUSR1);
    sigaddset(&two_signals, SIGSEGV);
    calls_that_are_refused();
    CHECK(!interrupt_every(150));
    unsigned char *memory = map(4 * MIB);
    fill(memory, 4 * MIB);
    for (int round = 0; round < 10000; round++) {
        block_and_open(round);
        map_and_unmap(round);
        if (round % 500 == 0) {
            CHECK(whole(memory, 4 * MIB));
            no_tick_while_all_is_blocked();
        }
    }
    CHECK(ticks > 30);
    puts("done");
    return 0;
}
