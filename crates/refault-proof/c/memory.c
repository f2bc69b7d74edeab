/* Mappings: what unmapped, fresh, locked and excluded memory must be; reads past the page table. */
#include "probe.h"
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

static volatile int over;
static unsigned char *target;
static volatile unsigned touches = 2048;
static void *evicts(void *x) { (void)x; while (!over) { madvise(target, MIB, MADV_PAGEOUT); usleep(50); } return 0; }
static void *writes_late(void *x) {
    /* Stores that race with the unmapping; each may fault. */
    (void)x; while (!over) fault_of(target + 5000, 1);
    return 0;
}
static void *reads_far(void *x) { (void)x; printf("read %d\n", *(volatile unsigned char *)target); return 0; }
static void *serves(void *x) {
    struct uffd_msg m; unsigned next = 0;
    while (read((long)x, &m, sizeof m) == sizeof m) {
        for (int i = 0; i < 64; i++) next = (next + 1021) % touches, target[next * PAGE] ^= 0;
        if (m.event != UFFD_EVENT_PAGEFAULT) continue;
        struct uffdio_copy c = {.dst = m.arg.pagefault.address & -PAGE, .src = (unsigned long)target, .len = PAGE}; ioctl((long)x, UFFDIO_COPY, &c);
    }
    return 0;
}
static long status(const char *what) {
    char line[256]; long value = -1; FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f)) if (!strncmp(line, what, strlen(what))) value = atol(line + strlen(what));
    fclose(f); return value;
}
static void flags_of(const char *what, void *p) {
    char line[512]; FILE *f = fopen("/proc/self/smaps", "r"); int inside = 0; long locked = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2) inside = (unsigned long)p >= lo && (unsigned long)p < hi;
        else if (inside && !strncmp(line, "Locked:", 7)) locked = atol(line + 7);
        else if (inside && !strncmp(line, "VmFlags:", 8))
            printf("%s: locked %d, not in cores %d, not in children %d, wiped in children %d, kibibytes locked %s\n", what, !!strstr(line, " lo"), !!strstr(line, " dd"), !!strstr(line, " dc"), !!strstr(line, " wf"), locked > 0 ? "some" : "none");
    }
    fclose(f);
}
int main(int n, char **v) {
    const char *mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0);
    MODE("unmapped") {
        unsigned char *a = map(MIB), *b = map(16 * MIB); fill(a, MIB); fill(b, 16 * MIB); munmap(a, MIB); munmap(b, 16 * MIB);
        printf("read %d, write %d, read of a large one %d\n", fault_of(a + 5000, 0), fault_of(a + 5000, 1), fault_of(b + 9 * MIB, 0));
        unsigned char *c = map(4 * MIB); fill(c, 4 * MIB); munmap(c + MIB, MIB); mprotect(c + 2 * MIB, MIB, PROT_NONE);
        printf("hole %d, inaccessible %d, beside them %d %ld\n", fault_of(c + MIB, 0), fault_of(c + 2 * MIB, 0), fault_of(c + 3 * MIB, 0), changed(c, MIB));
        /* Lengths beyond all addresses, and what the kernel refuses, change nothing. */
        for (int i = 0; i < 3; i++) {
            int protection = (int[]){PROT_READ, PROT_READ | PROT_EXEC, 64}[i];
            int answer = mprotect(c, i < 2 ? (size_t)-1 : MIB, protection), why = errno;
            printf("protection %d: %d %s, %d %ld\n", protection, answer, strerror(why), fault_of(c + 5000, 1), changed(c, MIB) > 1);
        }
        void *moved = mremap(c + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE); printf("from within a page %d %s\n", moved == MAP_FAILED, strerror(errno));
    }
    MODE("wild") {
        unsigned char *a = map(MIB); memset(a, 1, MIB); int faults = 0;
        for (int i = 30; i < 45; i++) { unsigned char *q = (unsigned char *)(((unsigned long)a ^ 1ul << i) & -PAGE); unsigned char seen; if (mincore(q, PAGE, &seen) && errno == ENOMEM) faults += fault_of(q, 1) != 0; else faults++; }
        printf("%d of 15 accesses to nothing fault\n", faults);
    }
    MODE("zero") {
        long dirty = 0; pthread_t t; target = map(MIB); pthread_create(&t, 0, writes_late, 0);
        for (int i = 0; i < 200; i++) {
            unsigned char *p = mmap(target, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            for (unsigned long k = 0; k < MIB; k += 64) if (k / PAGE != 5000 / PAGE) dirty += p[k] != 0;
            memset(p, 7, MIB); munmap(p, MIB);
        }
        over = 1; pthread_join(t, 0);
        for (int i = 0; i < 50; i++) { unsigned char *p = map(MIB); for (unsigned long k = 0; k < MIB; k += 8) dirty += *(unsigned long *)(p + k) != 0; memset(p, 9, MIB); munmap(p, MIB); }
        printf("bytes of fresh mappings that are not zero: %ld\n", dirty);
    }
    MODE("flags") {
        unsigned char *a = map(MIB), *b = map(MIB), *c = map(MIB), *d = map(MIB); fill(a, MIB); fill(b, MIB);
        printf("%d %d %d %d\n", mlock(a, MIB), madvise(b, MIB, MADV_DONTDUMP), madvise(c, MIB, MADV_DONTFORK), madvise(d, MIB, MADV_WIPEONFORK));
        flags_of("mlock", a + 4096); flags_of("MADV_DONTDUMP", b + 4096); flags_of("MADV_DONTFORK", c + 4096); flags_of("MADV_WIPEONFORK", d + 4096);
        push_out(b, MIB); push_out(a, MIB); printf("changed %ld %ld\n", changed(a, MIB), changed(b, MIB)); flags_of("mlock after pressure", a + 4096); printf("%d\n", munlock(a, MIB)); flags_of("munlock", a + 4096);
    }
    MODE("locked") {
        /* Within the limit that users without privileges have, which holds the program and not the tool's tables. */
        struct rlimit l; getrlimit(RLIMIT_MEMLOCK, &l); if (l.rlim_cur > 8 * MIB) l.rlim_cur = 8 * MIB; setrlimit(RLIMIT_MEMLOCK, &l);
        unsigned char *a = map(MIB); fill(a, MIB); push_out(a, MIB); munmap(pushes, 32 * MIB); pushes = 0;
        int all = mlockall(MCL_CURRENT), why = errno; printf("%d %s, changed %ld\n", all, all ? strerror(why) : "", changed(a, MIB)); flags_of("mapped before", a);
        long locked = status("VmLck:"); printf("locked: more than the mapping %d, more than the limit %d\n", locked >= 1024, locked > 8192);
        unsigned char *b = map(MIB); flags_of("mapped after", b); printf("%d\n", munlockall()); flags_of("mapped before", a); munmap(b, MIB);
        printf("%d\n", mlockall(MCL_FUTURE)); b = map(MIB); unsigned char seen[MIB / PAGE]; long there = 0; mincore(b, MIB, seen); for (unsigned i = 0; i < MIB / PAGE; i++) there += seen[i] & 1;
        flags_of("mapped after", b); printf("%ld pages there\n", there); void *c = mmap(0, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); printf("beyond the limit %s\n", c == MAP_FAILED ? strerror(errno) : "");
        printf("%d\n", mlockall(MCL_CURRENT | MCL_ONFAULT)); flags_of("on fault", b); pid_t child = fork(); if (!child) { flags_of("in a child", a); _exit(0); } waitpid(child, 0, 0);
        printf("%d\n", munlockall()); flags_of("unlocked", a); printf("changed %ld\n", changed(a, MIB)); int none = mlockall(0); printf("%d %d\n", none, errno);
        l.rlim_cur = 0; setrlimit(RLIMIT_MEMLOCK, &l); for (int i = MCL_CURRENT; i <= MCL_FUTURE; i++) { int answer = mlockall(i); printf("without a limit %d %s\n", answer, strerror(errno)); }
    }
    MODE("exceeds") {
        /* More than the limit, by who may; and what cannot be touched is locked without being filled. */
        struct rlimit l; getrlimit(RLIMIT_MEMLOCK, &l); l.rlim_cur = MIB; setrlimit(RLIMIT_MEMLOCK, &l); unsigned char *a = map(2 * MIB); fill(a, 2 * MIB); unsigned char *other = map(8 * MIB); fill(other, 8 * MIB); munmap(other, 8 * MIB);
        int one = mlock(a, 2 * MIB); printf("%d, changed %ld\n", one, changed(a, 2 * MIB)); flags_of("locked", a + 4096); printf("%d\n", munlock(a, 2 * MIB));
        unsigned char *none = mmap(0, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); int all = mlockall(MCL_CURRENT); flags_of("without rights", none);
        unsigned char *seen = calloc(64 * MIB / PAGE, 1); long there = 0; mincore(none, 64 * MIB, seen); for (unsigned i = 0; i < 64 * MIB / PAGE; i++) there += seen[i] & 1; printf("%d, pages without rights: more than that of an argument is there %d\n", all, there > 1);
        printf("%d, changed %ld\n", munlockall(), changed(a, 2 * MIB));
    }
    MODE("served") {
        /* Who brings a mapping's pages in touches memory that is out, while other threads' calls wait for it. */
        int u = syscall(SYS_userfaultfd, O_CLOEXEC); struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE}; if (u < 0) { perror("userfaultfd"); return 1; }
        int told = !ioctl(u, UFFDIO_API, &api); printf("%s\n", told || errno ? "given or refused in words" : "neither");
        if (!told) { close(u); u = syscall(SYS_userfaultfd, O_CLOEXEC); api = (struct uffdio_api){.api = UFFD_API}; if (ioctl(u, UFFDIO_API, &api)) return 1; }
        unsigned char *b = map(MIB); target = map(8 * MIB); fill(target, 8 * MIB); struct uffdio_register r = {.range = {(unsigned long)b, MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING}; printf("register %d\n", ioctl(u, UFFDIO_REGISTER, &r));
        pthread_t t; pthread_create(&t, 0, serves, (void *)(long)u); alarm(170); printf("populate %d, lock %d\n", madvise(b, MIB / 2, MADV_POPULATE_READ), mlock(b + MIB / 2, MIB / 2)); printf("unlock %d, discard %d\n", munlock(b, MIB), madvise(b, MIB / 2, MADV_DONTNEED)); printf("changed %ld\n", changed(b + MIB / 2, PAGE));
        /* What is locked must fit. */
        touches = 512; munmap(target + 2 * MIB, 6 * MIB); printf("lock all %d\n", mlockall(MCL_CURRENT)); munlockall(); printf("changed %ld\n", changed(b, PAGE));
    }
    MODE("userfaultfd") {
        int u = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY); struct uffdio_api api = {.api = UFFD_API}; if (u < 0 || ioctl(u, UFFDIO_API, &api)) { perror("userfaultfd"); return 1; }
        unsigned char *a = map(MIB), *b = map(MIB); fill(a, MIB); fill(b, MIB / 2); push_out(a, MIB); push_out(b, MIB); madvise(b + MIB / 2, MIB / 2, MADV_DONTNEED); /* Neighbours of what is touched may be there, as with huge pages. */
        struct uffdio_register r = {.range = {(unsigned long)b, MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING}; printf("register %d, changed %ld\n", ioctl(u, UFFDIO_REGISTER, &r), changed(b, MIB / 2)); push_out(a, MIB);
        struct uffdio_copy c = {.dst = (unsigned long)b + MIB / 2, .src = (unsigned long)a, .len = MIB / 4}; int copied = ioctl(u, UFFDIO_COPY, &c);
        printf("copy %d, %ld bytes, changed %ld\n", copied, (long)c.copy, changed(b + MIB / 2, MIB / 4)); target = b + MIB / 4 * 3; push_out(b, MIB);
        pthread_t t; pthread_create(&t, 0, reads_far, 0); struct uffd_msg m; if (read(u, &m, sizeof m) != sizeof m) return 1;
        printf("event %d at %ld\n", m.event, (long)((m.arg.pagefault.address & -PAGE) - (unsigned long)target)); struct uffdio_zeropage z = {.range = {(unsigned long)target, PAGE}}; int zero = ioctl(u, UFFDIO_ZEROPAGE, &z); pthread_join(t, 0); printf("zero %d\n", zero);
        printf("unregister %d, changed %ld\n", ioctl(u, UFFDIO_UNREGISTER, &r.range), changed(b, MIB / 2));
        struct uffdio_range other = {(unsigned long)a, MIB}; push_out(a, MIB); int never = ioctl(u, UFFDIO_UNREGISTER, &other); printf("never registered %d, changed %ld\n", never, changed(a, MIB));
    }
    MODE("direct") {
        int fd = open("direct", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600); if (fd < 0) { perror("open"); return 1; }
        void *from; if (posix_memalign(&from, 4096, 64 * KIB)) return 1;
        memset(from, 0x5a, 64 * KIB); for (int i = 0; i < 16; i++) if (write(fd, from, 64 * KIB) != 64 * KIB) { perror("write"); return 1; }
        target = map(MIB); pthread_t t; pthread_create(&t, 0, evicts, 0); long wrong = 0, errors = 0;
        for (int i = 0; i < 60; i++) { memset(target, i, MIB); if (pread(fd, target, MIB, 0) != (long)MIB) { errors++; continue; } for (unsigned long q = 0; q < MIB; q += PAGE) wrong += target[q] != 0x5a || target[q + PAGE - 1] != 0x5a; }
        for (int i = 0; i < 20; i++) { memset(target, i, MIB); if (pwrite(fd, target, MIB, 0) != (long)MIB) errors++; memset(from, 0, 64 * KIB); for (int k = 0; k < 16; k++) { if (pread(fd, from, 64 * KIB, k * 64 * KIB) != 64 * KIB) errors++; for (unsigned long q = 0; q < 64 * KIB; q += PAGE) wrong += ((unsigned char *)from)[q] != i; } }
        over = 1; pthread_join(t, 0); printf("stale pages %ld, errors %ld\n", wrong, errors); unlink("direct");
    }
    MODE("spliced") {
        int ends[2]; if (pipe(ends)) return 1; long wrong = 0; target = map(MIB); unsigned char *to = map(MIB); pthread_t t; pthread_create(&t, 0, evicts, 0);
        for (int i = 0; i < 200; i++) { memset(target, i, 8 * PAGE); struct iovec w = {target, 8 * PAGE}; long r = vmsplice(ends[1], &w, 1, 0); if (r <= 0) { printf("vmsplice %s\n", strerror(errno)); break; } if (read(ends[0], to, r) != r) break; for (long q = 0; q < r; q += PAGE) wrong += to[q] != (unsigned char)i; }
        over = 1; pthread_join(t, 0); printf("spliced pages that differ: %ld\n", wrong);
    }
    MODE("aio") {
        struct io_uring_params p; memset(&p, 0, sizeof p); int ring = syscall(SYS_io_uring_setup, 4, &p); unsigned long context = 0; long aio = syscall(SYS_io_setup, 4, &context);
        /* Refused or right: only a ring that is there and wrong would be a failure, and programs must cope without. */
        printf("%s\n", (ring >= 0 || errno) && (aio == 0 || errno) ? "given or refused in words" : "neither");
    }
    return 0;
}
