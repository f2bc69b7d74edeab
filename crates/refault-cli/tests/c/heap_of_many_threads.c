/* 200 threads allocate, grow and free blocks, and look whether each holds what they wrote. Prints "done". */
#include "program.h"

#define BLOCKS 16

static void *churn(void *argument) {
    unsigned random = (unsigned long)argument * 2654435761u + 1;
    unsigned char *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    for (int round = 0; round < 24; round++) {
        random = random * 1664525 + 1013904223;
        int at = (random >> 8) % BLOCKS;
        size_t bytes = (random >> 12) % 60000 + 1;
        for (size_t offset = 0; blocks[at] && offset < sizes[at]; offset += 511)
            CHECK(blocks[at][offset] == (unsigned char)(sizes[at] + at));
        if (random & 64) {
            blocks[at] = realloc(blocks[at], bytes);
        } else {
            free(blocks[at]);
            blocks[at] = malloc(bytes);
        }
        sizes[at] = bytes;
        memset(blocks[at], bytes + at, bytes);
    }
    for (int at = 0; at < BLOCKS; at++) free(blocks[at]);
    return 0;
}

int main(void) {
    pthread_t threads[200];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (long at = 0; at < 200; at++) CHECK(!pthread_create(threads + at, &attributes, churn, (void *)at));
    for (int at = 0; at < 200; at++) pthread_join(threads[at], 0);
    puts("done");
    return 0;
}
