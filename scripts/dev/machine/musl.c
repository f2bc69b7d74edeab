/* A program for another libc: keeps a table of numbers that is larger than a small budget, and prints its sum. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    const unsigned long count = 3000000;
    unsigned long sum = 0, *table = malloc(count * sizeof *table);
    if (!table) return 1;
    for (int pass = 0; pass < 3; pass++)
        for (unsigned long i = 0; i < count; i++) table[i] = pass ? table[i] + i * 7919 % 1000003 : i;
    for (unsigned long i = 0; i < count; i++) sum += table[i];
    printf("%lu\n", sum);
    return 0;
}
