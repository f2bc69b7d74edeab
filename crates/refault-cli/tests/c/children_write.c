/* Forks children that see the parent's 16 MiB and write over their copy, while the parent looks at its own. Prints
 * "done". */
#include "program.h"

static int child(unsigned char *memory, int mark) {
    int good = whole(memory, 16 * MIB);
    memset(memory, mark, 16 * MIB);
    for (unsigned long offset = 0; offset < 16 * MIB; offset += PAGE) good &= memory[offset] == mark;
    return good;
}

int main(void) {
    unsigned char *memory = map(16 * MIB);
    fill(memory, 16 * MIB);
    for (int mark = 0; mark < 4; mark++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) _exit(!child(memory, mark));
        CHECK(whole(memory, 8 * MIB));
        CHECK(ended_well(pid));
        CHECK(whole(memory, 16 * MIB));
    }
    CHECK(!system("exit 0"));
    puts("done");
    return 0;
}
