//! What programs may do to the agent: odd calls, signals at bad moments, foreign allocators. Right results, or a
//! refusal in words.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

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
    program.comes_through("3M", &[]);
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
            unsigned char *x = map(8 * MIB); fill(x, 8 * MIB);
            CHECK(whole(t, n) && whole(x, 8 * MIB));
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("3M", &[]);
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
    program.comes_through("2M", &[]);
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
    program.comes_through("3M", &[]);
}

#[test]
fn faults_are_served_whatever_becomes_of_sigbus() {
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
    program.comes_through("2M", &[]);
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
    program.comes_through("2M", &[]);
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
fn the_heap_of_many_threads_is_whole() {
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
    program.comes_through("8M", &[]);
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
    program.comes_through("2M", &[]);
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
    program.comes_through("2M", &[]);
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
    program.comes_through("2M", &[]);
}
