/* More threads, where addresses are limited, than the addresses suffice for that the tool keeps for itself, and memory of the
 * program's own with a hole in it: what the tool maps for the rest is not there, so that to unmap the whole takes nothing of
 * it. Prints "done". */
#include "program.h"

#define THREADS 500
#define WINDOW (320 * MIB)
#define HOLE (192 * MIB)

static pthread_barrier_t begun, unmapped;

static void *work(void *argument) {
    unsigned char *mine = argument;
    fill(mine, 2 * PAGE);
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&unmapped);
    for (int turn = 0; turn < 20; turn++) CHECK(!raise(0) && whole(mine, 2 * PAGE));
    return 0;
}

int main(void) {
    unsigned char *memory = map(THREADS * 2 * PAGE);
    CHECK(memory != MAP_FAILED);
    unsigned char *stacks = map(THREADS * 32 * 1024);
    CHECK(stacks != MAP_FAILED);
    CHECK(!pthread_barrier_init(&begun, 0, THREADS + 1) && !pthread_barrier_init(&unmapped, 0, THREADS + 1));
    unsigned char *window = mmap(0, WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(window != MAP_FAILED);
    CHECK(!munmap(window + WINDOW - HOLE - MIB, HOLE));
    pthread_t threads[THREADS];
    for (int thread = 0; thread < THREADS; thread++) {
        pthread_attr_t attributes;
        CHECK(!pthread_attr_init(&attributes));
        CHECK(!pthread_attr_setstack(&attributes, stacks + thread * 32 * 1024, 32 * 1024));
        CHECK(!pthread_create(&threads[thread], &attributes, work, memory + thread * 2 * PAGE));
    }
    pthread_barrier_wait(&begun);
    CHECK(!munmap(window, WINDOW));
    pthread_barrier_wait(&unmapped);
    for (int thread = 0; thread < THREADS; thread++) CHECK(!pthread_join(threads[thread], 0));
    puts("done");
}
