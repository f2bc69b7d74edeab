/* Under a budget of 3 MiB: every descriptor that the process may have is in use when it forks. Prints "done". */
#include "program.h"

int main(void) {
    unsigned char *memory = map(6 * MIB);
    int status;
    fill(memory, 6 * MIB);
    while (dup(1) >= 0) {}
    CHECK(errno == EMFILE);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) _exit(!whole(memory, 6 * MIB));
    CHECK(waitpid(child, &status, 0) == child && !status);
    puts("done");
    return 0;
}
