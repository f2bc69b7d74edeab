/* Goes round MIB MiB for ever, with a PAUSE in microseconds after each MiB. Looks each time whether the sum of
 * its marks is what it was. Prints nothing, or "lost". Arguments: MIB [PAUSE]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    size_t bytes = strtoul(arguments[1], 0, 10) << 20;
    unsigned pause = count > 2 ? atoi(arguments[2]) : 0;
    unsigned char *memory = malloc(bytes);
    for (size_t page = 0; page < bytes; page += 4096)
        for (int at = 0; at < 4096; at++)
            memory[page + at] = (unsigned char)((page >> 12) * 31 + at * (at % 7 + 1) + rand() % 3);
    unsigned long sum = 0, first = 0;
    for (size_t page = 0; page < bytes; page += 4096) first += memory[page + 5];
    for (;;) {
        sum = 0;
        for (size_t page = 0; page < bytes; page += 4096) {
            sum += memory[page + 5];
            if (page % (1 << 20) == 0) usleep(pause);
        }
        if (sum != first) {
            fprintf(stderr, "lost\n");
            return 3;
        }
    }
}
