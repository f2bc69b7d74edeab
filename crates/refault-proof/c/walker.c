/* Carries out a sequence of memory calls and says what came of each: results, errno, contents as hashes, faults.
 *
 * usage: walker SEQUENCE [FIRST LAST]
 *
 * One operation per line: a name and numbers. `fork ORDER`, `thread`, `vfork`, `spawn` open a block that `end` closes;
 * in the block of a fork `and` parts what the parent does from what the child does. All places are pages of a window at
 * a fixed address, so that the output depends on the sequence alone. Nothing here allocates memory or uses stdio. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long word;
enum { PAGE = 4096, WINDOW_PAGES = 2048, MAX_OPERATIONS = 20000, MAX_ARGUMENTS = 6, FILE_PAGES = 64, FILLER_MIB = 24 };
#define BASE 0x2a0000000000ul
extern char **environ;

struct operation { const char *name; long a[MAX_ARGUMENTS]; int end, middle; };
static struct operation operations[MAX_OPERATIONS];
static int count;
static char text[4 << 20], *self_path, *script_path;

/* Output. */
static char out[1 << 16];
static size_t filled;
static void flush(void) { for (size_t done = 0; done < filled;) { ssize_t n = write(1, out + done, filled - done); if (n <= 0) _exit(98); done += n; } filled = 0; }
static void put(const char *s) { size_t n = strlen(s); if (filled + n > sizeof out) flush(); memcpy(out + filled, s, n); filled += n; }
static void put_number(const char *before, long v) {
  char b[24], *p = b + 23; *p = 0; word u = v < 0 ? -(word)v : (word)v; do *--p = '0' + u % 10; while (u /= 10); if (v < 0) *--p = '-'; put(before); put(p);
}
static void put_hash(const char *before, word v) { char b[17]; for (int i = 15; i >= 0; i--, v >>= 4) b[i] = "0123456789abcdef"[v & 15]; b[16] = 0; put(before); put(b); }

/* Faults: every access by hand goes through here. */
static __thread sigjmp_buf resume;
static __thread volatile int guarded;
static __thread volatile long fault_page, fault_signal, fault_code;
static volatile long handled_pages, handled_first; static volatile word handled_hash;
static void on_fault(int s, siginfo_t *i, void *x) {
  if (!guarded) { put_number("unexpected signal ", s); put_number(" code ", i->si_code); put("\n"); flush(); _exit(97); }
  word p = (word)i->si_addr; fault_page = p >= BASE && p < BASE + (word)WINDOW_PAGES * PAGE ? (long)((p - BASE) / PAGE) : -1; fault_signal = s; fault_code = i->si_code;
  siglongjmp(resume, 1);
}
static unsigned char *at(long page) { return (unsigned char *)(BASE + (word)page * PAGE); }
static word mix(word h, word v) { h ^= v; h *= 0x9e3779b97f4a7c15ul; return h ^ h >> 29; }
static word hash_memory(const volatile unsigned char *p, word n) { word h = n; for (word i = 0; i + 8 <= n; i += 8) h = mix(h, *(const volatile word *)(p + i)); for (word i = n & ~7ul; i < n; i++) h = mix(h, p[i]); return h; }
/* Hash of one page, or of the fault that reading it raises. */
static word hash_page(long page) {
  word h; guarded = 1;
  if (!sigsetjmp(resume, 0)) h = hash_memory(at(page), PAGE); else h = mix(mix(mix(1, fault_signal), fault_code), fault_page - page);
  guarded = 0; return h;
}
static word hash_pages(long first, long pages, long *faults) { word h = 0; *faults = 0; for (long i = 0; i < pages; i++) { fault_signal = 0; h = mix(h, hash_page(first + i)); *faults += fault_signal != 0; } return h; }
/* Writes bytes, and says how many went before a fault. */
static long fill(unsigned char *p, long n, word seed) {
  volatile long done = 0; guarded = 1; fault_signal = 0;
  if (!sigsetjmp(resume, 0)) for (; done < n; done++) p[done] = (unsigned char)(mix(seed, (word)done / 5) >> 11);
  guarded = 0; return done;
}
static int store(void *to, const void *from, word n) { int ok = 0; guarded = 1; fault_signal = 0; if (!sigsetjmp(resume, 0)) { for (word i = 0; i < n; i++) ((volatile unsigned char *)to)[i] = ((const unsigned char *)from)[i]; ok = 1; } guarded = 0; return ok; }
static void put_fault(void) { put_number(" fault ", fault_signal); put_number(" code ", fault_code); put_number(" page ", fault_page); }
static void result(long r) { put_number(" = ", r); if (r == -1) put_number(" errno ", errno); }
static void on_user(int s) { handled_hash = 0; for (long i = 0; i < handled_pages; i++) handled_hash = mix(handled_hash, hash_page(handled_first + i)); }

static int file = -1, direct = -1, ends[2], packets[2];
static unsigned char *filler, *heap;
static void prepare(void) {
  struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER}; sigaction(SIGSEGV, &a, 0); sigaction(SIGBUS, &a, 0);
  a.sa_handler = on_user; a.sa_flags = SA_ONSTACK | SA_RESTART; sigaction(SIGUSR1, &a, 0);
  static unsigned char page[PAGE] __attribute__((aligned(4096)));
  /* Direct I/O has a file of its own: what a mapping shows of a file that is also written directly is open (open(2)). */
  file = open(".", O_TMPFILE | O_RDWR, 0600); int other = open(".", O_TMPFILE | O_RDWR, 0600); if (file < 0 || other < 0) _exit(96);
  for (int i = 0; i < FILE_PAGES; i++) { for (int k = 0; k < PAGE; k++) page[k] = i + k; if (pwrite(file, page, PAGE, (off_t)i * PAGE) != PAGE || pwrite(other, page, PAGE, (off_t)i * PAGE) != PAGE) _exit(96); }
  char name[64] = "/proc/self/fd/"; int n = strlen(name); if (other > 9) name[n++] = '0' + other / 10; name[n++] = '0' + other % 10; direct = open(name, O_RDWR | O_DIRECT); close(other);
  if (pipe(ends) || socketpair(AF_UNIX, SOCK_DGRAM, 0, packets)) _exit(96);
  fcntl(ends[0], F_SETFL, O_NONBLOCK); fcntl(ends[1], F_SETFL, O_NONBLOCK); fcntl(packets[0], F_SETFL, O_NONBLOCK); fcntl(packets[1], F_SETFL, O_NONBLOCK);
  /* What libc allocates for itself must not move the break, which belongs to the sequence. */
  mallopt(M_TRIM_THRESHOLD, 1 << 30); mallopt(M_TOP_PAD, 1 << 20); void *volatile p = malloc(1000); free(p);
  filler = mmap(0, (word)FILLER_MIB << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); heap = sbrk(0); heap = (unsigned char *)((word)heap + PAGE - 1 & -(word)PAGE); brk(heap);
}
/* Touches other memory, so that the window is evicted, and looks whether it holds what it held. */
static void churn(long mib, long round) {
  static long written; long bad = 0; if (mib > FILLER_MIB) mib = FILLER_MIB;
  for (word i = 0; i < (word)mib << 20; i += PAGE) { volatile word *p = (void *)(filler + i); if (i < (word)written << 20) bad += p[0] != mix(i, 5) || p[100] != mix(i, 7); p[0] = mix(i, 5); p[100] = mix(i, 7); for (int k = 200; k < 400; k++) p[k] = mix(i * k, round); }
  if (written < mib) written = mib;
  put_number(" changed ", bad);
}
/* A thread that pushes out and reads whatever comes, which may change nothing of what is printed. */
static volatile int pressing;
static pthread_t presser;
static void *press(void *x) {
  unsigned char *own = x; word s = 1;
  while (pressing) {
    s = mix(s, 77); long page = s % WINDOW_PAGES, pages = 1 + (s >> 20) % 32; if (page + pages > WINDOW_PAGES) pages = WINDOW_PAGES - page;
    madvise(at(page), pages * PAGE, MADV_PAGEOUT); guarded = 1; if (!sigsetjmp(resume, 0)) (void)*(volatile unsigned char *)at((s >> 32) % WINDOW_PAGES); guarded = 0;
    for (int i = 0; i < 16; i++) own[((s >> 40) + i) % 2048 * PAGE]++;
  }
  munmap(own, 2048 * PAGE); return 0;
}
static void pressure(int wanted) {
  if (pressing == wanted) return;
  pressing = wanted; if (!wanted) { pthread_join(presser, 0); return; }
  void *own = mmap(0, 2048 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (own == MAP_FAILED || pthread_create(&presser, 0, press, own)) _exit(92);
}
static void drain(void) { static char b[65536]; while (read(ends[0], b, sizeof b) > 0); while (recv(packets[1], b, sizeof b, 0) > 0); }
static const int PROTECTIONS[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC};
static void run(int first, int last);
static void *in_thread(void *x) { int *range = x; run(range[0], range[1]); return 0; }
static int in_vfork(void *x) { int *range = x; run(range[0], range[1]); flush(); return 5; }
static void put_status(pid_t p) { int s = 0; pid_t r = waitpid(p, &s, 0); put_number(" waited ", r == p); put_number(" exit ", WIFEXITED(s) ? WEXITSTATUS(s) : -WTERMSIG(s)); }
static void spawn_range(int first, int last, int how) {
  char a[16], b[16]; char *numbers[2] = {a, b}; int v[2] = {first, last};
  for (int i = 0; i < 2; i++) { char *p = numbers[i] + 15; *p = 0; int u = v[i]; do *--p = '0' + u % 10; while (u /= 10); numbers[i] = p; }
  char *arguments[] = {self_path, script_path, numbers[0], numbers[1], 0}; pid_t p;
  if (how == 0) { int e = posix_spawn(&p, "/proc/self/exe", 0, 0, arguments, environ); put_number(" spawned ", e); if (!e) put_status(p); }
  if (how == 1) { p = vfork(); if (!p) { execve("/proc/self/exe", arguments, environ); _exit(9); } put_status(p); }
  if (how == 2) { p = fork(); if (!p) { execve("/proc/self/exe", arguments, environ); _exit(9); } put_status(p); }
  if (how == 3) { execve("/proc/self/exe", arguments, environ); put_number(" exec errno ", errno); }
}
/* What the kernel knows of the mapping of a page: protection and the flags that calls set. */
static void put_flags(long page) {
  static char b[1 << 16]; int f = open("/proc/self/smaps", O_RDONLY); size_t have = 0; int inside = 0; word p = (word)at(page);
  for (;;) {
    ssize_t n = read(f, b + have, sizeof b - have); if (n <= 0) break; have += n; char *line = b, *end;
    while ((end = memchr(line, '\n', b + have - line))) {
      *end = 0; char *dash; word lo = strtoul(line, &dash, 16); if (*dash == '-') { word hi = strtoul(dash + 1, &dash, 16); inside = p >= lo && p < hi; if (inside) { char s[6] = {' ', dash[1], dash[2], dash[3], dash[4], 0}; put(s); } }
      else if (inside && !strncmp(line, "VmFlags:", 8)) { static const char *const shown[] = {" lo", " dd", " dc", " wf"}; for (int i = 0; i < 4; i++) if (strstr(line, shown[i])) put(shown[i]); }
      line = end + 1;
    }
    have -= line - b; memmove(b, line, have);
  }
  close(f);
}
static void map(struct operation *o) {
  long *a = o->a; word n = (word)a[1] * PAGE; int f = MAP_PRIVATE, fd = -1, fixed = MAP_FIXED; off_t offset = 0;
  switch (a[3]) {
  case 0: f |= MAP_ANONYMOUS; break; case 1: f = MAP_SHARED | MAP_ANONYMOUS; break; case 2: f |= MAP_ANONYMOUS | MAP_NORESERVE; break;
  case 3: f |= MAP_ANONYMOUS; fixed = MAP_FIXED_NOREPLACE; break; case 4: f |= MAP_ANONYMOUS; fixed = 0; break; case 5: fd = file; offset = PAGE * (a[0] & 7); break;
  case 6: f = MAP_SHARED; fd = file; break; case 7: f |= MAP_ANONYMOUS | MAP_POPULATE; break; case 8: f |= MAP_ANONYMOUS | MAP_STACK; break; case 9: f |= MAP_ANONYMOUS | MAP_LOCKED; break;
  }
  if (fd >= 0 && a[1] > FILE_PAGES) n = FILE_PAGES * PAGE;
  void *p = mmap(at(a[0]), n, PROTECTIONS[a[2]], f | fixed, fd, offset);
  if (p == MAP_FAILED) result(-1); else if (p == at(a[0])) put(" = there"); else { put(" = elsewhere"); munmap(p, n); }
}
static void remap(struct operation *o) {
  long *a = o->a; word from = (word)a[1] * PAGE, to = (word)a[2] * PAGE; void *p;
  if (a[3] == 0) p = mremap(at(a[0]), from, to, 0); else if (a[3] == 1) p = mremap(at(a[0]), from, to, MREMAP_MAYMOVE);
  else p = mremap(at(a[0]), from, to, MREMAP_MAYMOVE | MREMAP_FIXED | (a[3] == 3 ? MREMAP_DONTUNMAP : 0), at(a[4]));
  if (p == MAP_FAILED) { result(-1); return; }
  if (p == at(a[0]) || (a[3] >= 2 && p == at(a[4]))) { put(" = there"); return; }
  put(" = moved"); void *q = mremap(p, to, to, MREMAP_MAYMOVE | MREMAP_FIXED, at(a[4])); put(q == MAP_FAILED ? " lost" : " back"); if (q == MAP_FAILED) { put_number(" errno ", errno); munmap(p, to); }
}
static void free_lazily(struct operation *o) {
  long *a = o->a; for (long i = 0; i < a[1]; i++) if (fill(at(a[0] + i), 1, 3) != 1) { put(" unwritable"); return; }
  static unsigned char zeros[PAGE]; word zero = hash_memory(zeros, PAGE), before[64]; long bad = 0; if (a[1] > 64) a[1] = 64;
  for (long i = 0; i < a[1]; i++) before[i] = hash_page(a[0] + i);
  result(madvise(at(a[0]), a[1] * PAGE, MADV_FREE));
  for (long i = 0; i < a[1]; i++) { word h = hash_page(a[0] + i); bad += h != before[i] && h != zero; }
  for (long i = 0; i < a[1]; i++) fill(at(a[0] + i), PAGE, i);
  put_number(" neither old nor zero ", bad);
}
/* Memory handed to the kernel. The last number says whether it is pushed out before. */
static void away(long page, long pages, long wanted) { if (wanted) madvise(at(page), pages * PAGE, MADV_PAGEOUT); }
static void through_pipe(struct operation *o) {
  long *a = o->a; long n = a[3] > 32768 ? 32768 : a[3]; away(a[0], 9, a[4]); ssize_t r = write(ends[1], at(a[0]) + a[2], n); result(r); if (r > 0) { away(a[1], 9, a[4]); result(read(ends[0], at(a[1]) + a[2], r)); } drain();
}
static void through_vectors(struct operation *o) {
  long *a = o->a; long n = a[4] > 8192 ? 8192 : a[4]; struct iovec v[3] = {{at(a[0]) + 100, n}, {at(a[1]), n}, {at(a[2]) + 4000, n}}, *there = (void *)(at(a[3]) + 4080);
  if (!store(there, v, sizeof v)) { put(" no room"); put_fault(); return; }
  away(a[3], 2, 1); away(a[0], 3, 1); ssize_t r = writev(ends[1], there, 3); result(r); if (r > 0) { away(a[3], 2, 1); away(a[1], 3, 1); result(readv(ends[0], there, 3)); } drain();
}
static void as_packets(struct operation *o) {
  long *a = o->a; long n = a[3] > 16384 ? 16384 : a[3]; static struct msghdr header; struct iovec v = {at(a[1]) + a[2], n}; away(a[0], 5, a[4]);
  ssize_t r = send(packets[0], at(a[0]) + a[2], n, 0); result(r); if (r >= 0) { away(a[1], 5, a[4]); if (a[4] & 1) r = recv(packets[1], at(a[1]) + a[2], n, 0); else { header = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1}; r = recvmsg(packets[1], &header, 0); } result(r); } drain();
}
static void fork_blocks(int i, struct operation *o) {
  int ready[2]; if (pipe(ready)) _exit(95);
  put("\n"); flush(); pid_t p = fork();
  if (!p) { char c; pressing = 0; close(ready[1]); if (o->a[0]) read(ready[0], &c, 1); run(o->middle + 1, o->end); put("child ends\n"); flush(); _exit(7); }
  close(ready[0]); if (o->a[0]) { run(i + 1, o->middle); flush(); }
  close(ready[1]); put("after the child"); put_status(p);
  if (!o->a[0]) { put("\n"); run(i + 1, o->middle); put("parent ends"); }
}
static int is(struct operation *o, const char *name) { return !strcmp(o->name, name); }
static void run(int first, int last) {
  for (int i = first; i < last; i++) {
    struct operation *o = &operations[i]; long *a = o->a; word n = (word)a[1] * PAGE; put_number("", i); put(" "); put(o->name); errno = 0;
    if (is(o, "map")) map(o);
    else if (is(o, "unmap")) result(munmap(at(a[0]), n));
    else if (is(o, "remap")) remap(o);
    else if (is(o, "protect")) result(mprotect(at(a[0]), n, PROTECTIONS[a[2]]));
    else if (is(o, "advise")) result(madvise(at(a[0]), n, a[2]));
    else if (is(o, "free")) free_lazily(o);
    else if (is(o, "lock")) result(a[2] == 0 ? mlock(at(a[0]), n) : a[2] == 1 ? mlock2(at(a[0]), n, MLOCK_ONFAULT) : munlock(at(a[0]), n));
    else if (is(o, "sync")) result(msync(at(a[0]), n, MS_SYNC));
    else if (is(o, "resident")) { static unsigned char v[WINDOW_PAGES * 2]; result(mincore(at(a[0]), n, v)); }
    else if (is(o, "flags")) put_flags(a[0]);
    else if (is(o, "write")) { long d = fill(at(a[0]) + a[1], a[2], a[3]); put_number(" = ", d); if (d < a[2]) put_fault(); }
    else if (is(o, "read")) { long faults; put_hash(" ", hash_pages(a[0], a[1], &faults)); put_number(" faults ", faults); if (faults) put_fault(); }
    else if (is(o, "add")) { guarded = 1; fault_signal = 0; if (!sigsetjmp(resume, 0)) { for (long k = 0; k < a[1]; k++) __atomic_fetch_add((int *)(at(a[0] + k) + 64), 1, __ATOMIC_SEQ_CST); put(" done"); } else put_fault(); guarded = 0; }
    else if (is(o, "churn")) churn(a[0], i);
    else if (is(o, "pressure")) pressure(1);
    else if (is(o, "calm")) pressure(0);
    else if (is(o, "pipe")) through_pipe(o);
    else if (is(o, "vector")) through_vectors(o);
    else if (is(o, "packet")) as_packets(o);
    else if (is(o, "fread")) { away(a[0], 17, a[3]); result(pread(file, at(a[0]) + a[4], a[1] > 65536 ? 65536 : a[1], a[2])); }
    else if (is(o, "fwrite")) { away(a[0], 17, a[3]); long m = a[1] > 65536 ? 65536 : a[1]; off_t to = a[2] & 0xffff; result(pwrite(file, at(a[0]) + a[4], m, to)); }
    else if (is(o, "direct")) { away(a[0], a[1], a[2]); long m = a[1] > 32 ? 32 : a[1]; result(a[3] ? pwrite(direct, at(a[0]), m * PAGE, 0) : pread(direct, at(a[0]), m * PAGE, PAGE)); }
    else if (is(o, "splice")) { struct iovec v = {at(a[0]), PAGE}; static unsigned char b[PAGE]; memset(b, 0, PAGE); away(a[0], 1, a[1]); long r = vmsplice(ends[1], &v, 1, 0); result(r); if (r > 0) { away(a[0], 1, a[1]); result(read(ends[0], b, r)); put_hash(" ", hash_memory(b, PAGE)); } drain(); }
    else if (is(o, "across")) { struct iovec from = {at(a[0]), PAGE}, to = {at(a[1]), PAGE}; away(a[0], 1, a[2]); result(a[3] ? process_vm_writev(getpid(), &from, 1, &to, 1, 0) : process_vm_readv(getpid(), &to, 1, &from, 1, 0)); }
    else if (is(o, "wait")) { flush(); pid_t p = fork(); if (!p) _exit(a[1] & 63); away(a[0], 1, 1); pid_t r = waitpid(p, (int *)(at(a[0]) + 8), 0); put_number(" = ", r == p ? 1 : r); if (r < 0) put_number(" errno ", errno); }
    else if (is(o, "futex")) { struct timespec t = {0, 300000}; away(a[0], 1, a[2]); result(syscall(SYS_futex, at(a[0]) + 64, FUTEX_WAIT_PRIVATE, (int)a[1], &t, 0, 0)); }
    else if (is(o, "wake")) { away(a[0], 1, a[1]); result(syscall(SYS_futex, at(a[0]) + 64, FUTEX_WAKE, 1, 0, 0, 0)); }
    else if (is(o, "path")) { if (store(at(a[0]) + 4090, "/dev/null", 10)) { away(a[0], 2, 1); int f = open((char *)at(a[0]) + 4090, O_RDONLY); put_number(" = ", f < 0 ? -1 : 0); if (f >= 0) close(f); else put_number(" errno ", errno); } else put_fault(); }
    else if (is(o, "bad_path")) { away(a[0], 1, 1); int f = open((char *)at(a[0]), O_RDONLY); put_number(" = ", f < 0 ? -1 : 0); if (f >= 0) close(f); else put_number(" errno ", errno); }
    else if (is(o, "name")) { away(a[0], 1, 1); result(uname((struct utsname *)at(a[0]))); }
    else if (is(o, "mask")) { away(a[0], 1, 1); result(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, at(a[0]) + 16, 8)); }
    else if (is(o, "sleep")) { struct timespec t = {0, 1000}; if (store(at(a[0]) + 32, &t, sizeof t)) { away(a[0], 1, 1); result(nanosleep((void *)(at(a[0]) + 32), (void *)(at(a[0]) + 32))); } else put_fault(); }
    else if (is(o, "poll")) { struct pollfd p = {.fd = ends[1], .events = POLLOUT}; if (store(at(a[0]) + 4092, &p, sizeof p)) { away(a[0], 2, 1); result(poll((void *)(at(a[0]) + 4092), 1, 0)); } else put_fault(); }
    else if (is(o, "select")) { fd_set s; FD_ZERO(&s); FD_SET(ends[1], &s); if (store(at(a[0]) + 8, &s, sizeof s)) { struct timeval t = {0, 0}; away(a[0], 1, 1); result(select(ends[1] + 1, 0, (fd_set *)(at(a[0]) + 8), 0, &t)); } else put_fault(); }
    else if (is(o, "raise")) { handled_first = a[0]; handled_pages = a[1] > 16 ? 16 : a[1]; raise(SIGUSR1); put_hash(" ", handled_hash); }
    else if (is(o, "stack")) {
      long pages = 8, whole = 1; for (long k = 0; k < pages; k++) whole &= fill(at(a[0] + k), PAGE, 1) == PAGE;
      if (!whole) put(" unwritable"); else {
        stack_t s = {.ss_sp = at(a[0]), .ss_size = pages * PAGE}, off = {.ss_flags = SS_DISABLE}, seen; result(sigaltstack(&s, 0)); handled_first = a[1]; handled_pages = 4; if (a[2]) away(a[0], pages, 1);
        raise(SIGUSR1); put_hash(" ", handled_hash); sigaltstack(&off, &seen); put_number(" was there ", seen.ss_sp == s.ss_sp && seen.ss_size == s.ss_size); put_number(" flags ", seen.ss_flags); for (long k = 0; k < pages; k++) fill(at(a[0] + k), PAGE, k); }
    }
    else if (is(o, "brk")) { word to = (word)heap + (word)a[0] * PAGE; result(brk((void *)to)); put_number(" at ", ((word)sbrk(0) - (word)heap) / PAGE); }
    else if (is(o, "heap_write")) { word top = (word)sbrk(0) - (word)heap; if ((word)a[0] * PAGE < top) put_number(" = ", fill(heap + (word)a[0] * PAGE, top - (word)a[0] * PAGE < 30000 ? top - (word)a[0] * PAGE : 30000, a[1])); }
    else if (is(o, "heap_read")) { word top = (word)sbrk(0) - (word)heap; put_hash(" ", hash_memory(heap, top)); }
    else if (is(o, "heap_past")) { volatile unsigned char *p = heap + ((word)sbrk(0) - (word)heap) + PAGE; guarded = 1; fault_signal = 0; if (!sigsetjmp(resume, 0)) { (void)*p; put(" readable"); } else { put_number(" fault ", fault_signal); put_number(" code ", fault_code); } guarded = 0; }
    else if (is(o, "fork")) { fork_blocks(i, o); i = o->end; }
    else if (is(o, "thread")) { flush(); int range[2] = {i + 1, o->end}; pthread_t t; put("\n"); int e = pthread_create(&t, 0, in_thread, range); if (!e) pthread_join(t, 0); put_number("thread ", e); i = o->end; }
    else if (is(o, "vfork")) {
      static unsigned char stack[1 << 18] __attribute__((aligned(16))); flush(); int range[2] = {i + 1, o->end}; put("\n");
      pid_t p = clone(in_vfork, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, range); put("vfork"); put_status(p); i = o->end;
    }
    else if (is(o, "spawn")) { put("\n"); flush(); spawn_range(i + 1, o->end, a[0]); i = o->end; }
    else if (is(o, "exec")) { put("\n"); flush(); spawn_range(i + 1, count, 3); }
    else put(" unknown");
    put("\n");
  }
}
static void parse(const char *path) {
  int f = open(path, O_RDONLY | O_CLOEXEC); if (f < 0) _exit(94);
  size_t have = 0; for (ssize_t n; (n = read(f, text + have, sizeof text - 1 - have)) > 0;) have += n; close(f);
  int open_blocks[64], depth = 0; char *p = text;
  while (*p && count < MAX_OPERATIONS) {
    char *end = strchr(p, '\n'); if (end) *end = 0; char *next = end ? end + 1 : p + strlen(p); while (*p == ' ') p++;
    if (*p && *p != '#') {
      struct operation *o = &operations[count]; o->name = p; char *q = p + strcspn(p, " "); int k = 0;
      while (*q && k < MAX_ARGUMENTS) { *q++ = 0; o->a[k++] = strtol(q, &q, 10); while (*q && *q != ' ') q++; }
      if (is(o, "fork") || is(o, "thread") || is(o, "vfork") || is(o, "spawn")) { if (depth == 64) _exit(93); open_blocks[depth++] = count; }
      if (is(o, "and") && depth) operations[open_blocks[depth - 1]].middle = count;
      if (is(o, "end") && depth) operations[open_blocks[--depth]].end = count;
      count++;
    }
    p = next;
  }
}
int main(int n, char **v) {
  if (n < 2) return 2;
  self_path = v[0]; script_path = v[1]; parse(v[1]); prepare();
  run(n > 2 ? atoi(v[2]) : 0, n > 3 ? atoi(v[3]) : count);
  long faults; put_hash("window ", hash_pages(0, WINDOW_PAGES, &faults)); put_number(" faults ", faults); put("\n"); flush(); return 0;
}
