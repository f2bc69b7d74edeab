/* THREADS read and write MIB of memory for SECONDS, low pages far more often than high ones, and look at each page that
 * they touch for its mark. No call to the kernel but for the time, which is none. Prints "whole", or "damaged".
 * Arguments: MIB THREADS SECONDS. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PAGE 4096

static unsigned char *memory;
static unsigned long pages;
static double end;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Each page has its number at its beginning, bytes that compress to about half, and a count of writes at its end. */
static void fill(void) {
    unsigned long state = 1;
    for (unsigned long page = 0; page < pages; page++) {
        unsigned long *words = (unsigned long *)(memory + page * PAGE);
        words[0] = page;
        for (int word = 1; word < PAGE / 16; word++) words[word] = state = state * 6364136223846793005ul + 1442695040888963407ul;
    }
}

static void *touch(void *seed) {
    unsigned long state = (unsigned long)seed * 2654435761ul + 1;
    while (seconds() < end)
        for (int touches = 0; touches < 512; touches++) {
            state = state * 6364136223846793005ul + 1442695040888963407ul;
            /* The cube of a number below 1: a half of all touches fall on an eighth of the pages. */
            double part = (state >> 11) / 9007199254740992.0;
            unsigned long page = pages * (part * part * part);
            unsigned long *words = (unsigned long *)(memory + page * PAGE);
            if (words[0] != page) return "damaged";
            if (state >> 60 == 0) __atomic_fetch_add(&words[PAGE / 8 - 1], 1, __ATOMIC_RELAXED);
        }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    pages = strtoul(arguments[1], 0, 10) << 20 >> 12;
    memory = aligned_alloc(PAGE, pages * PAGE);
    int threads = atoi(arguments[2]);
    fill();
    end = seconds() + atof(arguments[3]);
    pthread_t others[64];
    const char *wrong = 0;
    for (long thread = 1; thread < threads && thread < 64; thread++)
        pthread_create(&others[thread], 0, touch, (void *)thread);
    wrong = touch(0);
    for (long thread = 1; thread < threads && thread < 64; thread++) {
        void *said;
        pthread_join(others[thread], &said);
        if (said) wrong = said;
    }
    puts(wrong ? wrong : "whole");
    return wrong != 0;
}
