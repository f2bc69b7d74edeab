/* Memory that was to become executable together with addresses before it where nothing is: the kernel refuses that, and
 * the memory is what it was, one mapping that can grow and move as a whole. Prints "done". */
#include "program.h"

int main(void) {
    unsigned char *window = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(window != MAP_FAILED && !munmap(window, 16 * PAGE));
    unsigned char *memory = window + 16 * PAGE;
    fill(memory, 48 * PAGE);
    CHECK(mprotect(window, 24 * PAGE, PROT_READ | PROT_EXEC) == -1 && errno == ENOMEM);
    CHECK(mprotect(memory + 1, 8 * PAGE, PROT_READ | PROT_EXEC) == -1 && errno == EINVAL);
    memory[0] = memory[0];
    memory = mremap(memory, 48 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED);
    CHECK(whole(memory, 48 * PAGE) && zero(memory + 48 * PAGE, 16 * PAGE));
    /* Before a hole it does change. */
    CHECK(!munmap(memory + 32 * PAGE, 32 * PAGE));
    CHECK(mprotect(memory, 64 * PAGE, PROT_READ | PROT_EXEC) == -1 && errno == ENOMEM);
    CHECK(whole(memory, 32 * PAGE));
    CHECK(!mprotect(memory, PAGE, PROT_READ | PROT_WRITE));
    memcpy(memory, "\xb8\x07\x00\x00\x00\xc3", 6);
    CHECK(!mprotect(memory, PAGE, PROT_READ | PROT_EXEC));
    CHECK(((int (*)(void))memory)() == 7);
    puts("done");
}
