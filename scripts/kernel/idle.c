/* A program whose idle memory is known: IDLE MiB that are written once and BUSY MiB of which every page is read each
 * 200 ms. At SIGUSR1 it reads all and prints the sum, which says whether anything was lost. For scripts/ask-ages. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static volatile sig_atomic_t asked;

static void ask(int signal) {
    (void)signal;
    asked = 1;
}

static unsigned long sum(const volatile unsigned char *at, size_t bytes) {
    unsigned long total = 0;
    for (size_t i = 0; i < bytes; i += 4096) total += at[i] + (i >> 12) % 7;
    return total;
}

static unsigned char *take(size_t bytes) {
    unsigned char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) exit(1);
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(i * 31 ^ i >> 9);
    return at;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    size_t idle_bytes = (size_t)atoi(arguments[1]) << 20, busy_bytes = (size_t)atoi(arguments[2]) << 20;
    signal(SIGUSR1, ask);
    unsigned char *idle = take(idle_bytes), *busy = take(busy_bytes);
    const struct timespec pause = {.tv_nsec = 200000000};
    unsigned long last = 0;
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        last += sum(busy, busy_bytes);
        if (asked) {
            asked = 0;
            printf("sum %lu\n", sum(idle, idle_bytes) + sum(busy, busy_bytes));
            fflush(stdout);
        }
        nanosleep(&pause, NULL);
    }
    return (int)last;
}
