/* Blocks, ignores, resets and handles SIGBUS itself, which brings a fault to the pager, and waits for signals with all
 * others blocked, while a timer's handler touches evicted memory. At the end it reads behind the end of a file, and
 * its own handler prints "done". */
#include "program.h"
#include <poll.h>
#include <sys/select.h>

static unsigned char *memory;
static unsigned long bytes = 8 * MIB, ticks;
static volatile int seen;

static void tick(int number) {
    volatile unsigned char *touched = memory;
    touched[++ticks * 7919 * PAGE % bytes] ^= 0;
}

/* The SIGBUS of an access behind the end of a file. */
static void behind_the_end(int number, siginfo_t *info, void *context) {
    int good = whole(memory, bytes);
    if (good) {
        puts("done");
        fflush(stdout);
    }
    _exit(!good);
}

static void sent(int number) {
    seen++;
}

static void change_masks_and_actions(void) {
    sigset_t set, now;
    sigfillset(&set);
    CHECK(!sigprocmask(SIG_SETMASK, &set, 0));
    CHECK(!pthread_sigmask(SIG_BLOCK, &set, 0));
    CHECK(whole(memory, bytes));
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, &now);
    CHECK(sigismember(&now, SIGTERM));

    CHECK(signal(SIGBUS, SIG_IGN) == SIG_DFL);
    CHECK(whole(memory, bytes));
    kill(getpid(), SIGBUS);
    CHECK(signal(SIGBUS, sent) == SIG_IGN);
    kill(getpid(), SIGBUS);
    CHECK(seen == 1);
    CHECK(whole(memory, bytes));
    CHECK(signal(SIGBUS, SIG_DFL) == sent);
    CHECK(whole(memory, bytes));
}

static void wait_for_the_timer(void) {
    sigset_t others;
    sigfillset(&others);
    sigdelset(&others, SIGALRM);
    struct timespec second = {1, 0};
    for (int round = 0; round < 50; round++) {
        fill(memory, bytes);
        CHECK(sigsuspend(&others) == -1 && ppoll(0, 0, &second, &others) == -1);
        CHECK(pselect(0, 0, 0, 0, &second, &others) == -1 && errno == EINTR);
    }
}

int main(void) {
    memory = map(bytes);
    fill(memory, bytes);
    change_masks_and_actions();

    stack_t stack = {.ss_sp = malloc(1 << 18), .ss_size = 1 << 18};
    CHECK(!sigaltstack(&stack, 0));
    struct sigaction on_alarm = {.sa_handler = tick, .sa_flags = SA_RESTART | SA_ONSTACK};
    struct sigaction on_bus = {.sa_sigaction = behind_the_end, .sa_flags = SA_SIGINFO};
    sigfillset(&on_alarm.sa_mask);
    sigaction(SIGALRM, &on_alarm, 0);
    CHECK(!sigaction(SIGBUS, &on_bus, 0));
    interrupt_every(500);
    for (time_t start = time(0); time(0) - start < 2;) {
        fill(memory, bytes);
        unsigned char *other = map(MIB);
        memset(other, 1, MIB);
        munmap(other, MIB);
    }
    wait_for_the_timer();
    interrupt_every(0);
    CHECK(ticks > 50);

    int file = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(file >= 0 && !ftruncate(file, 8192));
    volatile char *mapped = mmap(0, 8192, PROT_READ, MAP_SHARED, file, 0);
    CHECK(!ftruncate(file, 0));
    return mapped[4096];
}
