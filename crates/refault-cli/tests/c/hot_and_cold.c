/* Fills HOT and COLD MiB, reads the hot ones again and again for MILLISECONDS of processor time, and looks at the
 * cold ones once at the end. (A busy machine takes longer for as much.) Prints "whole", or "damaged".
 * Arguments: HOT COLD MILLISECONDS. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* What is written to each byte that is written at all. */
static unsigned char mark(size_t offset) {
    return offset >> 12 | 1;
}

static void fill(unsigned char *memory, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += 64) memory[offset] = mark(offset);
}

static int damaged(void) {
    puts("damaged");
    return 1;
}

int main(int count, char **arguments) {
    size_t hot_bytes = atol(arguments[1]) << 20, cold_bytes = atol(arguments[2]) << 20;
    unsigned char *hot = malloc(hot_bytes), *cold = malloc(cold_bytes);
    fill(cold, cold_bytes);
    fill(hot, hot_bytes);
    unsigned long sum = 0;
    for (double end = milliseconds() + atol(arguments[3]); milliseconds() < end;) {
        for (size_t offset = 0; offset < hot_bytes; offset += 4096) {
            sum += hot[offset];
            if (hot[offset] != mark(offset)) return damaged();
        }
    }
    for (size_t offset = 0; offset < cold_bytes; offset += 4096)
        if (cold[offset] != mark(offset)) return damaged();
    puts("whole");
    return sum == 0;
}
