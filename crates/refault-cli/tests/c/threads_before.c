/* A thread that a library's constructor has started uses memory that is out as every other does: it touches it, reads a
 * file into it, discards part of it. With UNREACHABLE it has all signals blocked. Beside it are threads that start and
 * end others all the time, that have an alternate stack, and that wait for a time: none hears of a signal. */
#include "program.h"
#include <dlfcn.h>
#include <poll.h>

struct work {
    unsigned char *volatile memory;
    volatile int asked, done;
    int file;
    volatile long failed;
};

#ifdef LIBRARY
struct work work;

static void *works(void *unused) {
    while (!work.asked) usleep(1000);
    unsigned char *memory = work.memory;
    if (!whole(memory, 8 * MIB)) work.failed = 1;
    work.done = 1;
    while (work.asked < 2) usleep(1000);
    /* Into a page that nothing has touched since it went out. */
    if (read(work.file, memory + 6 * MIB - 3, 8) != 8 || memcmp(memory + 6 * MIB - 3, "contents", 8)) work.failed = 2;
    if (madvise(memory, MIB, MADV_DONTNEED) || !zero(memory, MIB)) work.failed = 3;
    if (munmap(memory + MIB, MIB) || mmap(memory + MIB, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != memory + MIB || !zero(memory + MIB, MIB)) work.failed = 4;
    work.done = 2;
    while (work.asked < 3) usleep(1000);
    return 0;
}

static void *ends(void *unused) { return 0; }

static void *starts(void *unused) {
    while (work.asked < 3) {
        pthread_t thread;
        if (pthread_create(&thread, 0, ends, 0) || pthread_join(thread, 0)) work.failed = 5;
    }
    return 0;
}

static void *has_a_stack(void *unused) {
    stack_t stack = {map(64 << 10), 0, 64 << 10}, seen;
    sigaltstack(&stack, 0);
    while (work.asked < 3) {
        usleep(1000);
        if (sigaltstack(0, &seen) || seen.ss_sp != stack.ss_sp || seen.ss_size != stack.ss_size) work.failed = 6;
    }
    return 0;
}

static void *waits(void *unused) {
    struct timespec wanted = {0, 300000000};
    if (nanosleep(&wanted, 0) || poll(0, 0, 300)) work.failed = 7;
    while (work.asked < 3) usleep(1000);
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    sigset_t all, before;
    sigfillset(&all);
#ifdef UNREACHABLE
    sigprocmask(SIG_BLOCK, &all, &before);
#endif
    pthread_t thread;
    void *(*const bodies[])(void *) = {works, starts, starts, has_a_stack, waits};
    for (int i = 0; i < 5; i++) pthread_create(&thread, 0, bodies[i], 0);
    usleep(20000);
#ifdef UNREACHABLE
    sigprocmask(SIG_SETMASK, &before, 0);
#endif
}
#else
int main(void) {
    struct work *work = dlsym(RTLD_DEFAULT, "work");
    CHECK(work);
    unsigned char *others = map(24 * MIB);
    work->memory = map(8 * MIB);
    int ends[2];
    CHECK(pipe(ends) == 0);
    work->file = ends[0];
    CHECK(write(ends[1], "contents", 8) == 8);
    fill(work->memory, 8 * MIB);
    for (int step = 1; step <= 2; step++) {
        fill(others, 24 * MIB);
        CHECK(whole(others, 24 * MIB));
        work->asked = step;
        while (work->done < step) usleep(1000);
        CHECK(work->failed == 0);
    }
    CHECK(zero(work->memory, 2 * MIB) && !memcmp(work->memory + 6 * MIB - 3, "contents", 8));
    for (unsigned long offset = 2 * MIB; offset < 5 * MIB; offset += 8)
        CHECK(*(unsigned long *)(work->memory + offset) == pattern(offset));
    CHECK(whole(others, 24 * MIB));
    work->asked = 3;
    puts("done");
}
#endif
