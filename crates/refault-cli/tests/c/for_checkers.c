// What checkers look for: `clean`, `loses` N blocks, `overflows` a block, `races` for a word, `shifts` too far, or `waits`.
// 16 MiB are filled before and read afterwards, so that most of it is out under a budget while a checker works.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 2 << 20 };

static long shared;

static void *adds(void *unused) {
    for (int times = 0; times < 1000; times++)
        shared++;
    return unused;
}

__attribute__((noinline)) static void loses(int blocks) {
    for (int block = 0; block < blocks; block++) {
        volatile char *lost = malloc(100);
        lost[0] = 1;
    }
}

// The stack where a lost block's address may still lie.
__attribute__((noinline)) static void clears_the_stack(void) {
    volatile char stack[8192];
    memset((char *)stack, 0, sizeof stack);
}

int main(int count, char **arguments) {
    long *kept = malloc(WORDS * sizeof *kept), sum = 0;
    for (long word = 0; word < WORDS; word++)
        kept[word] = word * 7919;
    const char *what = count > 1 ? arguments[1] : "clean";
    if (!strcmp(what, "loses"))
        loses(count > 2 ? atoi(arguments[2]) : 1);
    if (!strcmp(what, "overflows")) {
        volatile char *block = malloc(10);
        block[10] = 1;
        free((void *)block);
    }
    if (!strcmp(what, "races")) {
        pthread_t threads[2];
        for (int thread = 0; thread < 2; thread++)
            pthread_create(&threads[thread], 0, adds, 0);
        for (int thread = 0; thread < 2; thread++)
            pthread_join(threads[thread], 0);
    }
    if (!strcmp(what, "shifts"))
        sum += (1 << (count + 30)) & 0;
    if (!strcmp(what, "waits")) {
        puts("waits");
        fflush(stdout);
        sleep(60);
    }
    clears_the_stack();
    for (long word = 0; word < WORDS; word++)
        sum += kept[word] != word * 7919;
    printf("%ld wrong\n", sum);
    free(kept);
    return 0;
}
