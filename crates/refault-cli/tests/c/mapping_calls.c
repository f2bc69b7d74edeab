/* The calls that docs/reference/semantics.md names, once each, on memory larger than the budget: mremap, madvise, mlock,
 * mprotect, realloc, vfork, posix_spawn, system and forks of forks, and at the end with all descriptors closed. Prints
 * "whole", or what was not as written. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (8u << 20)
#define MIB (1u << 20)

extern char **environ;

static void fails(const char *what) {
    puts(what);
    exit(1);
}

static unsigned char *map(unsigned bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static unsigned char mark(unsigned offset, unsigned factor) {
    return (offset >> 9) * factor + 1;
}

static void fill(unsigned char *memory, unsigned bytes, unsigned factor) {
    for (unsigned offset = 0; offset < bytes; offset += 512) memory[offset] = mark(offset, factor);
}

static void check(unsigned char *memory, unsigned from, unsigned to, unsigned factor, const char *what) {
    for (unsigned offset = from; offset < to; offset += 512) {
        if (memory[offset] != mark(offset, factor)) {
            printf("%s at %u\n", what, offset);
            exit(1);
        }
    }
}

static int failed(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    return status;
}

static void start_programs(void) {
    pid_t child = vfork();
    if (child == 0) {
        execlp("true", "true", (char *)0);
        _exit(1);
    }
    if (failed(child)) fails("vfork");
    char *words[] = {"true", 0};
    posix_spawnp(&child, "true", 0, 0, words, environ);
    if (failed(child)) fails("spawn");
    if (system("true")) fails("system");
}

static void child_of(unsigned char *memory) {
    check(memory, 0, BYTES / 2, 9, "child");
    fill(memory, BYTES / 2, 11);
    check(memory, 0, BYTES / 2, 11, "child wrote");
    pid_t grandchild = fork();
    if (grandchild == 0) {
        check(memory, 0, BYTES / 2, 11, "grandchild");
        _exit(0);
    }
    _exit(failed(grandchild) != 0);
}

int main(void) {
    unsigned char *memory = map(BYTES);
    fill(memory, BYTES, 7);
    memory = mremap(memory, BYTES, 4 * BYTES, MREMAP_MAYMOVE);
    check(memory, 0, BYTES, 7, "mremap");
    fill(memory, 4 * BYTES, 3);
    check(memory, 0, 4 * BYTES, 3, "grown");
    memory = mremap(memory, 4 * BYTES, 2 * BYTES, 0);
    check(memory, 0, 2 * BYTES, 3, "shrunk");
    unsigned char *neighbour = map(BYTES);
    fill(neighbour, BYTES, 5);
    memory = mremap(memory, 2 * BYTES, 6 * BYTES, MREMAP_MAYMOVE);
    check(memory, 0, 2 * BYTES, 3, "moved");
    check(neighbour, 0, BYTES, 5, "neighbour");

    madvise(memory, BYTES, MADV_DONTNEED);
    for (unsigned offset = 0; offset < BYTES; offset += 4096)
        if (memory[offset]) fails("dontneed");
    check(memory, BYTES, 2 * BYTES, 3, "rest");

    if (mlock(neighbour, MIB)) fails("mlock");
    if (!mlock(memory, 6 * BYTES)) fails("mlock of more than the budget");
    // What is locked where it is touched is the kernel's: nothing of it is here yet.
    unsigned char *untouched = map(7 * MIB);
    if (mlock2(untouched, 7 * MIB, MLOCK_ONFAULT)) fails("mlock2 of more than the budget, where it is touched");
    munmap(untouched, 7 * MIB);
    munlock(neighbour, MIB);
    if (mprotect(neighbour, 4096, PROT_READ)) fails("mprotect");
    check(neighbour, 0, BYTES, 5, "protected");
    munmap(neighbour, BYTES);

    unsigned char *block = malloc(BYTES);
    fill(block, BYTES, 9);
    block = realloc(block, 3 * BYTES);
    check(block, 0, BYTES, 9, "realloc");
    block = realloc(block, BYTES / 2);
    check(block, 0, BYTES / 2, 9, "realloc down");

    start_programs();
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) child_of(block);
        if (failed(child)) fails("fork");
        check(block, 0, BYTES / 2, 9, "parent");
    }
    for (int descriptor = 3; descriptor < 64; descriptor++) close(descriptor);
    check(block, 0, BYTES / 2, 9, "after closing everything");
    puts("whole");
    return 0;
}
