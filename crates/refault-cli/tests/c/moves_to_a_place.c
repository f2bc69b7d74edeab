/* Moves memory by mremap to a given place and away from one that stays mapped, and asks for moves that must be
 * refused. Prints "done". */
#include "program.h"

int main(void) {
    unsigned long bytes = 2 * MIB;
    unsigned char *memory = map(bytes), *place = map(2 * bytes), *moved;
    fill(memory, bytes);
    memset(place, 9, 2 * bytes);
    CHECK(mremap(memory, bytes, 2 * bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    CHECK(whole(place, bytes));
    CHECK(zero(place + bytes, bytes));

    moved = mremap(place, 2 * bytes, 2 * bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    CHECK(moved != MAP_FAILED && moved != place);
    CHECK(whole(moved, bytes));
    CHECK(zero(place, 2 * bytes));
    fill(place, 2 * bytes);
    CHECK(whole(moved, bytes));

    CHECK(mremap(moved, 2 * bytes, bytes, MREMAP_FIXED, place) == MAP_FAILED && errno == EINVAL);
    int fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
    CHECK(mremap(moved, 2 * bytes, bytes, fixed, moved + bytes) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(moved, 2 * bytes, bytes, fixed, place) == place);
    CHECK(whole(place, bytes));
    munmap(place + bytes, bytes);
    CHECK(mremap(place, 2 * bytes, 3 * bytes, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    CHECK(whole(place, bytes));

    unsigned char *more = map(8 * MIB);
    fill(more, 8 * MIB);
    CHECK(whole(place, bytes) && whole(more, 8 * MIB));
    puts("done");
    return 0;
}
