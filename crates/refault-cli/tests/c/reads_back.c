// Writes to as many MiB as its argument says, page by page, goes over them again and prints a sum of what it reads.
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    size_t bytes = (size_t)(count > 1 ? atoi(words[1]) : 8) << 20;
    unsigned char *memory = malloc(bytes);
    if (!memory) return 1;
    for (size_t at = 0; at < bytes; at++) memory[at] = (unsigned char)(at * 2654435761u >> 13);
    unsigned long sum = 0;
    for (int turn = 0; turn < 2; turn++)
        for (size_t at = 0; at < bytes; at += 61) sum = sum * 31 + memory[at];
    printf("%lu\n", sum);
    return 0;
}
