/* Reads memory that was never written to and forks, where the child can open no file of /proc: no descriptor is left.
 * Prints "done". */
#include "program.h"
#include <sys/resource.h>

#define PAGES 64ul

int main(void) {
    struct rlimit few;
    CHECK(!getrlimit(RLIMIT_NOFILE, &few));
    few.rlim_cur = 3;
    CHECK(!setrlimit(RLIMIT_NOFILE, &few));
    unsigned char *memory = map(PAGES * PAGE);
    CHECK(zero(memory, PAGES * PAGE));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(zero(memory, PAGES * PAGE));
        fill(memory, PAGES * PAGE);
        _exit(!whole(memory, PAGES * PAGE));
    }
    CHECK(ended_well(child));
    CHECK(zero(memory, PAGES * PAGE));
    puts("done");
    return 0;
}
