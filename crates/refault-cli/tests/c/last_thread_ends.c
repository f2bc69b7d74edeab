/* A child and then the program itself end when their last thread returns, which is not the first one. Prints "done"
 * from a function that is called at the end. */
#include "program.h"

static void say_done(void) {
    puts("done");
}

static void *last(void *argument) {
    usleep(100000);
    return 0;
}

static void end_with_another_thread(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, 0, last, 0));
    pthread_exit(0);
}

int main(void) {
    unsigned char *memory = map(8 * MIB);
    fill(memory, 8 * MIB);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) end_with_another_thread();
    CHECK(ended_well(pid));
    atexit(say_done);
    end_with_another_thread();
}
