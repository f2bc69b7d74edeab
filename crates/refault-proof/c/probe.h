/* What the probes share: managed memory, pushing it out, faults that are caught. Each probe prints the same with and
 * without the tool, unless the tool gets something wrong; nothing that varies from run to run is printed. */
#ifndef PROBE_H
#define PROBE_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB (1ul << 10)
#define MIB (1ul << 20)
#define PAGE 4096ul

static inline unsigned char *map(unsigned long n) {
    void *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) { perror("mmap"); exit(90); }
    return p;
}
static inline unsigned long pattern(unsigned long place) { return (place + 1) * 0x9e3779b97f4a7c15ul ^ place >> 3; }
/* Half of each page can be compressed. */
static inline void fill(unsigned char *p, unsigned long n) {
    for (unsigned long i = 0; i < n / 8; i++) ((unsigned long *)p)[i] = i % 512 < 256 ? pattern(i) : i / 512;
}
/* Words that do not hold what fill() wrote. */
static inline long changed(unsigned char *p, unsigned long n) {
    long bad = 0;
    for (unsigned long i = 0; i < n / 8; i++) bad += ((unsigned long *)p)[i] != (i % 512 < 256 ? pattern(i) : i / 512);
    return bad;
}
/* Pushes memory out: by request, and by touching twice as much as a probe's budget, twice. */
static unsigned char *pushes;
static inline void push_out(void *p, unsigned long n) {
    unsigned long start = (unsigned long)p & -PAGE;
    madvise((void *)start, ((unsigned long)p + n - start + PAGE - 1) & -PAGE, MADV_PAGEOUT);
    if (!pushes) pushes = map(32 * MIB);
    for (int round = 0; round < 2; round++) fill(pushes, 12 * MIB);
}

/* A fault that an access raises, or 0. One thread at a time. */
static sigjmp_buf before_access;
static volatile sig_atomic_t expected;
static inline void on_fault(int s) {
    if (!expected) { signal(s, SIG_DFL); return; }
    siglongjmp(before_access, s);
}
static inline int fault_of(volatile unsigned char *p, int writes) {
    struct sigaction a = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &a, 0); sigaction(SIGBUS, &a, 0);
    int s = sigsetjmp(before_access, 1);
    if (!s) { expected = 1; if (writes) *p = 42; else (void)*p; }
    expected = 0;
    return s;
}
#define MODE(name) if (!strcmp(mode, name))
#endif
