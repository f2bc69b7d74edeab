/* A child that shares all memory with its parent, as posix_spawn makes one, reads 16 MiB that another thread of the
 * parent fills meanwhile. Prints "done". */
#include "program.h"
#include <sched.h>

static unsigned char stack[1 << 16] __attribute__((aligned(16))), *memory;
static volatile int begun, filled, good;

static int child(void *argument) {
    begun = 1;
    while (!filled) usleep(1000);
    good = whole(memory, 16 * MIB);
    return 0;
}

static void *fills(void *argument) {
    while (!begun) usleep(1000);
    fill(memory, 16 * MIB);
    filled = 1;
    return 0;
}

int main(void) {
    memory = map(16 * MIB);
    pthread_t thread;
    CHECK(!pthread_create(&thread, 0, fills, 0));
    pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
    CHECK(pid > 0);
    CHECK(ended_well(pid));
    CHECK(!pthread_join(thread, 0));
    CHECK(good);
    CHECK(whole(memory, 16 * MIB));
    puts("done");
    return 0;
}
