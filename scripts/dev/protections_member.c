// A member of a pool, for scripts/dev/protections. Arguments: PARTS, each KIND:MIB:SECONDS. Each part is a process with
// memory of its own that begins after SECONDS; the first is this one, the others are forked from it. "once"
// writes its memory and sleeps; "uniform" accesses pages of it at random, at a rate that is the same for each that can
// keep it. Prints "lost" if a page does not have what was written.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, ACCESSES = 200, BATCH_NS = 10000000 };

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    return z ^ (z >> 27);
}

static void part(const char *kind, size_t pages) {
    pages = pages ? pages : 1;
    uint64_t *memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(1);
    size_t words = PAGE / sizeof *memory;
    for (size_t page = 0; !strcmp(kind, "once") && page < pages; page++)
        for (size_t n = 0; n < words; n++) memory[page * words + n] = n % 2 ? page : mix(page * words + n);
    uint64_t state = (uint64_t)getpid() << 32 | 1;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    while (!strcmp(kind, "uniform")) {
        for (int n = 0; n < ACCESSES; n++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            size_t page = (state >> 33) % pages;
            uint64_t *at = memory + page * words;
            if (!at[1]) {
                for (size_t m = 0; m < words; m++) at[m] = m % 2 ? page + 1 : mix(page * words + m);
            } else if (at[1] != page + 1) {
                fprintf(stderr, "lost\n");
                _exit(3);
            } else if (state >> 60 < 4) {
                at[2] = state;
            }
        }
        next.tv_nsec += BATCH_NS;
        if (next.tv_nsec >= 1000000000) next.tv_sec++, next.tv_nsec -= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
    }
    for (;;) pause();
}

int main(int count, char **arguments) {
    double now = 0;
    for (int n = count - 1; n >= 1; n--) { // the others wait in children, so that the first may be this process
        char kind[16];
        size_t mib;
        double seconds;
        if (sscanf(arguments[n], "%15[a-z]:%zu:%lf", kind, &mib, &seconds) != 3) return 2;
        if (n > 1 && fork()) continue;
        now = seconds;
        usleep(now * 1e6);
        part(kind, (mib << 20) / PAGE);
    }
}
