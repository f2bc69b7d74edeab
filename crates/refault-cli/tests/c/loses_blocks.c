// Loses as many blocks as its argument says: for leak checkers. Prints that it is done.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __attribute__((noinline)) void lose(int blocks) {
    for (int block = 0; block < blocks; block++) {
        char *lost = malloc(100);
        memset(lost, block, 100);
        __asm__ volatile("" : : "r"(lost) : "memory");
    }
}

// So that no address of a block is left on the stack.
static __attribute__((noinline)) void wipe(void) {
    volatile char stack[8192];
    for (size_t at = 0; at < sizeof stack; at++) stack[at] = 0;
}

int main(int count, char **words) {
    lose(count > 1 ? atoi(words[1]) : 1);
    wipe();
    puts("done");
    return 0;
}
