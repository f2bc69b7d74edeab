/* Memory of the program's own with a hole in it: whatever the tool maps for itself meanwhile is not there, so that to unmap
 * the whole, to map over it, or to give its contents up takes nothing of the tool's. Prints "done". */
#include "program.h"

#define WINDOW (512 * MIB)
#define HOLE (128 * MIB)
#define USED (48 * MIB)

static unsigned char *reserve(void) {
    unsigned char *window = mmap(0, WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(window != MAP_FAILED);
    return window;
}

static void use(unsigned char *at, unsigned long bytes) {
    CHECK(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    fill(at, bytes);
    CHECK(whole(at, bytes));
}

int main(void) {
    for (int turn = 0; turn < 3; turn++) {
        unsigned char *window = reserve(), *hole = window + WINDOW - HOLE - MIB;
        CHECK(!munmap(hole, HOLE));
        /* The tool's tables grow with what is used. */
        use(window, USED << turn);
        if (turn == 0) {
            use(hole + HOLE / 2, MIB);
        } else if (turn == 1) {
            CHECK(mmap(hole, HOLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == hole);
        }
        CHECK(whole(window, USED << turn));
        CHECK(!munmap(window, WINDOW));
        /* And go on. */
        unsigned char *more = map(8 * MIB);
        fill(more, 8 * MIB);
        CHECK(whole(more, 8 * MIB));
    }
    puts("done");
}
