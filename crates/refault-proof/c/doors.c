/* Memory, children and calls by other doors than the usual ones. */
#include "probe.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

static const char *mode;
struct clone_args { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup, more[2]; };
#define CLEAR_SIGHAND 0x100000000ull
#define SELF_THREAD -10000
#define SELF_GROUP -10001

static void handler(int s) { (void)s; }
static volatile int said;
/* What a child finds of its parent's actions. */
static void *finds(void *unused) {
    struct sigaction a; int bits = 0, signals[] = {SIGUSR1, SIGUSR2, SIGSEGV, SIGSYS, SIGBUS, SIGCHLD, SIGPIPE};
    for (int i = 0; i < 7; i++) { sigaction(signals[i], 0, &a); bits = bits * 3 + (a.sa_handler == SIG_IGN ? 1 : a.sa_handler == SIG_DFL ? 0 : 2); }
    said = bits; return unused;
}
static void tell(const char *what, long pid) {
    int status = -1;
    if (pid > 0) waitpid(pid, &status, __WALL);
    printf("%s: %s, ended %x, actions %d\n", what, pid < 0 ? strerror(-pid) : "made", pid > 0 ? status : 0, said);
}
/* A child by clone3: made on a stack of its own if it shares memory. */
static long child_by(uint64_t flags, size_t bytes, uint64_t signal, char *stack, uint64_t stack_bytes, uint64_t further) {
    struct clone_args a = {.flags = flags, .exit_signal = signal, .stack = (uint64_t)stack, .stack_size = stack_bytes, .more = {further}};
    long pid;
    __asm__ volatile("syscall\n\ttest %0, %0\n\tjnz 1f\n\txor %%edi, %%edi\n\tcall *%4\n\tmov $7, %%edi\n\tmov $231, %%eax\n\tsyscall\n\t1:"
        : "=a"(pid) : "a"(SYS_clone3), "D"(&a), "S"(bytes), "r"((void *(*)(void *))finds) : "rcx", "r11", "rdx", "r8", "r9", "r10", "memory", "cc");
    return pid;
}
static char *stack_of(unsigned long n) { return (char *)map(n); }

/* A file of this memory: reads and writes what is out through it, in every way that there is. */
static void through(const char *what, int fd) {
    unsigned long n = 2 * MIB; unsigned char *p = map(n), *q = map(n), *copy = map(n);
    fill(p, n); fill(q, n); push_out(p, n); push_out(q, n);
    long r = pread(fd, copy, n, (off_t)p); printf("%s: pread %ld same %ld", what, r, changed(copy, n));
    memset(copy, 0, n); lseek(fd, (off_t)p, SEEK_SET); r = read(fd, copy, n); printf(", read %ld same %ld at %d", r, changed(copy, n), lseek(fd, 0, SEEK_CUR) == (off_t)p + (off_t)n);
    push_out(p, n); memset(copy, 0, n); struct iovec parts[] = {{copy, 5000}, {copy + 5000, 0}, {copy + 5000, n - 5000}};
    r = preadv(fd, parts, 3, (off_t)p); printf(", preadv %ld same %ld", r, changed(copy, n));
    push_out(p, n); memset(copy, 0, n); r = preadv2(fd, parts, 3, (off_t)p, 0); printf(", preadv2 %ld same %ld", r, changed(copy, n));
    push_out(p, n); memset(copy, 0, n); lseek(fd, (off_t)p, SEEK_SET); r = readv(fd, parts, 3); printf(", readv %ld same %ld\n", r, changed(copy, n));
    memset(q, 1, n); push_out(q, n); r = pwrite(fd, copy, n, (off_t)q); printf("%s: pwrite %ld same %ld", what, r, changed(q, n));
    memset(q, 1, n); push_out(q, n); lseek(fd, (off_t)q, SEEK_SET); r = write(fd, copy, n); printf(", write %ld same %ld", r, changed(q, n));
    memset(q, 1, n); push_out(q, n); r = pwritev(fd, parts, 3, (off_t)q); printf(", pwritev %ld same %ld", r, changed(q, n));
    memset(q, 1, n); push_out(q, n); lseek(fd, (off_t)q, SEEK_SET); r = writev(fd, parts, 3); printf(", writev %ld same %ld\n", r, changed(q, n));
    munmap(q + n / 2, n / 2); push_out(q, n / 2); r = pread(fd, copy, n, (off_t)q); printf("%s: up to a hole %ld", what, r);
    r = pread(fd, copy, n, (off_t)(q + n / 2)); printf(", in it %ld %s", r, r < 0 ? strerror(errno) : "");
    r = pread(fd, copy, 100, -4096); printf(", beyond %ld", r);
    mprotect(p, n, PROT_NONE); r = pread(fd, copy, n, (off_t)p); printf(", without rights %ld same %ld", r, changed(copy, n));
    mprotect(p, n, PROT_READ); r = pwrite(fd, "new", 3, (off_t)p + 4095); printf(", to what is only read %ld %d\n", r, !memcmp(p + 4095, "new", 3));
    unsigned char *fresh = map(n); r = pread(fd, copy, n, (off_t)fresh); long zeros = 0; for (unsigned long i = 0; i < n; i++) zeros += !copy[i]; printf("%s: never touched %ld, zeros %ld\n", what, r, zeros);
    int to = open("sent", O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2]; off_t at = (off_t)p; if (pipe(ends)) return;
    errno = 0; r = sendfile(to, fd, &at, 4096); printf("%s: sendfile %ld %s", what, r, strerror(errno)); errno = 0; r = splice(fd, &at, ends[1], 0, 4096, 0); printf(", splice %ld %s", r, strerror(errno));
    errno = 0; r = copy_file_range(fd, &at, to, 0, 4096, 0); printf(", copy_file_range %ld %s\n", r, strerror(errno)); close(to); close(ends[0]); close(ends[1]);
    munmap(p, n); munmap(q, n / 2); munmap(copy, n); munmap(fresh, n);
}
static void pass(int by, int fd) {
    char c = 'x', control[CMSG_SPACE(sizeof(int))] = {0}; struct iovec part = {&c, 1}; struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m); h->cmsg_level = SOL_SOCKET; h->cmsg_type = SCM_RIGHTS; h->cmsg_len = CMSG_LEN(sizeof(int)); *(int *)CMSG_DATA(h) = fd; sendmsg(by, &m, 0);
}
static int receive(int by) {
    char c, control[CMSG_SPACE(sizeof(int))]; struct iovec part = {&c, 1}; struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    return recvmsg(by, &m, 0) == 1 ? *(int *)CMSG_DATA(CMSG_FIRSTHDR(&m)) : -1;
}
static int other_of(int fd) {
    int ends[2]; if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return -1;
    pass(ends[0], fd); int got = receive(ends[1]); close(ends[0]); close(ends[1]); return got;
}
static void *in_thread(void *unused) { int fd = open("/proc/thread-self/mem", O_RDWR); through("thread", fd); close(fd); return unused; }

/* A call of 32 bits. */
static long by_gate(long number, long a, long b, long c, long d, long e) {
    long r = number;
    __asm__ volatile("int $0x80" : "+a"(r) : "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
    return r;
}
int main(int n, char **v) {
    mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); alarm(170);
    MODE("children") {
        signal(SIGUSR1, handler); signal(SIGUSR2, SIG_IGN); signal(SIGSEGV, handler); signal(SIGSYS, handler); signal(SIGPIPE, SIG_IGN); signal(SIGBUS, SIG_IGN);
        unsigned char *p = map(8 * MIB); fill(p, 8 * MIB); push_out(p, 8 * MIB);
        uint64_t vm = 0x100, vfork = 0x4000, sighand = 0x800, thread = 0x10000, files = 0x400;
        uint64_t sets[] = {0, CLEAR_SIGHAND, CLEAR_SIGHAND | vfork, vm | vfork, CLEAR_SIGHAND | vm | vfork, CLEAR_SIGHAND | vm, vm | sighand | vfork, CLEAR_SIGHAND | sighand | vm | vfork, CLEAR_SIGHAND | sighand, sighand, thread, thread | vm, CLEAR_SIGHAND | thread | vm | sighand, files, files | CLEAR_SIGHAND, 0xff, 0x400000, CLEAR_SIGHAND | 0x200000000ull, 1ull << 63};
        for (unsigned i = 0; i < sizeof sets / sizeof *sets; i++) {
            char name[32]; said = -1; snprintf(name, sizeof name, "%llx", (unsigned long long)sets[i]);
            char *stack = sets[i] & vm ? stack_of(256 * KIB) : 0;
            tell(name, child_by(sets[i], 88, SIGCHLD, stack, stack ? 256 * KIB : 0, 0));
            printf("here %ld\n", changed(p, 8 * MIB)); finds(0); printf("actions here %d\n", said);
        }
        said = 0; char *stack = stack_of(64 * KIB);
        tell("stack without size", child_by(vm | vfork, 88, SIGCHLD, stack, 0, 0)); tell("size without stack", child_by(CLEAR_SIGHAND, 88, SIGCHLD, 0, 4096, 0));
        tell("stack beyond all", child_by(vm | vfork, 88, SIGCHLD, stack, -1ul, 0)); tell("few bytes", child_by(0, 56, SIGCHLD, 0, 0, 0));
        tell("first form", child_by(CLEAR_SIGHAND, 64, SIGCHLD, 0, 0, 0)); tell("more bytes", child_by(CLEAR_SIGHAND, 104, SIGCHLD, 0, 0, 0));
        tell("more that says something", child_by(0, 104, SIGCHLD, 0, 0, 1)); tell("far too many", child_by(0, 8192, SIGCHLD, 0, 0, 0));
        tell("signal of none", child_by(0, 88, 65, 0, 0, 0)); tell("nowhere", syscall(SYS_clone3, 8, 88) < 0 ? -errno : 0);
        tell("by clone", syscall(SYS_clone, CLEAR_SIGHAND | SIGCHLD, 0, 0, 0, 0) ?: (finds(0), _exit(said % 256), 0));
        printf("kept %ld\n", changed(p, 8 * MIB));
    }
    MODE("advised") {
        int advices[] = {MADV_DONTNEED, MADV_FREE, MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED, 25, MADV_POPULATE_READ, MADV_POPULATE_WRITE, 24, MADV_REMOVE, MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_DONTDUMP, MADV_DODUMP, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_MERGEABLE, 102, 103, 77, -1};
        int thread = syscall(SYS_pidfd_open, syscall(SYS_gettid), 0), own = syscall(SYS_pidfd_open, getpid(), 0), descriptors[] = {own, dup(own), other_of(own), SELF_THREAD, SELF_GROUP, thread};
        for (int d = 0; d < 6; d++) for (unsigned i = 0; i < sizeof advices / sizeof *advices; i++) {
            unsigned long size = 4 * MIB; unsigned char *whole = map(size + 2 * MIB), *p = (unsigned char *)(((unsigned long)whole + 2 * MIB - 1) & -2 * MIB);
            if (d && i % 3) { munmap(whole, size + 2 * MIB); continue; }
            fill(p, size); madvise(p, size, MADV_PAGEOUT); for (unsigned long at = 0; at < 8 * MIB; at += PAGE) { if (!pushes) pushes = map(32 * MIB); pushes[at]++; }
            struct iovec parts[] = {{p, MIB}, {p + 2 * MIB, 0}, {p + 2 * MIB, MIB + PAGE}};
            long r = syscall(SYS_process_madvise, descriptors[d], parts, 3, advices[i], 0); int e = r < 0 ? errno : 0;
            printf("%d advice %d: %ld %s", d, advices[i], r, r < 0 ? strerror(e) : "");
            if (advices[i] == 102 && r > 0) { printf(" fault %d", fault_of(p, 0)); madvise(p, size, 103); }
            long zeros = 0, kept = 0; for (unsigned long at = 0; at < size; at += PAGE) { zeros += !*(unsigned long *)(p + at); kept += *(unsigned long *)(p + at) == pattern(at / 8); }
            if (advices[i] == MADV_FREE) printf(" all %d\n", zeros + kept == 1024); /* freed lazily: either */ else printf(" zeros %ld kept %ld\n", zeros, kept); munmap(whole, size + 2 * MIB);
        }
        unsigned char *p = map(4 * MIB); fill(p, 4 * MIB); push_out(p, 4 * MIB); munmap(p + 2 * MIB, PAGE);
        struct iovec parts[] = {{p, MIB}, {p + MIB, 2 * MIB}, {p + 3 * MIB, MIB}}, odd[] = {{p, PAGE}, {p + 1, PAGE}}, wild[] = {{p, PAGE}, {(void *)-PAGE, PAGE}}, long_one[] = {{p, PAGE}, {p, -1ul}};
#define SAY(what, call) { long r = call; printf("%s %ld %s\n", what, r, r < 0 ? strerror(errno) : ""); }
        SAY("hole", syscall(SYS_process_madvise, own, parts, 3, MADV_DONTNEED, 0)); SAY("odd", syscall(SYS_process_madvise, own, odd, 2, MADV_DONTNEED, 0)); SAY("wild", syscall(SYS_process_madvise, own, wild, 2, MADV_DONTNEED, 0));
        SAY("long", syscall(SYS_process_madvise, own, long_one, 2, MADV_DONTNEED, 0)); SAY("flags", syscall(SYS_process_madvise, own, parts, 1, MADV_DONTNEED, 1)); SAY("none", syscall(SYS_process_madvise, own, parts, 0, MADV_DONTNEED, 0));
        SAY("too many", syscall(SYS_process_madvise, own, parts, 1025, MADV_DONTNEED, 0)); SAY("no list", syscall(SYS_process_madvise, own, 8, 1, MADV_DONTNEED, 0)); SAY("no descriptor", syscall(SYS_process_madvise, 999, parts, 1, MADV_DONTNEED, 0)); SAY("a file", syscall(SYS_process_madvise, 1, parts, 1, MADV_DONTNEED, 0));
        long zeros = 0; for (unsigned long at = 0; at < 2 * MIB; at += PAGE) zeros += !*(unsigned long *)(p + at); printf("zeros %ld\n", zeros);
        pid_t c = fork(); if (!c) for (;;) pause(); int other = syscall(SYS_pidfd_open, c, 0); fill(p, MIB); parts[0] = (struct iovec){p, MIB};
        SAY("another's", syscall(SYS_process_madvise, other, parts, 1, MADV_DONTNEED, 0)); SAY("another's cold", syscall(SYS_process_madvise, other, parts, 1, MADV_COLD, 0)); printf("changed %ld\n", changed(p, MIB)); kill(c, SIGKILL); waitpid(c, 0, 0);
    }
    MODE("itself") {
        char path[64]; snprintf(path, sizeof path, "/proc/%d/mem", getpid()); int fd = open(path, O_RDWR); through("number", fd);
        int folder = open("/proc/self", O_RDONLY | O_DIRECTORY), beside = openat(folder, "mem", O_RDWR); through("folder", beside); through("dup", dup(beside)); through("passed", other_of(beside));
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd); through("again", open(path, O_RDWR)); if (!symlink("/proc/self/mem", "link")) through("link", open("link", O_RDWR));
    }
    MODE("of_thread") { pthread_t t; pthread_create(&t, 0, in_thread, 0); pthread_join(t, 0); int fd = open("/proc/thread-self/mem", O_RDWR); through("main", fd); }
    MODE("gate") {
#define DO(what, call) { long result = (call); printf("%s %ld\n", what, result); }
        char *low = mmap((void *)0x10000000, 16 * MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); long at = (long)low, body = at + 4 * MIB; uint32_t *words = (void *)(low + PAGE); unsigned char *p = (void *)body;
        fill(p, 8 * MIB); strcpy(low, "by int 0x80\n"); push_out(low, 16 * MIB);
        DO("write", by_gate(4, 1, at, 12, 0, 0)); DO("getpid", by_gate(20, 0, 0, 0, 0, 0) == getpid()); DO("getppid", by_gate(64, 0, 0, 0, 0, 0) == getppid()); DO("gettid", by_gate(224, 0, 0, 0, 0, 0) == syscall(SYS_gettid));
        strcpy(low, "a file"); long fd = by_gate(5, at, O_RDWR | O_CREAT | O_TRUNC, 0600, 0, 0); DO("open", fd > 2); DO("write", by_gate(4, fd, body, 8 * MIB, 0, 0)); DO("lseek", by_gate(19, fd, -4096, SEEK_END, 0, 0)); DO("lseek", by_gate(19, fd, 0, SEEK_SET, 0, 0));
        memset(p, 0, 8 * MIB); push_out(low, 16 * MIB); DO("read", by_gate(3, fd, body, 8 * MIB, 0, 0)); DO("changed", changed(p, 8 * MIB));
        words[0] = body; words[1] = 5000; words[2] = body + 5000; words[3] = MIB; DO("lseek", by_gate(19, fd, 0, SEEK_SET, 0, 0)); push_out(low, 16 * MIB); DO("writev", by_gate(146, fd, at + PAGE, 2, 0, 0)); DO("pread64", by_gate(180, fd, at + 8 * PAGE, 100, 4096, 0)); DO("same", !memcmp(low + 8 * PAGE, p + 4096, 100)); DO("readv", by_gate(145, fd, at + PAGE, 2, 0, 0));
        DO("fstat64", by_gate(197, fd, at + 2 * PAGE, 0, 0, 0)); DO("size", *(uint32_t *)(low + 2 * PAGE + 44) == 8 * MIB); DO("stat64", by_gate(195, at, at + 2 * PAGE, 0, 0, 0)); DO("access", by_gate(33, at, R_OK, 0, 0, 0)); DO("none", by_gate(222, 0, 0, 0, 0, 0));
        DO("close", by_gate(6, fd, 0, 0, 0, 0)); DO("close", by_gate(6, fd, 0, 0, 0, 0)); DO("unlink", by_gate(10, at, 0, 0, 0, 0)); DO("unlink", by_gate(10, at, 0, 0, 0, 0));
        long q = by_gate(192, 0, 8 * MIB, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1); DO("mmap2", q > 0 && q < 1l << 32); fill((void *)q, 8 * MIB); push_out((void *)q, 8 * MIB); DO("changed", changed((void *)q, 8 * MIB)); DO("mprotect", by_gate(125, q, PAGE, PROT_READ, 0, 0)); DO("madvise", by_gate(219, q + MIB, MIB, MADV_DONTNEED, 0, 0)); DO("zero", !*(int *)(q + MIB));
        long word = *(long *)(q + 5 * MIB), moved = by_gate(163, q + 4 * MIB, 4 * MIB, 6 * MIB, 1, 0); DO("mremap", moved > 0 && moved < 1l << 32 && *(long *)(moved + MIB) == word); DO("munmap", by_gate(91, q, 4 * MIB, 0, 0, 0)); DO("fault", fault_of((void *)q, 0));
        int *ends = (int *)(low + 3 * PAGE); DO("pipe", by_gate(42, (long)ends, 0, 0, 0, 0)); DO("write", by_gate(4, ends[1], at, 10, 0, 0)); DO("read", by_gate(3, ends[0], at, 10, 0, 0));
        words[0] = 0; words[1] = 1000000; DO("nanosleep", by_gate(162, at + PAGE, 0, 0, 0, 0)); DO("time", labs(by_gate(13, at + PAGE, 0, 0, 0, 0) - time(0)) < 2); DO("brk", by_gate(45, 0, 0, 0, 0, 0) == (long)sbrk(0));
        words[0] = 1 << (SIGUSR1 - 1); words[1] = 0; DO("sigprocmask", by_gate(126, SIG_SETMASK, at + PAGE, 0, 0, 0)); DO("rt_sigprocmask", by_gate(175, SIG_BLOCK, 0, at + 4 * PAGE, 8, 0)); DO("mask", *(uint32_t *)(low + 4 * PAGE)); DO("dup", by_gate(41, 1, 0, 0, 0, 0) > 2); DO("getuid32", by_gate(199, 0, 0, 0, 0, 0) == getuid());
        int *status = (int *)(low + 5 * PAGE); long c = by_gate(2, 0, 0, 0, 0, 0); if (!c) by_gate(1, 5, 0, 0, 0, 0); DO("waitpid", by_gate(7, c, (long)status, 0, 0, 0) == c); DO("status", *status);
        c = by_gate(2, 0, 0, 0, 0, 0); if (!c) { char *with = low + 6 * PAGE; strcpy(with, "/bin/echo"); strcpy(with + 16, "executed by int 0x80"); uint32_t *list = (void *)(with + 64); list[0] = (uint32_t)(long)with; list[1] = list[0] + 16; list[2] = list[3] = 0; by_gate(11, (long)with, (long)list, (long)(list + 3), 0, 0); _exit(9); } waitpid(c, status, 0); DO("execve", *status);
        DO("bad address", by_gate(4, 1, 16, 12, 0, 0)); DO("of x32", syscall(0x40000000 + SYS_write, 1, low, 1)); DO("kept", changed(p, 8 * MIB));
        c = by_gate(2, 0, 0, 0, 0, 0); if (!c) by_gate(252, 3, 0, 0, 0, 0); waitpid(c, status, 0); DO("exit_group", *status);
        /* A signal ends a call that waits, or it is made again. */
        for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) { struct sigaction a = {.sa_handler = handler, .sa_flags = flags}; sigaction(SIGALRM, &a, 0); struct itimerval soon = {.it_value = {.tv_usec = 50000}}; c = fork(); if (!c) { usleep(300000); if (write(ends[1], "late", 4) != 4) _exit(1); _exit(0); } setitimer(ITIMER_REAL, &soon, 0); DO("interrupted", by_gate(3, ends[0], at, 10, 0, 0)); waitpid(c, 0, 0); if (!flags) { char rest[8]; DO("left", read(ends[0], rest, 8)); } }
    }
    return 0;
}
