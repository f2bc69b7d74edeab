/* Waits for signals of its own in calls that wait, while a child queues the tree's request for memory (whose value is the
 * argument) to the thread again and again. Another child sends a signal once the thread waits in the call: that ends it,
 * unless its action says that the call is made again. Prints "done". */
#include "program.h"
#include <poll.h>

static int ends[2], handled;
/* The number of the call in which a signal is to come; -1 when it was sent. */
static volatile long *wanted;

static void handle(int number) { handled++; }

static void give_a_byte(int number) {
    handled++;
    CHECK(write(ends[1], "x", 1) == 1);
}

static void handle_by(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(!sigaction(SIGUSR1, &action, 0));
}

static void send_signals(pid_t to) {
    char path[64], text[256];
    sprintf(path, "/proc/%d/syscall", to);
    for (;;) {
        long call = *wanted;
        int file = open(path, O_RDONLY);
        if (file < 0) _exit(0);
        long length = read(file, text, sizeof text - 1);
        close(file);
        text[length > 0 ? length : 0] = 0;
        if (call < 0 || text[0] < '0' || text[0] > '9' || strtol(text, 0, 10) != call) continue;
        *wanted = -1;
        kill(to, SIGUSR1);
    }
}

static void ask(pid_t whom, unsigned long value) {
    siginfo_t info = {.si_signo = SIGSYS, .si_code = SI_QUEUE};
    info.si_value.sival_ptr = (void *)value;
    while (!syscall(SYS_rt_tgsigqueueinfo, whom, whom, SIGSYS, &info)) usleep(10);
    _exit(0);
}

static void try(int times) {
    struct pollfd poll_for = {.fd = ends[0], .events = POLLIN};
    char byte;
    for (int time = 0; time < times; time++) {
        handle_by(handle, 0);
        *wanted = SYS_pause;
        CHECK(pause() == -1 && errno == EINTR);
        *wanted = SYS_poll;
        CHECK(poll(&poll_for, 1, -1) == -1 && errno == EINTR);
        *wanted = SYS_read;
        CHECK(read(ends[0], &byte, 1) == -1 && errno == EINTR);
        handle_by(give_a_byte, SA_RESTART);
        *wanted = SYS_read;
        CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2 && !pipe(ends));
    wanted = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *wanted = -1;
    pid_t this = getpid(), sends = fork(), asks;
    CHECK(sends >= 0);
    if (!sends) send_signals(this);
    CHECK((asks = fork()) >= 0);
    if (!asks) ask(this, strtoul(arguments[1], 0, 10));
    try(200);
    /* Enough calls that the library's jump to the agent from now on. */
    for (int call = 0; call < 2000; call++) CHECK(getppid() > 0);
    try(200);
    CHECK(handled == 2 * 200 * 4);
    CHECK(!kill(asks, SIGKILL) && !kill(sends, SIGKILL));
    puts("done");
    return 0;
}
