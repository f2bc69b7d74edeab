/* Under a budget of 3 MiB: a child holds a mutex that others share, and robust ones in private memory, which goes out.
 * However it ends, the kernel must find them all: who waits for the shared one is told that its owner has died. The
 * argument says how it ends. Prints "done". */
#include "program.h"

#define MUTEXES 16

struct place {
    pthread_mutex_t mutex;
    char rest[PAGE - sizeof(pthread_mutex_t)];
};

static void make(pthread_mutex_t *mutex, int shared) {
    pthread_mutexattr_t kind;
    CHECK(!pthread_mutexattr_init(&kind) && !pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST));
    CHECK(!pthread_mutexattr_setpshared(&kind, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE));
    CHECK(!pthread_mutex_init(mutex, &kind));
}

static void hold_all_and_end(pthread_mutex_t *shared, const char *how) {
    struct place *places = (struct place *)map(MUTEXES * PAGE);
    CHECK(!pthread_mutex_lock(shared));
    for (int index = 0; index < MUTEXES; index++) {
        make(&places[index].mutex, 0);
        CHECK(!pthread_mutex_lock(&places[index].mutex));
    }
    unsigned char *more = map(8 * MIB);
    fill(more, 8 * MIB);
    CHECK(whole(more, 8 * MIB));
    if (!strcmp(how, "exit")) _exit(0);
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "fault")) *(volatile int *)8 = 1;
    if (!strcmp(how, "program")) execl("/bin/sh", "sh", "-c", "sleep 1", (char *)0);
    CHECK(0);
}

int main(int count, char **arguments) {
    pthread_mutex_t *shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct timespec until;
    int ready[2], status;
    make(shared, 1);
    CHECK(count == 2 && !pipe(ready));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        close(ready[0]);
        hold_all_and_end(shared, arguments[1]);
    }
    close(ready[1]);
    char byte;
    /* The end of the child, or of its program, closes the pipe: a program that follows keeps it. */
    if (strcmp(arguments[1], "program")) {
        CHECK(read(ready[0], &byte, 1) == 0);
    } else {
        CHECK(waitpid(child, &status, 0) == child);
    }
    CHECK(!clock_gettime(CLOCK_REALTIME, &until));
    until.tv_sec += 10;
    CHECK(pthread_mutex_timedlock(shared, &until) == EOWNERDEAD);
    if (strcmp(arguments[1], "program")) CHECK(waitpid(child, &status, 0) == child);
    puts("done");
    return 0;
}
