/* Forks with a library that has fork handlers (fork_handlers.c), closes it, and forks again: the handlers must have
 * been called at the first fork, and their code is gone at the second. Prints "done". */
#include "program.h"
#include <dlfcn.h>

int main(void) {
    void *library = dlopen("./library.so", RTLD_NOW);
    CHECK(library);
    int *called = dlsym(library, "called");
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(*called != 2);
    CHECK(ended_well(pid) && *called == 2);
    CHECK(!dlclose(library));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(0);
    CHECK(ended_well(pid));
    puts("done");
    return 0;
}
