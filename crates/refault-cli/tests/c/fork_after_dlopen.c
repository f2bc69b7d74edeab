/* Opens a library with thread-local variables, whose records the dynamic linker reads when a thread is created, and
 * then forks children that look at 16 MiB. Prints "done". */
#include "program.h"
#include <dlfcn.h>

int main(void) {
    CHECK(dlopen("libstdc++.so.6", RTLD_NOW));
    unsigned char *memory = map(16 * MIB);
    for (int round = 0; round < 5; round++) {
        fill(memory, 16 * MIB);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) _exit(!whole(memory, 16 * MIB));
        CHECK(ended_well(pid));
    }
    puts("done");
    return 0;
}
