/* Has its children begin in a namespace of process numbers of their own, without executing anything. A child of the first
 * of them writes to 24 MiB there and has them for two thirds of a second. Prints "done". */
#include "program.h"
#include <sched.h>

/* What a forked child does; ends when it has ended. */
static void in_child(void (*run)(void)) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        run();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void writes(void) {
    unsigned char *memory = map(24 * MIB);
    CHECK(getpid() == 2);
    fill(memory, 24 * MIB);
    usleep(700000);
}

static void forks(void) {
    CHECK(getpid() == 1);
    in_child(writes);
}

int main(void) {
    /* The program's number is known before it says where its children are to be. */
    CHECK(getpid() > 2);
    CHECK(!unshare(CLONE_NEWUSER | CLONE_NEWPID));
    in_child(forks);
    puts("done");
    return 0;
}
