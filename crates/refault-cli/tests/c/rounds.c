/* Makes ROUNDS rounds of 3000 accesses to MIB MiB, one every 700 ms: so time decides which look sees an access,
 * and not the machine. Half of them are to scattered pages, of which the program touches the lower ones more often.
 * Half are a scan that goes on from where it was. Prints "done". Arguments: MIB ROUNDS. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t state = 88172645463325252ull;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 16;
}

/* The lowest of three random numbers below the bound. */
static size_t draw_low(size_t bound) {
    size_t low = draw() % bound;
    for (int count = 0; count < 2; count++) {
        size_t other = draw() % bound;
        if (other < low) low = other;
    }
    return low;
}

int main(int count, char **arguments) {
    size_t pages = atol(arguments[1]) << 8, half = pages / 2, scanned = 0;
    unsigned char *memory = mmap(0, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct timespec due;
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (int round = 0; round < atoi(arguments[2]); round++) {
        for (int access = 0; access < 3000; access++) {
            size_t low = draw_low(half);
            size_t page = access & 1 ? low * 40503 % half : half + scanned++ % half;
            memory[page << 12] += 1 + access;
        }
        due.tv_sec += (due.tv_nsec + 700000000) / 1000000000;
        due.tv_nsec = (due.tv_nsec + 700000000) % 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, 0);
    }
    puts("done");
}
