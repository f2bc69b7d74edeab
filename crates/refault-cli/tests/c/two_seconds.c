/* What README's table calls `program`: goes round 24 MiB for two seconds. Prints nothing. */
#include <stdlib.h>
#include <time.h>

int main(void) {
    size_t bytes = 24 << 20, sum = 0;
    volatile char *memory = malloc(bytes);
    for (time_t end = time(0) + 2; time(0) < end;)
        for (size_t offset = 0; offset < bytes; offset += 4096) sum += memory[offset]++;
    return sum == 1;
}
