/* Memory of other processes, read and written through the kernel: a child's, a parent's, a grandchild's, a thread's. */
#include "probe.h"
#include <poll.h>
#include <sys/uio.h>

static const unsigned long bytes = 4 * MIB;
static int ready[2], go[2];
static volatile int *shared;

/* Memory with nothing behind it. */
static unsigned char *map_apart(unsigned long n) {
    unsigned char *p = map(n + PAGE);
    mprotect(p + n, PAGE, PROT_NONE);
    return p;
}

static void *runs(void *number) { *(int *)number = syscall(SYS_gettid); for (;;) pause(); return 0; }

/* What a child does while it is looked at. */
static void waits_in(const char *how) {
    char byte;
    struct pollfd poll_for = {.fd = go[0], .events = POLLIN};
    if (!strcmp(how, "reads")) { while (read(go[0], &byte, 1) < 0); }
    else if (!strcmp(how, "polls")) { poll(&poll_for, 1, -1); }
    else if (!strcmp(how, "sleeps")) { struct timespec t = {600, 0}; printf("slept %d\n", nanosleep(&t, 0)); }
    else if (!strcmp(how, "computes")) { while (!shared[0]) shared[2]++; }
    else if (!strcmp(how, "touches")) { unsigned char *more = map(16 * MIB); while (!shared[0]) fill(more, 16 * MIB); }
    else if (!strcmp(how, "waits")) { int status; pid_t c = fork(); if (!c) { pause(); _exit(0); } shared[3] = c; waitpid(c, &status, 0); }
}

static long words_changed(const unsigned char *got, unsigned long from, unsigned long n) {
    long bad = 0;
    for (unsigned long i = 0; i < n / 8; i++) {
        unsigned long at = from / 8 + i;
        bad += ((unsigned long *)got)[i] != (at % 512 < 256 ? pattern(at) : at / 512);
    }
    return bad;
}

static void by_vectors(pid_t who, unsigned char *there) {
    unsigned char *got = map(bytes);
    struct iovec one = {got, bytes}, whole = {there, bytes};
    long n = process_vm_readv(who, &one, 1, &whole, 1, 0);
    printf("readv %ld, changed %ld\n", n, words_changed(got, 0, bytes));
    /* Bounds that lie in the middle of pages, and differ. */
    memset(got, 0, bytes);
    struct iovec parts[3] = {{got, 5000}, {got + 5000, 100000}, {got + 105000, bytes - 105000}};
    struct iovec others[2] = {{there, 77777}, {there + 77777, bytes - 77777}};
    n = process_vm_readv(who, parts, 3, others, 2, 0);
    printf("in parts %ld, changed %ld\n", n, words_changed(got, 0, bytes));
    struct iovec beyond = {there + bytes - PAGE, 2 * PAGE}, to = {got, 2 * PAGE};
    printf("beyond its end %ld\n", process_vm_readv(who, &to, 1, &beyond, 1, 0));
    struct iovec nowhere = {(void *)PAGE, PAGE};
    n = process_vm_readv(who, &to, 1, &nowhere, 1, 0);
    printf("nowhere %ld %s\n", n, strerror(errno));
    for (unsigned long i = 0; i < MIB; i++) got[i] = i * 7 >> 3;
    struct iovec from = {got, MIB}, at = {there + MIB + 3, MIB};
    printf("writev %ld\n", process_vm_writev(who, &from, 1, &at, 1, 0));
}

static void by_file(pid_t who, unsigned char *there) {
    char path[64];
    unsigned char *got = map(bytes);
    snprintf(path, sizeof path, "/proc/%d/mem", who);
    int f = open(path, O_RDWR);
    if (f < 0) { perror("open"); return; }
    long n = pread(f, got, bytes, (off_t)there);
    printf("pread %ld, changed %ld\n", n, words_changed(got, 0, bytes));
    memset(got, 0, bytes);
    lseek(f, (off_t)there + 2 * MIB, SEEK_SET);
    long all = 0;
    while (all < (long)MIB && (n = read(f, got + all, 60000)) > 0) all += n;
    printf("reads %d, changed %ld\n", all >= (long)MIB, words_changed(got, 2 * MIB, MIB));
    for (unsigned long i = 0; i < MIB; i++) got[i] = i * 7 >> 3;
    struct iovec parts[2] = {{got, 333}, {got + 333, MIB - 333}};
    printf("pwritev %ld\n", pwritev(f, parts, 2, (off_t)there + MIB + 3));
    close(f);
}

/* Whether a child has what was written to it, and else what it had. */
static int has_what_was_written(unsigned char *p) {
    long bad = 0;
    for (unsigned long i = 0; i < MIB; i++) bad += p[MIB + 3 + i] != (unsigned char)(i * 7 >> 3);
    memset(p + MIB, 0, MIB + PAGE);
    bad += words_changed(p, 0, MIB) + words_changed(p + 2 * MIB + PAGE, 2 * MIB + PAGE, 2 * MIB - PAGE);
    return bad != 0;
}

static void looks_at_a_child(const char *how, void (*look)(pid_t, unsigned char *)) {
    char byte;
    shared[0] = 0;
    pid_t c = fork();
    if (!c) {
        unsigned char *p = map_apart(bytes);
        fill(p, bytes);
        *(unsigned char *volatile *)(shared + 4) = p;
        push_out(p, bytes);
        if (write(ready[1], "r", 1) != 1) _exit(2);
        waits_in(how);
        while (!shared[0]) usleep(1000);
        _exit(has_what_was_written(p));
    }
    if (read(ready[0], &byte, 1) != 1) exit(91);
    usleep(20000);
    look(c, *(unsigned char *volatile *)(shared + 4));
    shared[0] = 1;
    if (!strcmp(how, "waits")) kill(shared[3], SIGKILL);
    if (!strcmp(how, "sleeps")) kill(c, SIGKILL);
    else if (write(go[1], "g", 1) != 1) exit(92);
    int status;
    waitpid(c, &status, 0);
    printf("%s: status %#x\n", how, status);
    if (!strcmp(how, "computes") || !strcmp(how, "touches") || !strcmp(how, "waits")) { if (read(go[0], &byte, 1) != 1) exit(93); }
}

int main(int n, char **v) {
    const char *mode = n > 1 ? v[1] : "";
    setvbuf(stdout, 0, _IONBF, 0);
    if (pipe(ready) || pipe(go)) return 90;
    shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MODE("vectors") { for (char **how = (char *[]){"reads", "polls", "computes", "touches", "waits", "sleeps", 0}; *how; how++) looks_at_a_child(*how, by_vectors); }
    MODE("files") { for (char **how = (char *[]){"reads", "polls", "computes", "touches", "waits", "sleeps", 0}; *how; how++) looks_at_a_child(*how, by_file); }
    MODE("parent") {
        /* A child reads its parent, and both read each other at once. */
        unsigned char *p = map(bytes);
        fill(p, bytes);
        pid_t own = getpid();
        pid_t c = fork();
        if (!c) {
            push_out(p, bytes);
            long bad = 0;
            unsigned char *got = map(bytes);
            for (int round = 0; round < 4; round++) {
                struct iovec here = {got, bytes}, there = {p, bytes};
                bad += process_vm_readv(own, &here, 1, &there, 1, 0) != (long)bytes;
                bad += words_changed(got, 0, bytes) != 0;
            }
            char byte;
            if (read(go[0], &byte, 1) != 1) _exit(2);
            _exit(bad != 0);
        }
        push_out(p, bytes);
        long bad = 0;
        unsigned char *got = map(bytes);
        for (int round = 0; round < 4; round++) {
            struct iovec here = {got, bytes}, there = {p, bytes};
            bad += process_vm_readv(c, &here, 1, &there, 1, 0) != (long)bytes;
            bad += words_changed(got, 0, bytes) != 0;
        }
        if (write(go[1], "g", 1) != 1) return 92;
        int status;
        waitpid(c, &status, 0);
        printf("parent %ld, child's status %#x, changed %ld\n", bad, status, changed(p, bytes));
    }
    MODE("thread") {
        /* By the number of a thread that is not the first. */
        pid_t c = fork();
        if (!c) {
            pthread_t t;
            unsigned char *p = map_apart(bytes);
            fill(p, bytes);
            *(unsigned char *volatile *)(shared + 4) = p;
            pthread_create(&t, 0, runs, (void *)(shared + 8));
            push_out(p, bytes);
            while (!shared[8]) usleep(1000);
            if (write(ready[1], "r", 1) != 1) _exit(2);
            for (;;) pause();
        }
        char byte;
        if (read(ready[0], &byte, 1) != 1) return 91;
        by_vectors(shared[8], *(unsigned char *volatile *)(shared + 4));
        kill(c, SIGKILL);
        waitpid(c, 0, 0);
    }
    return 0;
}
