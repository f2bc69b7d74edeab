/* An allocator of the program's own that reserves all its addresses at once, before any library begins, and makes them
 * writable bit by bit. Prints "done". */
#include "program.h"

#define RESERVED (4096 * MIB)
#define STEP (64ul << 10)

static unsigned char *reserved;
static unsigned long used, writable;
static unsigned char *volatile early;

void *malloc(size_t bytes) {
    if (!reserved) {
        reserved = mmap(0, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED) abort();
    }
    unsigned long at = (used + 15) & -16ul;
    used = at + bytes;
    if (used > writable) {
        unsigned long more = (used - writable + STEP - 1) & -STEP;
        if (mprotect(reserved + writable, more, PROT_READ | PROT_WRITE)) abort();
        writable += more;
    }
    return reserved + at;
}

void free(void *memory) {}

void *calloc(size_t count, size_t bytes) {
    return malloc(count * bytes);
}

void *realloc(void *memory, size_t bytes) {
    unsigned char *fresh = malloc(bytes);
    for (size_t at = 0; memory && at < bytes; at++) fresh[at] = ((unsigned char *)memory)[at];
    return fresh;
}

static void begin(void) {
    early = malloc(MIB / 2);
    for (unsigned long at = 0; at < MIB / 2; at++) early[at] = 7;
}

__attribute__((section(".preinit_array"), used)) static void (*first)(void) = begin;

int main(void) {
    unsigned char *parts[24];
    for (int part = 0; part < 24; part++) {
        parts[part] = malloc(MIB);
        CHECK(zero(parts[part], MIB));
        fill(parts[part], MIB);
    }
    for (int part = 0; part < 24; part++) CHECK(whole(parts[part], MIB));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        for (int part = 0; part < 24; part += 5) CHECK(whole(parts[part], MIB));
        _exit(0);
    }
    CHECK(ended_well(pid));
    for (unsigned long at = 0; at < MIB / 2; at++) CHECK(early[at] == 7);
    /* It may be given back, in part, and mapped anew. */
    CHECK(!munmap(reserved + RESERVED / 2, MIB));
    CHECK(mmap(reserved + RESERVED / 2, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
    CHECK(zero(reserved + RESERVED / 2, MIB));
    puts("done");
}
