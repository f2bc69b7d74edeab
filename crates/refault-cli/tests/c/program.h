/* What the tests' C programs share: private memory, a pattern in it, and checks that end the program in words. */
#ifndef PROGRAM_H
#define PROGRAM_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define PAGE 4096ul

/* Ends the program with the condition and the system's error if it is false. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s is false: %s\n", #condition, strerror(errno));                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline unsigned char *map(unsigned long bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* What fill() writes at this offset. It does not compress. */
static inline unsigned long pattern(unsigned long offset) {
    return offset * 0x9e3779b97f4a7c15ul + 1;
}

static inline void fill(unsigned char *memory, unsigned long bytes) {
    for (unsigned long offset = 0; offset < bytes; offset += 8) *(unsigned long *)(memory + offset) = pattern(offset);
}

/* Whether memory holds what fill() wrote. */
static inline int whole(unsigned char *memory, unsigned long bytes) {
    for (unsigned long offset = 0; offset < bytes; offset += 8)
        if (*(unsigned long *)(memory + offset) != pattern(offset)) return 0;
    return 1;
}

static inline int zero(unsigned char *memory, unsigned long bytes) {
    for (unsigned long offset = 0; offset < bytes; offset += 8)
        if (*(unsigned long *)(memory + offset)) return 0;
    return 1;
}

/* A child that queues the tree's request for memory, whose value this is, to the thread that makes it, again and again. */
static inline pid_t asker(unsigned long value) {
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid) return pid;
    siginfo_t info = {.si_signo = SIGSYS, .si_code = SI_QUEUE};
    info.si_value.sival_ptr = (void *)value;
    while (!syscall(SYS_rt_tgsigqueueinfo, parent, parent, SIGSYS, &info)) usleep(300);
    _exit(0);
}

/* Waits for a child; whether it ended with exit code 0. */
static inline int ended_well(pid_t child) {
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0;
}

/* Sends a SIGALRM every `microseconds`, the first after the same time; none any more if 0. */
static inline int interrupt_every(unsigned microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    return setitimer(ITIMER_REAL, &timer, 0);
}
#endif
