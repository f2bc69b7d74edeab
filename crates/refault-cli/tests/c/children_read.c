/* Forks two children that read, as their parent does, what it has written: 50 MiB that compress to half, in any order, for
 * two seconds. Prints "done". */
#include "program.h"

#define SIZE (50 * MIB)

static int reads(unsigned char *memory, unsigned long seed) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int reads = 0; reads < 1000; reads++) {
            seed = seed * 6364136223846793005ul + 1442695040888963407ul;
            unsigned long page = (seed >> 33) % (SIZE / PAGE);
            if (*(unsigned long *)(memory + page * PAGE) != pattern(page * PAGE)) return 0;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 2);
    return 1;
}

int main(void) {
    unsigned char *memory = map(SIZE);
    for (unsigned long page = 0; page < SIZE; page += PAGE)
        for (unsigned long offset = page; offset < page + PAGE / 2; offset += 8)
            *(unsigned long *)(memory + offset) = pattern(offset);
    pid_t children[2];
    for (int child = 0; child < 2; child++) {
        children[child] = fork();
        CHECK(children[child] >= 0);
        if (!children[child]) _exit(!reads(memory, child));
    }
    CHECK(reads(memory, 2));
    for (int child = 0; child < 2; child++) CHECK(ended_well(children[child]));
    puts("done");
    return 0;
}
