/* Under a budget of 3 MiB: moves memory that was not touched yet between neighbours about which the program has given all advice that the kernel
 * notes of a mapping, to a place that it names and to one that the kernel finds. What the neighbours hold stays theirs,
 * and what was moved is advised as before. With each advice in use, a move is refused. Prints "done". */
#include "program.h"

#define PAGES 60ul
#define BYTES (PAGES * PAGE)
#define WAYS 6
#define MANY 8

/* The advice of each way, and what the kernel calls it in smaps. */
static const struct {
    int order, cores;
    const char *flags;
} WAY[WAYS] = {
    {MADV_NORMAL, MADV_DODUMP, ""},      {MADV_RANDOM, MADV_DODUMP, "rr "},   {MADV_SEQUENTIAL, MADV_DODUMP, "sr "},
    {MADV_NORMAL, MADV_DONTDUMP, "dd "}, {MADV_RANDOM, MADV_DONTDUMP, "rr dd "}, {MADV_SEQUENTIAL, MADV_DONTDUMP, "sr dd "},
};

static void advise(unsigned char *memory, int way) {
    CHECK(!madvise(memory, BYTES, WAY[way].order) && !madvise(memory, BYTES, WAY[way].cores));
}

/* Whether the mapping at an address is advised in this way. */
static int is_advised(unsigned char *memory, int way) {
    char line[4096], found[64] = "";
    int here = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps);
    while (fgets(line, sizeof line, smaps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            here = start <= (unsigned long)memory && (unsigned long)memory < end;
        } else if (here && !strncmp(line, "VmFlags:", 8)) {
            static const char *const known[] = {"sr", "rr", "dd"};
            for (int at = 0; at < 3; at++) {
                char word[8];
                sprintf(word, " %s ", known[at]);
                if (strstr(line, word)) strcat(strcat(found, known[at]), " ");
            }
        }
    }
    fclose(smaps);
    return !strcmp(found, WAY[way].flags);
}

/* Memory with contents. */
static void neighbour(unsigned char *place, int way) {
    CHECK(mmap(place, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place);
    advise(place, way);
    fill(place, BYTES);
}

/* Nothing of what was there before stays where it belongs. */
static void push_out(void) {
    unsigned char *more = map(6 * MIB);
    memset(more, 7, 6 * MIB);
    CHECK(!munmap(more, 6 * MIB));
}

static void to_a_place_that_is_named(int below, int above, int own) {
    unsigned char *window = mmap(0, 4 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *from = map(BYTES), *place = window + BYTES;
    advise(from, own);
    neighbour(window, below);
    neighbour(window + 2 * BYTES, above);
    push_out();
    CHECK(mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    CHECK(is_advised(window, below) && is_advised(place, own) && is_advised(window + 2 * BYTES, above));
    CHECK(whole(window, BYTES) && zero(place, BYTES) && whole(window + 2 * BYTES, BYTES));
    CHECK(!munmap(window, 4 * BYTES));
}

/* The highest hole that is large enough is where the kernel puts what moves: beneath what it mapped before. */
static void to_a_place_that_the_kernel_finds(int way) {
    unsigned char *full[MANY], *grows[MANY];
    for (int at = 0; at < MANY; at++) {
        grows[at] = map(PAGE);
        full[at] = map(BYTES);
        advise(full[at], way);
        fill(full[at], BYTES);
    }
    push_out();
    for (int at = 0; at < MANY; at++) {
        grows[at] = mremap(grows[at], PAGE, BYTES, MREMAP_MAYMOVE);
        CHECK(grows[at] != MAP_FAILED);
    }
    for (int at = 0; at < MANY; at++) CHECK(whole(full[at], BYTES) && zero(grows[at], BYTES));
    for (int at = 0; at < MANY; at++) CHECK(!munmap(full[at], BYTES) && !munmap(grows[at], BYTES));
}

static void with_each_advice_in_use(void) {
    unsigned char *all[WAYS], *from = map(BYTES), *place = map(BYTES);
    fill(from, BYTES);
    for (int way = 0; way < WAYS; way++) {
        all[way] = map(BYTES);
        advise(all[way], way);
        fill(all[way], BYTES);
    }
    push_out();
    CHECK(mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED && errno == ENOMEM);
    CHECK(is_advised(from, 0));
    CHECK(!munmap(all[1], BYTES));
    CHECK(mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    CHECK(whole(place, BYTES));
    for (int way = 0; way < WAYS; way++) CHECK(way == 1 || whole(all[way], BYTES));
    for (int way = 0; way < WAYS; way++) CHECK(way == 1 || !munmap(all[way], BYTES));
}

int main(void) {
    for (int way = 0; way < WAYS; way++) to_a_place_that_is_named(way, (way + 1) % WAYS, (way + 2) % WAYS);
    for (int way = 0; way < WAYS; way++) to_a_place_that_the_kernel_finds(way);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        to_a_place_that_is_named(1, 2, 4);
        _exit(0);
    }
    CHECK(ended_well(child));
    with_each_advice_in_use();
    puts("done");
    return 0;
}
