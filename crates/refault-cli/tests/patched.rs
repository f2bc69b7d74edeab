//! Calls from patched sites of libraries: signals, masks and memory are as they are without the tool.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use std::process::Command;

use c_program::Program;
use common::{skipped, text};

const FLAGS: &[&str] = &[];

/// Processor time of a call that is caught, and of changes of masks and actions.
const COST: &str = r#"
    static double microseconds(void) { struct timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); return t.tv_sec * 1e6 + t.tv_nsec / 1e3; }
    static void handler(int s) {}
    /* A program's own call with no room for a jump behind it is always caught. */
    static long caught(void) { long r; __asm__ volatile("syscall\n nop\n nop" : "=a"(r) : "0"(SYS_getppid) : "rcx", "r11", "memory"); return r; }
    static double caught_cost(void) { double a = microseconds(); for (int i = 0; i < 20000; i++) caught(); return (microseconds() - a) / 20000; }
    static double mask_cost(void) {
        struct sigaction s = {.sa_handler = handler}; sigset_t m; sigemptyset(&m); sigaddset(&m, SIGUSR2);
        double a = microseconds(); for (int i = 0; i < 10000; i++) { sigprocmask(i & 1 ? SIG_BLOCK : SIG_UNBLOCK, &m, 0); sigaction(SIGUSR1, &s, 0); } return (microseconds() - a) / 20000;
    }
"#;

/// Masks are exact and signals come where they are opened, and only there, while a timer interrupts every step of the way;
/// memory that is mapped and unmapped meanwhile is whole.
#[test]
fn masks_and_actions_are_exact_under_a_storm_of_signals() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static volatile int came, usr;
        static void on_timer(int s) { sigset_t m; came++; sigprocmask(SIG_SETMASK, 0, &m); if (!sigismember(&m, SIGALRM) || !sigismember(&m, SIGUSR2)) _exit(7); }
        static void on_user(int s, siginfo_t *i, void *c) { usr++; }
        static int same(sigset_t *a, int first, int second) { for (int s = 1; s < 65; s++) if (s != SIGALRM && sigismember(a, s) == 1 != (s == first || s == second)) return 0; return 1; }
        int main(void) {
            for (int i = 0; i < 2000; i++) close(-1);
            struct sigaction t = {.sa_handler = on_timer, .sa_flags = SA_RESTART}, u = {.sa_sigaction = on_user, .sa_flags = SA_SIGINFO}, o;
            sigaddset(&t.sa_mask, SIGUSR2); CHECK(!sigaction(SIGALRM, &t, 0) && !sigaction(SIGUSR1, &u, 0));
            CHECK(sigaction(SIGUSR1, 0, &o) == 0 && o.sa_sigaction == on_user && o.sa_flags & SA_SIGINFO);
            CHECK(sigaction(SIGKILL, &u, 0) == -1 && errno == EINVAL); CHECK(sigaction(65, &u, 0) == -1 && errno == EINVAL);
            CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 8, 0, 8) == -1 && errno == EFAULT); sigset_t e, b, m, w; sigemptyset(&e);
            CHECK(sigprocmask(99, &e, 0) == -1 && errno == EINVAL); CHECK(pthread_sigmask(99, &e, 0) == EINVAL);
            struct itimerval v = {{0, 150}, {0, 150}}; CHECK(!setitimer(ITIMER_REAL, &v, 0));
            sigemptyset(&b); sigaddset(&b, SIGUSR1); sigaddset(&b, SIGSEGV); unsigned char *p = map(4 * MIB); fill(p, 4 * MIB);
            for (int i = 0; i < 10000; i++) {
                CHECK(!sigprocmask(SIG_BLOCK, &b, &m) && same(&m, 0, 0)); CHECK(!sigprocmask(SIG_BLOCK, 0, &m) && same(&m, SIGUSR1, SIGSEGV));
                int before = usr; if (i % 16 == 0) { raise(SIGUSR1); CHECK(usr == before); CHECK(!sigpending(&w) && sigismember(&w, SIGUSR1)); }
                CHECK(!sigaction(SIGUSR1, &u, &o) && o.sa_sigaction == on_user);
                if (i % 3 == 0) CHECK(!sigprocmask(SIG_SETMASK, &e, &m)); else CHECK(!sigprocmask(SIG_UNBLOCK, &b, &m));
                CHECK(same(&m, SIGUSR1, SIGSEGV)); CHECK(usr == before + (i % 16 == 0));
                unsigned char *q = map(3 * 4096); CHECK(zero(q, 3 * 4096)); memset(q, i, 3 * 4096); CHECK(!mprotect(q + 4096, 4096, PROT_READ)); CHECK(q[5000] == (i & 255)); CHECK(!munmap(q, 3 * 4096));
                if (i % 500 == 0) { CHECK(whole(p, 4 * MIB)); sigset_t all; sigfillset(&all); CHECK(!sigprocmask(SIG_BLOCK, &all, 0)); int then = came; usleep(400); CHECK(came == then); CHECK(!sigprocmask(SIG_SETMASK, &e, 0)); CHECK(came > then); }
            }
            CHECK(came > 30); puts("done"); return 0;
        }"#,
    );
    program.comes_through("3M", FLAGS);
}

/// Changing masks and actions costs a fraction of a caught call, in a program that has more libraries than most too.
#[test]
fn masks_cost_a_fraction_of_a_caught_call_however_many_libraries_there_are() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(&format!(
        "{COST} int main(void) {{ mask_cost(); double caught = caught_cost(), mask = mask_cost(); \
         if (mask > caught / 2) {{ printf(\"%f us, caught %f us\\n\", mask, caught); return 1; }} puts(\"done\"); return 0; }}"
    ));
    program.comes_through("8M", FLAGS);
    let within = |name: &str| program.directory.path().join(name);
    std::fs::write(within("empty.c"), "int empty;").expect("writes");
    let build = "gcc -shared -o l1.so empty.c && for i in $(seq 2 60); do cp l1.so l$i.so; done && \
                 gcc -O1 -w -pthread -o program program.c -Wl,--no-as-needed -lc $(seq -f $PWD/l%g.so 60)";
    let built =
        Command::new("sh").args(["-c", build]).current_dir(program.directory.path()).output().expect("sh starts");
    assert!(built.status.success(), "{}", text(&built.stderr));
    program.comes_through("8M", FLAGS);
}
