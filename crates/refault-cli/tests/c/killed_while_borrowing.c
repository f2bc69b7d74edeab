/* Children that share this memory (CLONE_VM) are killed while they use more of it than fits. Prints "done" if none was
 * killed while it had what this process needs. */
#include "program.h"
#include <sched.h>

#define BYTES (6 * MIB)
#define STACK (1 * MIB)

static unsigned char *memory;

static int uses_it(void *nothing) {
    for (;;)
        for (unsigned long at = 0; at < BYTES; at += PAGE) memory[at]++;
}

int main(void) {
    memory = map(BYTES);
    unsigned char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    unsigned char *own = map(64 * PAGE);
    fill(own, 64 * PAGE);
    for (unsigned round = 0, seed = 3; round < 300; round++) {
        pid_t child = clone(uses_it, stack + STACK, CLONE_VM | SIGCHLD, 0);
        CHECK(child > 0);
        seed = seed * 1103515245 + 12345;
        usleep(500 + (seed >> 8) % 5000);
        int status;
        CHECK(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
        CHECK(whole(own, 64 * PAGE));
        for (unsigned long at = 0; at < BYTES; at += 16 * PAGE) memory[at]++;
    }
    puts("done");
    return 0;
}
