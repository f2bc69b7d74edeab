/* Forks eight children, each of which writes, again and again for a second and a half, to an eighth of what its parent has:
 * 80 MiB that compress to half. Prints "done". */
#include "program.h"

#define SIZE (80 * MIB)
#define CHILDREN 8

static int writes(unsigned char *memory, unsigned long start, unsigned char mark) {
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do {
        for (unsigned long offset = start; offset < start + SIZE / CHILDREN; offset += PAGE) {
            if (*(unsigned long *)(memory + offset) != pattern(offset)) return 0;
            memory[offset + PAGE - 1] = mark;
        }
        usleep(20000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000 < 1500);
    for (unsigned long offset = start; offset < start + SIZE / CHILDREN; offset += PAGE)
        if (memory[offset + PAGE - 1] != mark) return 0;
    return 1;
}

int main(void) {
    unsigned char *memory = map(SIZE);
    for (unsigned long page = 0; page < SIZE; page += PAGE)
        for (unsigned long offset = page; offset < page + PAGE / 2; offset += 8)
            *(unsigned long *)(memory + offset) = pattern(offset);
    pid_t children[CHILDREN];
    for (int child = 0; child < CHILDREN; child++) {
        children[child] = fork();
        CHECK(children[child] >= 0);
        if (!children[child]) _exit(!writes(memory, child * (SIZE / CHILDREN), child + 1));
    }
    for (int child = 0; child < CHILDREN; child++) CHECK(ended_well(children[child]));
    puts("done");
    return 0;
}
