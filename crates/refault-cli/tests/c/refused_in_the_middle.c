/* Under a budget of 3 MiB: mprotect and madvise that are refused in the middle of a range, and memory of which a part is
 * sealed (Linux 6.10). What lies before has changed. Prints "done". */
#include "program.h"
#include <fcntl.h>
#include <pthread.h>

#define PAGES 64ul
#define SYS_MSEAL 462

static volatile unsigned long *counters;
static volatile int stops;

static void push_out(void) {
    unsigned char *more = map(5 * MIB);
    memset(more, 7, 5 * MIB);
    CHECK(!munmap(more, 5 * MIB));
}

static int seal(unsigned char *memory, unsigned long bytes) { return syscall(SYS_MSEAL, memory, bytes, 0); }

/* Counts up in each page, and finds each count as it left it. */
static void *counts(void *nothing) {
    unsigned long known[PAGES] = {0}, words = PAGE / 8;
    for (unsigned seed = 1; !stops;) {
        seed = seed * 1103515245 + 12345;
        unsigned long page = (seed >> 8) % PAGES;
        for (int turn = 0; turn < 50 && !stops; turn++) {
            CHECK(counters[page * words + 7] == known[page]);
            counters[page * words + 7] = ++known[page];
        }
    }
    return nothing;
}

/* The last page cannot be written to. */
static void rights(char *program) {
    pthread_t thread;
    unsigned char *memory = map((PAGES + 1) * PAGE);
    int file = open(program, O_RDONLY);
    memset(memory, 0, PAGES * PAGE);
    CHECK(!mprotect(memory, (PAGES + 1) * PAGE, PROT_READ));
    CHECK(mmap(memory + PAGES * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
    CHECK(mprotect(memory, (PAGES + 1) * PAGE, PROT_READ | PROT_WRITE) < 0 && errno == EACCES);
    counters = (unsigned long *)memory;
    CHECK(!pthread_create(&thread, 0, counts, 0));
    for (int round = 0; round < 60; round++) push_out();
    stops = 1;
    CHECK(!pthread_join(thread, 0));
}

/* Memory that can only be read, the second half of it sealed. */
static unsigned char *half_sealed(void) {
    unsigned char *memory = map(PAGES * PAGE);
    fill(memory, PAGES * PAGE);
    CHECK(!mprotect(memory, PAGES * PAGE, PROT_READ));
    CHECK(!seal(memory + PAGES / 2 * PAGE, PAGES / 2 * PAGE));
    return memory;
}

static void discards(int out_before) {
    unsigned char *memory = half_sealed();
    if (out_before) push_out();
    CHECK(madvise(memory, PAGES * PAGE, MADV_DONTNEED) < 0 && errno == EPERM);
    CHECK(zero(memory, PAGES / 2 * PAGE));
    unsigned char *same = map(PAGES * PAGE);
    fill(same, PAGES * PAGE);
    CHECK(!memcmp(memory + PAGES / 2 * PAGE, same + PAGES / 2 * PAGE, PAGES / 2 * PAGE));
    CHECK(!munmap(same, PAGES * PAGE));
}

int main(int arguments, char **words) {
    CHECK(arguments == 1);
    rights(words[0]);
    unsigned char *page = map(PAGE);
    if (!seal(page, PAGE)) {
        discards(0);
        discards(1);
        unsigned char *memory = half_sealed();
        for (int round = 0; round < 4; round++) {
            push_out();
            CHECK(whole(memory, PAGES * PAGE));
        }
    }
    puts("done");
    return 0;
}
