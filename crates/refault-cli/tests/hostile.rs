//! What programs may do to the agent: odd calls, signals at bad moments, foreign allocators. Right results, or a refusal in
//! words.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use c_program::Program;
use common::skipped;

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
    let said = program.comes_through("3M", &[]);
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
            unsigned char *big = map(64 * MIB);
            CHECK(mlock2(big, 64 * MIB, MLOCK_ONFAULT) == -1 && errno == ENOMEM);
            fill(big, 64 * MIB); CHECK(whole(big, 64 * MIB)); CHECK(whole(p, n));
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("4M", &[]);
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
}
