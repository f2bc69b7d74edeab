/* Makes 16 MiB of evicted memory executable and runs code there, then has all memory executable by the process's
 * personality; other 16 MiB are looked at after each. It sleeps before it ends, so that statistics are taken. Prints
 * "done". */
#include "program.h"
#include <sys/personality.h>

/* Whether a function of these bytes, written to the memory, returns what is expected: mov eax, N; ret. */
static int runs(unsigned char *memory, const char *code, int expected) {
    memcpy(memory, code, 6);
    return ((int (*)(void))memory)() == expected;
}

int main(void) {
    unsigned char *code = map(16 * MIB), *data = map(16 * MIB);
    fill(code, 16 * MIB);
    fill(data, 16 * MIB);
    CHECK(!mprotect(code, 16 * MIB, PROT_READ | PROT_WRITE | PROT_EXEC));
    CHECK(whole(code, 16 * MIB));
    CHECK(runs(code, "\xb8\x2a\0\0\0\xc3", 42));
    for (int round = 0; round < 3; round++) CHECK(whole(data, 16 * MIB));

    CHECK(!mprotect(code, 16 * MIB, PROT_READ | PROT_WRITE));
    for (unsigned long offset = PAGE; offset < 16 * MIB; offset += 8)
        CHECK(*(unsigned long *)(code + offset) == pattern(offset));
    CHECK(personality(PER_LINUX | READ_IMPLIES_EXEC) >= 0);
    unsigned char *more = map(8 * MIB), *heap = sbrk(8 * MIB);
    memset(more, 7, 8 * MIB);
    memset(heap, 7, 8 * MIB);
    CHECK(runs(heap, "\xb8\x2b\0\0\0\xc3", 43));
    for (int round = 0; round < 3; round++) CHECK(whole(data, 16 * MIB));
    usleep(1500000);
    puts("done");
    return 0;
}
