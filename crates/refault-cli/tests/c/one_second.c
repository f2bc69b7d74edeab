/* What README's table calls `program`: goes round 24 MiB for a second. Prints nothing. */
#include <stdlib.h>
#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(void) {
    size_t bytes = 24 << 20, sum = 0;
    volatile char *memory = malloc(bytes);
    for (double end = seconds() + 1; seconds() < end;)
        for (size_t offset = 0; offset < bytes; offset += 4096) sum += memory[offset]++;
    return sum == 1;
}
