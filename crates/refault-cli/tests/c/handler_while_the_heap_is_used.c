/* A timer's handler touches evicted memory 8000 times, while libc loads locales, whose memory is the agent's own heap,
 * and strings are copied, whose larger copies are made there too. Prints "done". */
#include "program.h"
#include <locale.h>

static unsigned char *memory;
static volatile unsigned long sum, handled;
static unsigned touches;
static char words[3000];

/* The next tick comes each time a little later, so that the rest goes on however slow this is. */
static void set_timer(void) {
    struct itimerval once = {{0, 0}, {0, 50 + handled % 300}};
    setitimer(ITIMER_REAL, &once, 0);
}

static void tick(int number) {
    int before = errno;
    for (int count = 0; count < 4; count++) sum += memory[touches++ * 7919ul * PAGE % (8 * MIB)];
    handled++;
    set_timer();
    errno = before;
}

static void copy_strings(void) {
    char *copies[10];
    for (int at = 0; at < 10; at++) copies[at] = strdup(words + at * 100);
    for (int at = 0; at < 10; at++) free(copies[at]);
}

int main(void) {
    memory = map(8 * MIB);
    fill(memory, 8 * MIB);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    set_timer();
    memset(words, 'w', sizeof words - 1);
    while (handled < 8000) {
        setlocale(LC_ALL, "C.UTF-8");
        setlocale(LC_ALL, "C");
        for (int round = 0; round < 100; round++) copy_strings();
    }
    signal(SIGALRM, SIG_IGN);
    CHECK(whole(memory, 8 * MIB));
    puts("done");
    return 0;
}
