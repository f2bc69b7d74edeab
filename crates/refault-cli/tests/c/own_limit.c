/* Limits its own addresses to 200 MiB and takes all that there are of them, in blocks; says how many mebibytes that were,
 * how many of their words are wrong, and whether a thread can be had once they are given back. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define BLOCK (64ul << 10)
#define MOST 8192

static unsigned long *blocks[MOST];

static void *nothing(void *argument) { return argument; }

int main(void) {
    struct rlimit limit = {200ul << 20, 200ul << 20};
    if (setrlimit(RLIMIT_AS, &limit)) return 1;
    unsigned long count = 0, wrong = 0;
    while (count < MOST) {
        unsigned long *block = mmap(0, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) break;
        for (unsigned long i = 0; i < BLOCK / 8; i++) block[i] = (count * BLOCK + i) * 0x9e3779b97f4a7c15;
        blocks[count++] = block;
    }
    for (unsigned long at = 0; at < count; at++)
        for (unsigned long i = 0; i < BLOCK / 8; i++) wrong += blocks[at][i] != (at * BLOCK + i) * 0x9e3779b97f4a7c15;
    for (unsigned long at = 0; at < count; at++) munmap(blocks[at], BLOCK);
    pthread_t thread;
    int refused = pthread_create(&thread, 0, nothing, 0);
    if (!refused) pthread_join(thread, 0);
    printf("%lu MiB, %lu wrong, thread %d\n", count * BLOCK >> 20, wrong, refused);
    return 0;
}
