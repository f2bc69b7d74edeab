/* Unmaps managed memory and maps anew at the same addresses, over it, with and without MAP_FIXED; gives the same
 * addresses up twice. What is new must be zero, what stays must be whole, and mappings elsewhere must not be touched.
 * Prints "done". */
#include "program.h"

#define READ_WRITE (PROT_READ | PROT_WRITE)

static unsigned char *map_at(unsigned char *address, unsigned long bytes, int rights, int flags) {
    return mmap(address, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void others_stay_away(void) {
    unsigned char *others[16];
    for (int at = 0; at < 16; at++) {
        others[at] = map(MIB);
        CHECK(zero(others[at], MIB));
        memset(others[at], at + 1, MIB);
    }
    for (int at = 0; at < 16; at++)
        for (unsigned long offset = 0; offset < MIB; offset += 512) CHECK(others[at][offset] == at + 1);
    for (int at = 0; at < 16; at++) munmap(others[at], MIB);
}

int main(void) {
    unsigned long bytes = 4 * MIB;
    unsigned char *memory = map(bytes), *again;
    fill(memory, bytes);
    CHECK(!munmap(memory, bytes));
    again = map_at(memory, bytes, READ_WRITE, MAP_FIXED);
    CHECK(again == memory);
    CHECK(zero(again, bytes));
    fill(again, bytes);
    others_stay_away();
    CHECK(whole(again, bytes));

    CHECK(!munmap(again, bytes / 2));
    CHECK(!munmap(again, bytes));
    CHECK(!munmap(again, bytes));
    CHECK(!munmap(again + PAGE, PAGE));
    others_stay_away();

    memory = map(bytes);
    fill(memory, bytes);
    CHECK(map_at(memory, bytes, READ_WRITE, MAP_FIXED_NOREPLACE) == MAP_FAILED && errno == EEXIST);
    CHECK(map_at(memory + MIB, MIB, READ_WRITE, MAP_FIXED) == memory + MIB);
    CHECK(zero(memory + MIB, MIB));
    CHECK(whole(memory, MIB));
    CHECK(map_at(memory + 2 * MIB, MIB, PROT_NONE, MAP_FIXED) == memory + 2 * MIB);
    CHECK(!mprotect(memory + 2 * MIB, MIB, READ_WRITE));
    CHECK(zero(memory + 2 * MIB, MIB));
    CHECK(!munmap(memory, bytes));
    again = map_at(memory, bytes, READ_WRITE, MAP_FIXED_NOREPLACE);
    CHECK(again == memory);
    CHECK(zero(again, bytes));
    munmap(again, bytes);
    others_stay_away();
    puts("done");
    return 0;
}
