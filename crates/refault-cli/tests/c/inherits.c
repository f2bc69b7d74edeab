/* What a program has from whom executed it, or from constructors of libraries, is there as alone: ignored and blocked
 * signals, an alternate stack, standard descriptors that are closed. What it sends to its group comes once. */
#include "program.h"

#ifdef LIBRARY
__attribute__((constructor)) static void begin(void) {
    stack_t stack = {malloc(65536), 0, 65536};
    sigaltstack(&stack, 0);
}
#else
static const int open_signals[] = {SIGSEGV, SIGBUS, SIGSYS};
static volatile int handled;
static void handler(int number) { handled++; }

static void ignores_and_blocks(void) {
    struct sigaction action;
    sigset_t blocked;
    for (int i = 0; i < 3; i++) {
        CHECK(sigaction(open_signals[i], 0, &action) == 0 && action.sa_handler == SIG_IGN);
        CHECK(kill(getpid(), open_signals[i]) == 0);
    }
    CHECK(sigprocmask(SIG_SETMASK, 0, &blocked) == 0);
    for (int number = 1; number < 32; number++)
        CHECK(sigismember(&blocked, number) == (number != SIGKILL && number != SIGSTOP));
    sigset_t none;
    sigemptyset(&none);
    CHECK(sigprocmask(SIG_SETMASK, &none, 0) == 0);
}

int main(int count, char **words) {
    unsigned char *memory = map(16 * MIB);
    fill(memory, 16 * MIB);
    if (count == 1) {
        sigset_t all;
        sigfillset(&all);
        for (int i = 0; i < 3; i++) signal(open_signals[i], SIG_IGN);
        CHECK(sigprocmask(SIG_SETMASK, &all, 0) == 0);
        CHECK(execl("/nonexistent", "nothing", (char *)0) == -1 && whole(memory, 16 * MIB));
        execl("/proc/self/exe", words[0], "executed", (char *)0);
        CHECK(!"it is executed");
    }
    if (strcmp(words[1], "pipe")) CHECK(!strcmp(words[1], "executed") || signal(SIGPIPE, SIG_DFL) == SIG_DFL);
    if (!strcmp(words[1], "executed")) ignores_and_blocks();
    if (!strcmp(words[1], "pipe")) CHECK(signal(SIGPIPE, SIG_DFL) == SIG_IGN);
    if (!strcmp(words[1], "alternate")) {
        stack_t stack;
        CHECK(sigaltstack(0, &stack) == 0 && stack.ss_size == 65536 && stack.ss_flags == 0);
    }
    if (!strcmp(words[1], "closed")) CHECK(open("/dev/null", O_RDONLY) == 0 && fcntl(2, F_GETFD) == -1);
    if (!strcmp(words[1], "group")) {
        signal(SIGUSR1, handler);
        for (int sent = 1; sent <= 3; sent++) {
            CHECK(kill(0, SIGUSR1) == 0);
            for (int i = 0; i < 20; i++) usleep(10000);
            CHECK(handled == sent);
        }
    }
    CHECK(whole(memory, 16 * MIB));
    puts("done");
}
#endif
