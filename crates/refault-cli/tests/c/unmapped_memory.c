/* Maps, unmaps, drops, moves and protects memory that was evicted: what is gone must fault, what is new must be zero,
 * and what moved must be whole. Prints "done". */
#include "program.h"

static sigjmp_buf before_access;

static void caught(int number) {
    siglongjmp(before_access, 1);
}

static int faults(unsigned char *address) {
    if (sigsetjmp(before_access, 1)) return 1;
    (void)*(volatile unsigned char *)address;
    return 0;
}

static void unmap_drop_and_move(void) {
    unsigned char *memory = map(4 * MIB);
    CHECK(zero(memory, 4 * MIB));
    fill(memory, 4 * MIB);
    unsigned char *other = map(4 * MIB);
    fill(other, 4 * MIB);
    CHECK(!munmap(other, 4 * MIB));
    CHECK(faults(other) && faults(other + 2 * MIB));
    CHECK(!madvise(memory, 2 * MIB, MADV_DONTNEED));
    CHECK(zero(memory, 2 * MIB));

    memory = mremap(memory, 4 * MIB, 8 * MIB, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED && zero(memory, 2 * MIB) && zero(memory + 4 * MIB, 4 * MIB));
    for (unsigned long offset = 2 * MIB; offset < 4 * MIB; offset += 8)
        CHECK(*(unsigned long *)(memory + offset) == pattern(offset));
    CHECK(!mprotect(memory, PAGE, PROT_NONE) && faults(memory));
    CHECK(!munmap(memory, 8 * MIB));
}

/* MADV_FREE is refused where a file is mapped in between, and changes nothing there. */
static void free_with_a_file_inside(void) {
    unsigned char *memory = map(MIB);
    int file = memfd_create("file", 0);
    CHECK(!ftruncate(file, PAGE));
    fill(memory, MIB);
    CHECK(mmap(memory + MIB / 2, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == memory + MIB / 2);
    memory[MIB / 2] = 7;
    CHECK(madvise(memory, MIB, MADV_FREE) && errno == EINVAL && memory[MIB / 2] == 7);
    close(file);
    CHECK(!munmap(memory, MIB));
}

int main(void) {
    signal(SIGSEGV, caught);
    for (int round = 0; round < 20; round++) {
        unmap_drop_and_move();
        free_with_a_file_inside();
    }
    puts("done");
    return 0;
}
