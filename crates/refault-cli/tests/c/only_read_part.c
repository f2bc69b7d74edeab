/* Goes round 16 MiB whose first part may not be written to: the kernel does not move it. Arguments: quarters of a MiB
 * of that part, and where it begins in MiB. Prints "done". */
#include "program.h"

int main(int count, char **arguments) {
    CHECK(count == 3);
    const unsigned long bytes = 16 * MIB;
    const unsigned long part = strtoul(arguments[1], 0, 10) * (MIB / 4), at = strtoul(arguments[2], 0, 10) * MIB;
    unsigned char *memory = map(bytes);
    CHECK(memory != MAP_FAILED);
    fill(memory, bytes);
    CHECK(!mprotect(memory + at, part, PROT_READ));
    for (int pass = 0; pass < 12; pass++) CHECK(whole(memory, bytes));
    /* It may again: it goes like the rest. */
    CHECK(!mprotect(memory + at, part, PROT_READ | PROT_WRITE));
    for (int pass = 0; pass < 12; pass++) CHECK(whole(memory, bytes));
    puts("done");
    return 0;
}
