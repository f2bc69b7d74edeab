//! What programs may do to the agent: odd calls, signals at bad moments, foreign allocators. Right results, or a
//! refusal in words.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use c_program::Program;
use common::{skipped, text};

#[test]
fn addresses_of_managed_memory_may_be_reused_replaced_and_given_up_twice() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        #define FIXED(p, n, rights, more) mmap(p, n, rights, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0)
        #define RW (PROT_READ | PROT_WRITE)
        static void others_stay_away(void) {
            unsigned char *m[16];
            for (int i = 0; i < 16; i++) { m[i] = map(MIB); CHECK(zero(m[i], MIB)); memset(m[i], i + 1, MIB); }
            for (int i = 0; i < 16; i++) for (unsigned long k = 0; k < MIB; k += 512) CHECK(m[i][k] == i + 1);
            for (int i = 0; i < 16; i++) munmap(m[i], MIB);
        }
        int main(void) {
            unsigned long n = 4 * MIB; unsigned char *p = map(n), *q;
            fill(p, n); CHECK(!munmap(p, n));
            q = FIXED(p, n, RW, MAP_FIXED); CHECK(q == p); CHECK(zero(q, n)); fill(q, n);
            others_stay_away(); CHECK(whole(q, n));
            CHECK(!munmap(q, n / 2)); CHECK(!munmap(q, n)); CHECK(!munmap(q, n)); CHECK(!munmap(q + 4096, 4096));
            others_stay_away();
            p = map(n); fill(p, n);
            CHECK(FIXED(p, n, RW, MAP_FIXED_NOREPLACE) == MAP_FAILED && errno == EEXIST);
            CHECK(FIXED(p + MIB, MIB, RW, MAP_FIXED) == p + MIB); CHECK(zero(p + MIB, MIB)); CHECK(whole(p, MIB));
            CHECK(FIXED(p + 2 * MIB, MIB, PROT_NONE, MAP_FIXED) == p + 2 * MIB);
            CHECK(!mprotect(p + 2 * MIB, MIB, RW)); CHECK(zero(p + 2 * MIB, MIB));
            CHECK(!munmap(p, n)); q = FIXED(p, n, RW, MAP_FIXED_NOREPLACE); CHECK(q == p); CHECK(zero(q, n));
            munmap(q, n); others_stay_away();
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("3M", &[]);
    program.interposed("3M", &[]);
}

#[test]
fn mremap_moves_to_a_given_place_and_may_leave_the_old_one() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"int main(void) {
            unsigned long n = 2 * MIB; unsigned char *p = map(n), *t = map(2 * n), *q;
            fill(p, n); memset(t, 9, 2 * n);
            CHECK(mremap(p, n, 2 * n, MREMAP_MAYMOVE | MREMAP_FIXED, t) == t); CHECK(whole(t, n)); CHECK(zero(t + n, n));
            q = mremap(t, 2 * n, 2 * n, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0); CHECK(q != MAP_FAILED && q != t);
            CHECK(whole(q, n)); CHECK(zero(t, 2 * n)); fill(t, 2 * n); CHECK(whole(q, n));
            CHECK(mremap(q, 2 * n, n, MREMAP_FIXED, t) == MAP_FAILED && errno == EINVAL);
            CHECK(mremap(q, 2 * n, n, MREMAP_MAYMOVE | MREMAP_FIXED, q + n) == MAP_FAILED && errno == EINVAL);
            CHECK(mremap(q, 2 * n, n, MREMAP_MAYMOVE | MREMAP_FIXED, t) == t); CHECK(whole(t, n));
            munmap(t + n, n);
            CHECK(mremap(t, 2 * n, 3 * n, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
            CHECK(whole(t, n));
            // Between what is managed and what is not, nothing moves.
            unsigned char *k = mmap(0, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(mremap(t, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, k) == MAP_FAILED && errno == EINVAL);
            mprotect(k, n, PROT_READ | PROT_WRITE); fill(k, n);
            CHECK(mremap(k, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, t) == MAP_FAILED && errno == EINVAL);
            unsigned char *x = map(8 * MIB); fill(x, 8 * MIB);
            CHECK(whole(t, n) && whole(k, n) && whole(x, 8 * MIB));
            puts("done"); return 0;
        }"#,
    );
    let said = program.interposed("3M", &[]);
    assert!(said.contains("moved over managed memory") && said.contains("moved to a place of the kernel's"), "{said}");
}

#[test]
fn odd_advice_and_locks_are_answered_as_the_kernel_would() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"int main(void) {
            unsigned long n = MIB; unsigned char *p = map(n);
            fill(p, n);
            CHECK(!madvise(p, 0, MADV_DONTNEED)); CHECK(whole(p, n));
            CHECK(madvise(p, -4096ul, MADV_DONTNEED) == -1 && errno == EINVAL); CHECK(whole(p, n));
            CHECK(madvise(p, n, MADV_REMOVE) == -1 && errno == EINVAL); CHECK(whole(p, n));
            CHECK(!madvise(p, 100, MADV_DONTNEED)); CHECK(zero(p, 4096)); CHECK(!zero(p + 4096, 4096));
            fill(p, n);
            int self = syscall(SYS_pidfd_open, getpid(), 0); CHECK(self >= 0);
            struct iovec v = {p, n};
            CHECK(syscall(SYS_process_madvise, -1, &v, 1, MADV_PAGEOUT, 0) == -1);
            CHECK(process_madvise(self, &v, 1, MADV_PAGEOUT, 0) == (long)n); CHECK(!resident(p, n)); CHECK(whole(p, n));
            CHECK(process_madvise(self, &v, 1, MADV_DONTNEED, 0) == (long)n); CHECK(zero(p, n));
            fill(p, n);
            // A lock that is never given back would use up the budget.
            for (int i = 0; i < 16; i++) {
                unsigned char *q = map(n);
                CHECK(!(i & 1 ? mlock(q, n) : mlock2(q, n, i & 2 ? MLOCK_ONFAULT : 0)));
                CHECK(resident(q, n) == 256);
                CHECK(!munlockall()); fill(q, n);
            }
            // All locks together must leave something.
            for (int i = 0; i < 5; i++) { int refused = mlock(map(n), n); CHECK(refused == (i < 3 ? 0 : -1)); if (refused) CHECK(errno == ENOMEM); }
            // What nobody has cannot be locked, and what moves takes its lock along.
            CHECK(!munlockall()); unsigned char *gone = map(n); CHECK(!munmap(gone, n)); CHECK(mlock(gone, n) == -1 && errno == ENOMEM);
            unsigned char *old = map(n); fill(old, n); CHECK(!mlock(old, n)); unsigned char *moved = mremap(old, n, n, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
            CHECK(moved != MAP_FAILED && whole(moved, n)); fill(old, n); CHECK(!munlock(moved, n)); CHECK(process_madvise(self, &(struct iovec){old, n}, 1, MADV_PAGEOUT, 0) == (long)n); CHECK(!resident(old, n));
            for (int i = 0; i < 3; i++) CHECK(!mlock(map(n), n)); CHECK(!munlockall());
            unsigned char *big = map(64 * MIB);
            CHECK(mlock2(big, 64 * MIB, MLOCK_ONFAULT) == -1 && errno == ENOMEM);
            fill(big, 64 * MIB); CHECK(whole(big, 64 * MIB)); CHECK(whole(p, n));
            puts("done"); return 0;
        }"#,
    );
    program.interposed("4M", &[]);
}

#[test]
fn a_forked_child_keeps_the_rights_of_its_parents_memory() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static sigjmp_buf back; static void caught(int s) { siglongjmp(back, s); }
        #define REFUSED(access) (sigsetjmp(back, 1) || (access, 0))
        int main(void) {
            unsigned long n = MIB; unsigned char *p = map(n); fill(p, n);
            CHECK(!mprotect(p, n / 2, PROT_READ)); CHECK(!mprotect(p + n / 2, n / 4, PROT_NONE));
            signal(SIGSEGV, caught);
            pid_t pid = fork();
            CHECK(REFUSED(p[0] = 1)); CHECK(REFUSED(*(volatile char *)(p + n / 2))); p[n - 8]++; p[n - 8]--;
            CHECK(!mprotect(p, n, PROT_READ | PROT_WRITE)); CHECK(whole(p, n));
            if (pid == 0) _exit(0);
            int s; waitpid(pid, &s, 0); if (s) { printf("the child ended with %x\n", s); return 1; }
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("2M", &[]);
    program.interposed("2M", &[]);
}

#[test]
fn signal_handlers_may_touch_evicted_memory_and_fork_whatever_they_interrupt() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static unsigned char *p; static unsigned long n = 12 * MIB, ticks;
        static void tick(int s) {
            int e = errno; ticks++;
            unsigned char *at = p + ticks * 7919 * 4096 % n; *(volatile unsigned char *)at = *at;
            if (ticks % 400 == 0) { pid_t pid = fork(); if (pid == 0) _exit(*at == 255); waitpid(pid, 0, 0); }
            errno = e;
        }
        int main(void) {
            p = map(n); fill(p, n);
            struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART}; sigaction(SIGALRM, &a, 0);
            struct itimerval every = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}}; setitimer(ITIMER_REAL, &every, 0);
            for (time_t start = time(0); time(0) - start < 3;) {
                unsigned char *q = map(MIB); for (int i = 0; i < 256; i++) q[i * 4096] = i;
                madvise(q, MIB / 2, MADV_DONTNEED); q = mremap(q, MIB, 2 * MIB, MREMAP_MAYMOVE); munmap(q, 2 * MIB);
                void *x = malloc(300000); memset(x, 1, 300000); x = realloc(x, 900000); free(x);
                madvise(p + MIB, MIB, MADV_PAGEOUT); mlock(p, 16384); munlock(p, 16384);
            }
            setitimer(ITIMER_REAL, &never, 0);
            CHECK(whole(p, n)); CHECK(ticks > 400);
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("3M", &[]);
    program.interposed("3M", &[]);
}

#[test]
fn served_in_the_thread_faults_reach_the_pager_whatever_becomes_of_sigbus() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static unsigned char *p; static unsigned long n = 8 * MIB, ticks; static volatile int seen;
        static void tick(int s) { volatile unsigned char *q = p; q[++ticks * 7919 * 4096 % n] ^= 0; }
        static void lost(int s, siginfo_t *i, void *u) { seen = whole(p, n) ? 1 : 2; if (seen == 1) { puts("done"); fflush(stdout); } _exit(seen - 1); }
        static void sent(int s) { seen++; }
        int main(void) {
            p = map(n); fill(p, n);
            sigset_t all, now; sigfillset(&all); CHECK(!sigprocmask(SIG_SETMASK, &all, 0)); CHECK(!pthread_sigmask(SIG_BLOCK, &all, 0));
            CHECK(whole(p, n)); sigemptyset(&all); sigprocmask(SIG_SETMASK, &all, &now); CHECK(sigismember(&now, SIGTERM));
            CHECK(signal(SIGBUS, SIG_IGN) == SIG_DFL); CHECK(whole(p, n)); kill(getpid(), SIGBUS);
            CHECK(signal(SIGBUS, sent) == SIG_IGN); kill(getpid(), SIGBUS); CHECK(seen == 1); CHECK(whole(p, n));
            CHECK(signal(SIGBUS, SIG_DFL) == sent); CHECK(whole(p, n));
            stack_t own = {.ss_sp = malloc(1 << 18), .ss_size = 1 << 18}; CHECK(!sigaltstack(&own, 0));
            struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART | SA_ONSTACK}, b = {.sa_sigaction = lost, .sa_flags = SA_SIGINFO};
            sigfillset(&a.sa_mask); sigaction(SIGALRM, &a, 0); CHECK(!sigaction(SIGBUS, &b, 0));
            struct itimerval every = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}}; setitimer(ITIMER_REAL, &every, 0);
            for (time_t start = time(0); time(0) - start < 2;) { fill(p, n); unsigned char *q = map(MIB); memset(q, 1, MIB); munmap(q, MIB); }
            sigset_t others; sigfillset(&others); sigdelset(&others, SIGALRM); struct timespec second = {1, 0};
            for (int k = 0; k < 50; k++) {
                fill(p, n); CHECK(sigsuspend(&others) == -1 && ppoll(0, 0, &second, &others) == -1);
                CHECK(pselect(0, 0, 0, 0, &second, &others) == -1 && errno == EINTR);
            }
            setitimer(ITIMER_REAL, &never, 0); CHECK(ticks > 50);
            int f = open(".", O_TMPFILE | O_RDWR, 0600); CHECK(f >= 0 && !ftruncate(f, 8192));
            volatile char *beyond = mmap(0, 8192, PROT_READ, MAP_SHARED, f, 0); CHECK(!ftruncate(f, 0));
            return beyond[4096];
        }"#,
    );
    program.interposed("2M", &["--in-thread"]);
}

#[test]
fn on_full_end_ends_programs_that_catch_everything() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static unsigned char *p; static unsigned long n = 64 * MIB;
        static void report(int s) { for (;;) for (unsigned long i = 0; i < n; i += 4096) ((volatile unsigned char *)p)[i]++; }
        int main(void) {
            for (int s = 1; s < 32; s++) if (s != SIGBUS) signal(s, report);
            p = map(n); for (unsigned long i = 0, r = 1; i < n; i += 8) { r = r * 6364136223846793005ul + 1442695040888963407ul; *(unsigned long *)(p + i) = r; }
            puts("not ended"); return 0;
        }"#,
    );
    for mode in [&[][..], &["--in-thread"]] {
        let mut command = Command::new("timeout");
        command.args([
            "-s",
            "KILL",
            "30",
            env!("CARGO_BIN_EXE_refault"),
            "run",
            "--memory",
            "4M",
            "--store",
            "pool=4M",
        ]);
        command.args(["--interpose", "--on-full", "end"]).args(mode).arg("--").arg(&program.path);
        let output = command.output().expect("timeout starts");
        let message = text(&output.stderr);
        assert_eq!(output.status.signal(), Some(6), "{mode:?}: {:?} {message}", output.status);
        assert!(message.contains("the store is full and the budget is used up"), "{message}");
    }
}

#[test]
fn blocks_of_other_allocators_are_told_apart() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        extern void *__libc_malloc(size_t), *__libc_memalign(size_t, size_t);
        int main(void) {
            for (size_t n = 8; n < 1000000; n *= 3) {
                unsigned char *p = __libc_malloc(n), *q = __libc_memalign(64, n), *r = __libc_malloc(n);
                memset(p, 1, n); memset(q, 2, n); memset(r, 3, n);
                CHECK(malloc_usable_size(p) >= n); q = realloc(q, 2 * n); CHECK(q[n - 1] == 2); free(p); free(q); free(r);
            }
            unsigned char *p = memalign(3, 100); CHECK(p); free(p);
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("2M", &[]);
    program.interposed("2M", &[]);
}

const CPP: &str = r#"
#include <cstdio>
#include <cstring>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>
static int handled, bad[3];
static std::string text(int i, int t) { return std::string(500 + i % 700, char('a' + (i + t) % 26)); }
struct alignas(256) Wide { char bytes[512]; };
int main() {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++) threads.emplace_back([t] {
        std::map<int, std::string> strings;
        for (int i = 0; i < 5000; i++) strings[i] = text(i, t);
        std::vector<std::unique_ptr<char[]>> large;
        for (int i = 0; i < 20; i++) large.emplace_back(new char[300000]);
        for (int i = 0; i < 5000; i++) bad[t] += strings[i] != text(i, t);
        free(strdup("hello")); delete new Wide; delete[] new Wide[3];
        ::operator delete(::operator new(100, std::nothrow));
    });
    for (auto &thread : threads) thread.join();
    volatile size_t most = ~size_t(0) / 4;
    std::set_new_handler([] { if (++handled == 3) std::set_new_handler(nullptr); });
    try { ::operator new(most); puts("more than there is"); return 1; } catch (std::bad_alloc &) {}
    if (new (std::nothrow) char[most] || handled != 3 || bad[0] + bad[1] + bad[2]) { puts("wrong"); return 1; }
    puts("done");
}"#;

#[test]
fn cpp_programs_are_managed_also_when_linked_to_another_allocator() {
    if skipped(&["g++"]) {
        return;
    }
    for library in [None, Some("-l:libjemalloc.so.2"), Some("-l:libtcmalloc_minimal.so.4")] {
        let directory = tempfile::TempDir::new().expect("a directory");
        let (source, path) = (directory.path().join("program.cc"), directory.path().join("program"));
        std::fs::write(&source, CPP).expect("writes");
        let mut gcc = Command::new("g++");
        gcc.args(["-O1", "-fno-builtin", "-w", "-pthread", "-o"]).arg(&path).arg(&source);
        let built = gcc.arg("-Wl,--no-as-needed").args(library).output().expect("g++ starts");
        if !built.status.success() {
            let library = library.expect("a program without other libraries can be built");
            refault_testing::skip_required(format_args!("{library} is not installed"));
            continue;
        }
        let stats = directory.path().join("stats");
        let output = Command::new("timeout")
            .args(["-k", "5", "60", env!("CARGO_BIN_EXE_refault"), "run", "--memory", "4M", "--stats"])
            .arg(&stats)
            .arg("--")
            .arg(&path)
            .output()
            .expect("timeout starts");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out == "done\n", "{library:?} {:?}\n{out}\n{err}", output.status);
        let lines = std::fs::read_to_string(&stats).expect("statistics");
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().expect("a line")).expect("JSON");
        // 3 threads with more than 4 MB each.
        assert!(last["pswpout"].as_u64().expect("a number") > 2000, "{library:?} {last}");
    }
}

/// A shell that sets limits and goes on as the command.
fn limited(limit: &str, memory: &str, program: &Program) -> (bool, String) {
    let script = format!("ulimit {limit} && exec timeout -k 5 60 \"$0\" run --memory {memory} -- \"$1\"");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_refault")])
        .arg(&program.path)
        .output()
        .expect("a shell starts");
    let done = output.status.success() && text(&output.stdout) == "done\n";
    (done, format!("{limit} {:?}\n{}{}", output.status, text(&output.stdout), text(&output.stderr)))
}

#[test]
fn the_heap_of_many_threads_is_managed_and_takes_few_tables() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static void *churn(void *mine) {
            unsigned s = (unsigned long)mine * 2654435761u + 1; unsigned char *p[16] = {0}; size_t z[16] = {0};
            for (int k = 0; k < 24; k++) {
                s = s * 1664525 + 1013904223; int i = (s >> 8) % 16; size_t n = (s >> 12) % 60000 + 1;
                for (size_t j = 0; p[i] && j < z[i]; j += 511) CHECK(p[i][j] == (unsigned char)(z[i] + i));
                if (s & 64) p[i] = realloc(p[i], n); else { free(p[i]); p[i] = malloc(n); }
                z[i] = n; memset(p[i], n + i, n);
            }
            for (int i = 0; i < 16; i++) free(p[i]);
            return 0;
        }
        int main(void) {
            pthread_t t[200]; pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setstacksize(&a, 64 << 10);
            for (long i = 0; i < 200; i++) CHECK(!pthread_create(t + i, &a, churn, (void *)i));
            for (int i = 0; i < 200; i++) pthread_join(t[i], 0);
            puts("done"); return 0;
        }"#,
    );
    let stats = program.directory.path().join("stats");
    program.interposed("8M", &["--stats", stats.to_str().expect("text")]);
    let lines = std::fs::read_to_string(&stats).expect("statistics");
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().expect("a line")).expect("JSON");
    let number = |name: &str| last[name].as_u64().expect("a number");
    assert!(number("unmanaged_mmap_bytes") == 0, "{last}");
    assert!(number("managed_pages") < 20 << 18, "more than 20 GiB of addresses: {last}");
}

/// A process whose first thread has ended answers fewer questions about itself, so the pager drops entries another way.
#[test]
fn a_program_goes_on_without_its_first_thread() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static void *work(void *mine) {
            usleep(100000);
            unsigned long n = 8 * MIB; unsigned char *p = map(n);
            for (int k = 0; k < 3; k++) { fill(p, n); CHECK(whole(p, n)); }
            pid_t pid = fork(); if (pid == 0) _exit(whole(p, n) ? 0 : 7);
            int s; CHECK(waitpid(pid, &s, 0) == pid); CHECK(!s); CHECK(whole(p, n));
            puts("done"); exit(0);
        }
        int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_exit(0); }"#,
    );
    program.comes_through("2M", &[]);
    program.interposed("2M", &[]);
    program.interposed("2M", &["--in-thread"]);
}

#[test]
fn limits_on_addresses_files_and_descriptors_are_kept_or_named() {
    if skipped(&["gcc", "sh"]) {
        return;
    }
    let program = Program::new(
        r#"int main(void) {
            unsigned long n = 8 * MIB; unsigned char *p = map(n); fill(p, n);
            // Its domains of messages lie in memory that a child without a pager has not.
            char name[50]; for (int i = 0; i < 300; i++) { sprintf(name, "domain%d", i); bindtextdomain(name, "/nowhere"); }
            madvise(p, n, MADV_PAGEOUT); fill(p, n);
            pid_t pid = fork(); if (pid < 0) { printf("fork: %d\n", errno == EAGAIN); return 3; }
            if (pid == 0) _exit(whole(p, n) ? 0 : 7);
            int s; waitpid(pid, &s, 0); if (s) { printf("the child ended with %x\n", s); return 1; }
            CHECK(whole(p, n)); puts("done"); return 0;
        }"#,
    );
    for limit in ["-v 4000000", "-d 500000", "-n 16", "-n 64", "-f 20000"] {
        let (done, said) = limited(limit, "2M", &program);
        assert!(done, "{said}");
    }
    let (done, said) = limited("-f 1000", "2M", &program);
    assert!(!done && said.contains("limit on file sizes (ulimit -f)"), "{said}");
    let (done, said) = limited("-v 20000", "2M", &program);
    assert!(!done, "{said}");
    // Too few for the pager, for a fork, for the child's pager: always in words.
    for descriptors in 4..12 {
        let (done, said) = limited(&format!("-n {descriptors}"), "2M", &program);
        let words = ["too many open files", "Too many open files", "fork: 1", "Error 24", "userfaultfd is refused"];
        assert!(done || words.iter().any(|words| said.contains(words)), "{said}");
        assert!(!said.contains("the child ended with") || said.contains("ended with 100\n"), "{said}");
    }
}

#[test]
fn evicted_memory_is_read_from_outside_whole_or_not_at_all() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"int main(void) {
            unsigned long n = 8 * MIB; unsigned char *p = map(n); fill(p, n);
            int to[2], from[2]; CHECK(!pipe(to) && !pipe(from));
            pid_t parent = getpid(), pid = fork();
            if (pid == 0) {
                // Looks at the parent's memory, not at its own.
                char path[50]; sprintf(path, "/proc/%d/mem", parent); int mem = open(path, O_RDONLY), read_whole = 0;
                unsigned long *expected = malloc(4096), *seen = malloc(4096);
                for (unsigned long at = 0; at < n; at += 4096) {
                    for (int i = 0; i < 512; i++) expected[i] = (at + i * 8) * 0x9e3779b97f4a7c15ul + 1;
                    struct iovec here = {seen, 4096}, there = {p + at, 4096};
                    memset(seen, 0, 4096);
                    if (process_vm_readv(parent, &here, 1, &there, 1, 0) != 4096 || memcmp(seen, expected, 4096)) _exit(2);
                }
                for (unsigned long at = 0; at < n; at += 4096) {
                    for (int i = 0; i < 512; i++) expected[i] = (at + i * 8) * 0x9e3779b97f4a7c15ul + 1;
                    long got = pread(mem, seen, 4096, (off_t)(p + at));
                    if (got == 4096) { read_whole++; if (memcmp(seen, expected, 4096)) _exit(3); } else if (got >= 0 || errno != EIO) _exit(4);
                }
                _exit(read_whole > 100 && read_whole < 2048 ? 0 : 5);
            }
            int s; CHECK(waitpid(pid, &s, 0) == pid); if (s) { printf("the child ended with %x\n", s); return 1; }
            CHECK(whole(p, n)); puts("done"); return 0;
        }"#,
    );
    program.interposed("2M", &[]);
}

#[test]
fn stacks_may_lie_in_managed_memory_but_not_fork() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static unsigned char *p; static unsigned long n = 8 * MIB;
        static void *deep(void *mine) {
            volatile unsigned char here[200000]; memset((void *)here, 7, sizeof here);
            for (int k = 0; k < 20; k++) { unsigned char *q = map(MIB); memset(q, k, MIB); CHECK(q[99999] == k); munmap(q, MIB); }
            CHECK(fork() == -1 && errno == EAGAIN);
            for (unsigned i = 0; i < sizeof here; i++) CHECK(here[i] == 7);
            return mine;
        }
        int main(void) {
            p = map(n); pthread_t t[8]; pthread_attr_t a; pthread_attr_init(&a);
            for (int i = 0; i < 8; i++) { pthread_attr_setstack(&a, aligned_alloc(4096, 1 << 19), 1 << 19); CHECK(!pthread_create(t + i, &a, deep, 0)); }
            for (int i = 0; i < 8; i++) { fill(p, n); pthread_join(t[i], 0); }
            CHECK(whole(p, n)); puts("done"); return 0;
        }"#,
    );
    let said = program.interposed("2M", &[]);
    assert!(said.contains("a thread whose stack lies in managed memory cannot fork"), "{said}");
}

/// What a thread needs while it is in the pager, where it holds what serving a fault takes, must not be evicted under
/// it: its stack, and what libc keeps for it at the end of that stack.
#[test]
fn threads_and_coroutines_may_evict_the_stacks_on_which_they_run() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        #include <ucontext.h>
        static unsigned long len = 1 << 18;
        static void leave_and_come_back(unsigned char *stack) {
            for (int k = 0; k < 300; k++) {
                CHECK(!madvise(stack, len, MADV_PAGEOUT));
                unsigned char *q = map(MIB); q[k * 1000] = k; CHECK(q[k * 1000] == (unsigned char)k); munmap(q, MIB);
                CHECK(!madvise(stack, len, MADV_PAGEOUT));
                free(malloc(200 * k)); FILE *f = fopen("/dev/null", "w"); CHECK(f); fclose(f);
                CHECK(!madvise(stack, len, MADV_PAGEOUT));
                unsigned char *r = map(MIB); r = mremap(r, MIB, 3 * MIB, MREMAP_MAYMOVE); CHECK(r != MAP_FAILED); munmap(r, 3 * MIB);
            }
        }
        static void *thread(void *stack) { leave_and_come_back(stack); return stack; }
        static ucontext_t back, there; static unsigned char *mine; static int ended;
        static void coroutine(void) { leave_and_come_back(mine); ended = 1; }
        int main(void) {
            pthread_t t[3]; pthread_attr_t a; pthread_attr_init(&a);
            for (int i = 0; i < 3; i++) { unsigned char *s = aligned_alloc(4096, len); pthread_attr_setstack(&a, s, len); CHECK(!pthread_create(t + i, &a, thread, s)); }
            getcontext(&there); mine = aligned_alloc(4096, len); there.uc_stack.ss_sp = mine; there.uc_stack.ss_size = len; there.uc_link = &back;
            makecontext(&there, coroutine, 0); CHECK(!swapcontext(&back, &there)); CHECK(ended);
            for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("2M", &[]);
    program.interposed("2M", &[]);
}

/// What libc allocates for locales comes from the agent's own heap, and in-thread so do larger copies of strings.
/// Whoever evicts uses that heap too.
#[test]
fn signal_handlers_may_touch_evicted_memory_while_the_agents_heap_is_in_use() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static unsigned char *p; static volatile unsigned long sum, handled; static unsigned at; static char words[3000];
        // Each time a little later, so that the rest goes on however slow this is.
        static void again(void) { struct itimerval in = { { 0, 0 }, { 0, 50 + handled % 300 } }; setitimer(ITIMER_REAL, &in, 0); }
        static void handler(int s) { int e = errno; for (int i = 0; i < 4; i++) sum += p[at++ * 7919ul * 4096 % (8 * MIB)]; handled++; again(); errno = e; }
        int main(void) {
            p = map(8 * MIB); fill(p, 8 * MIB); struct sigaction a = { .sa_handler = handler, .sa_flags = SA_RESTART }; sigaction(SIGALRM, &a, 0); again();
            memset(words, 'w', sizeof words - 1);
            while (handled < 8000) {
                setlocale(LC_ALL, "C.UTF-8"); setlocale(LC_ALL, "C");
                for (int i = 0; i < 100; i++) { char *copies[10]; for (int k = 0; k < 10; k++) copies[k] = strdup(words + k * 100); for (int k = 0; k < 10; k++) free(copies[k]); }
            }
            signal(SIGALRM, SIG_IGN); CHECK(whole(p, 8 * MIB)); puts("done"); return 0;
        }"#,
    );
    program.comes_through("2M", &[]);
    program.interposed("2M", &[]);
    program.interposed("2M", &["--in-thread"]);
}
