/* Processes that share one budget. Argument `one`: a process that goes eight times over 24 MiB; `two`: two such at a
 * time. Otherwise the first process fills 24 MiB and then sleeps in the call that is named (waitpid, read, write, poll,
 * nanosleep, usleep, select, cond_timedwait, futex, sigtimedwait, semtimedop, epoll_pwait2), while its child goes sixty
 * times over 16 MiB; or it `computes` while its child goes over them for three seconds and writes to the file `touches`
 * how many pages it touched. Each process looks at what it wrote. Prints "done". */
#include "program.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Writes to `bytes` of memory: `passes` times, and until the clock says `until`. The number of passes, or 0 if anything
 * is not as it was written before. */
static unsigned long passes_over(unsigned long bytes, unsigned long passes, long until) {
    unsigned char *memory = map(bytes);
    CHECK(memory != MAP_FAILED);
    unsigned long pass = 0;
    while (pass < passes || milliseconds() < until) {
        pass++;
        for (unsigned long offset = 0; offset < bytes; offset += PAGE) {
            unsigned long *word = (unsigned long *)(memory + offset);
            if (word[0] != (pass > 1 ? offset + pass - 1 : 0)) return 0;
            word[0] = offset + pass;
            word[9] = offset * 77;
        }
    }
    return munmap(memory, bytes) ? 0 : pass;
}

static int work(unsigned long bytes, unsigned long passes) { return passes_over(bytes, passes, 0) == passes; }

static int work_for_seconds(unsigned long bytes, long seconds) {
    unsigned long passes = passes_over(bytes, 1, milliseconds() + seconds * 1000);
    FILE *file = fopen("touches", "w");
    CHECK(file && fprintf(file, "%lu\n", passes * (bytes / PAGE)) > 0 && !fclose(file));
    return passes > 0;
}

static pid_t worker(unsigned long bytes, unsigned long passes) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(!work(bytes, passes));
    return pid;
}

static void wait_for_condition(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 900000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&mutex);
    CHECK(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT);
}

/* Sleeps for 900 ms in the call that is named; false if it is none. Nothing ever comes from the descriptor. */
static int sleeps_in(const char *call, int never) {
    struct pollfd poll_for = {.fd = never, .events = POLLIN};
    struct timespec for_nanosleep = {0, 900000000};
    struct timeval for_select = {0, 900000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(never, &set);
    if (!strcmp(call, "poll")) {
        CHECK(poll(&poll_for, 1, 900) == 0);
    } else if (!strcmp(call, "nanosleep")) {
        CHECK(!nanosleep(&for_nanosleep, 0));
    } else if (!strcmp(call, "usleep")) {
        CHECK(!usleep(900000));
    } else if (!strcmp(call, "select")) {
        CHECK(select(never + 1, &set, 0, 0, &for_select) == 0);
    } else if (!strcmp(call, "cond_timedwait")) {
        wait_for_condition();
    } else if (!strcmp(call, "futex")) {
        int word = 0, wait = 128;
        CHECK(syscall(SYS_futex, &word, wait, 0, &for_nanosleep, 0, 0) < 0 && errno == ETIMEDOUT);
    } else if (!strcmp(call, "sigtimedwait")) {
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGUSR1);
        CHECK(!sigprocmask(SIG_BLOCK, &signals, 0));
        CHECK(sigtimedwait(&signals, 0, &for_nanosleep) < 0 && errno == EAGAIN);
    } else if (!strcmp(call, "semtimedop")) {
        int semaphore = semget(IPC_PRIVATE, 1, 0600);
        struct sembuf down = {0, -1, 0};
        CHECK(semtimedop(semaphore, &down, 1, &for_nanosleep) < 0 && errno == EAGAIN);
        CHECK(!semctl(semaphore, 0, IPC_RMID));
    } else if (!strcmp(call, "epoll_pwait2")) {
        struct epoll_event event = {.events = EPOLLIN};
        int events = epoll_create1(0);
        CHECK(!epoll_ctl(events, EPOLL_CTL_ADD, never, &event));
        CHECK(syscall(SYS_epoll_pwait2, events, &event, 1, &for_nanosleep, 0, 8) == 0);
    } else {
        return 0;
    }
    return 1;
}

static void give_way(const char *how) {
    int ends[2], never[2];
    CHECK(!pipe(ends) && !pipe(never));
    volatile int *ended = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned char *memory = map(24 * MIB);
    for (unsigned long offset = 0; offset < 24 * MIB; offset += PAGE) *(unsigned long *)(memory + offset) = offset + 5;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        munmap(memory, 24 * MIB);
        int good = strcmp(how, "computes") ? work(16 * MIB, 60) : work_for_seconds(16 * MIB, 3);
        if (!strcmp(how, "write")) {
            static char part[200 << 10];
            for (long left = sizeof part; left > 0;) {
                long there = read(ends[0], part, left);
                CHECK(there > 0);
                left -= there;
            }
        }
        CHECK(write(ends[1], "x", 1) == 1);
        *ended = 1;
        _exit(!good);
    }
    long begun = milliseconds();
    if (!strcmp(how, "read")) {
        char byte;
        CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x');
    } else if (!strcmp(how, "write")) {
        CHECK(write(ends[1], memory, 200 << 10) == 200 << 10);
    } else if (!strcmp(how, "computes")) {
        volatile unsigned long sum = 0;
        while (!*ended) sum += *ended + 1;
    } else if (strcmp(how, "waitpid")) {
        CHECK(sleeps_in(how, never[0]));
        long slept = milliseconds() - begun;
        CHECK(slept >= 899 && slept < 1800);
    }
    CHECK(ended_well(child));
    for (unsigned long offset = 0; offset < 24 * MIB; offset += PAGE)
        CHECK(*(unsigned long *)(memory + offset) == offset + 5);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (!strcmp(arguments[1], "one")) {
        CHECK(work(24 * MIB, 8));
    } else if (!strcmp(arguments[1], "two")) {
        pid_t first = worker(24 * MIB, 8), second = worker(24 * MIB, 8);
        CHECK(ended_well(first));
        CHECK(ended_well(second));
    } else {
        give_way(arguments[1]);
    }
    puts("done");
    return 0;
}
