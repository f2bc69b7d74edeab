/* One thread forks children that start a thread themselves, while threads come and go all the time, so that one of
 * them holds libc's lists of threads at some fork. Prints "done". */
#include "program.h"

static volatile int over;
static volatile long forks;

static void *nothing(void *argument) {
    return argument;
}

/* Whether a thread can be created and returns what it was given. */
static int has_threads(void) {
    pthread_t thread;
    void *end;
    return !pthread_create(&thread, 0, nothing, &thread) && !pthread_join(thread, &end) && end == &thread;
}

static void *forks_on(void *argument) {
    while (!over) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) _exit(!has_threads());
        CHECK(ended_well(pid));
        forks++;
        usleep(1000);
    }
    return 0;
}

int main(void) {
    unsigned char *memory = map(8 * MIB);
    fill(memory, 8 * MIB);
    pthread_t forker, threads[2];
    CHECK(!pthread_create(&forker, 0, forks_on, 0));
    for (int round = 0; round < 20000 && forks < 300; round++) {
        for (int at = 0; at < 2; at++) CHECK(!pthread_create(threads + at, 0, nothing, 0));
        for (int at = 0; at < 2; at++) CHECK(!pthread_join(threads[at], 0));
        usleep(100);
    }
    over = 1;
    CHECK(!pthread_join(forker, 0));
    CHECK(forks >= 20);
    CHECK(whole(memory, 8 * MIB));
    puts("done");
    return 0;
}
