/* Under a budget of 3 MiB: a signal comes while the memory of a call is brought in, long before the call waits. Alone it
 * finds the program in its call: one that waits ends with EINTR, one that does not wait is over first, and behind a
 * handler with SA_RESTART a call goes on. Prints "done". */
#include "program.h"
#include <poll.h>

#define BYTES (2 * MIB)

static volatile int came;
static int ends[2];
static unsigned char *memory;

static void on_alarm(int signal) { came++; }

static void push_out(void) {
    unsigned char *more = map(4 * MIB);
    fill(more, 4 * MIB);
    CHECK(!munmap(more, 4 * MIB));
}

static void handles(int flags) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    CHECK(!sigaction(SIGALRM, &action, 0));
}

/* One signal after so many microseconds. */
static void announce(unsigned microseconds) {
    struct itimerval timer = {{0, 0}, {0, microseconds}};
    came = 0;
    push_out();
    CHECK(!setitimer(ITIMER_REAL, &timer, 0));
}

static void *writes_later(void *nothing) {
    while (!came) usleep(1000);
    usleep(100000);
    CHECK(write(ends[1], "data", 4) == 4);
    return 0;
}

int main(void) {
    memory = map(BYTES);
    fill(memory, BYTES);
    CHECK(!pipe(ends));
    /* From before the first page is in to after the last. */
    for (unsigned wait = 200; wait < 60000; wait *= 2) {
        handles(0);
        announce(wait);
        CHECK(read(ends[0], memory, BYTES) < 0 && errno == EINTR && came == 1);
        CHECK(whole(memory, BYTES));
        /* There is something to read: the signal ends nothing. */
        CHECK(write(ends[1], "data", 4) == 4);
        announce(wait);
        long got = read(ends[0], memory, BYTES);
        CHECK(got == 4 || (got < 0 && errno == EINTR && came == 1));
        if (got < 0) CHECK(read(ends[0], memory, BYTES) == 4);
        fill(memory, PAGE);
        while (!came) usleep(1000);
    }
    handles(SA_RESTART);
    pthread_t thread;
    announce(2000);
    CHECK(!pthread_create(&thread, 0, writes_later, 0));
    CHECK(read(ends[0], memory, BYTES) == 4 && came == 1);
    CHECK(!pthread_join(thread, 0));
    /* This one is not made again, whatever the action says. */
    struct pollfd *waits = (struct pollfd *)memory;
    *waits = (struct pollfd){.fd = ends[0], .events = POLLIN};
    announce(300);
    CHECK(poll(waits, 1, -1) < 0 && errno == EINTR && came == 1);
    puts("done");
    return 0;
}
