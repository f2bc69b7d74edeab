//! One budget over the processes of a tree: shared by need, whatever those do that have more than they need.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use c_program::Program;
use common::skipped;

/// `work(n, passes)` writes to `n` bytes again and again; false if anything is not as it was written before.
const WORK: &str = r#"
    #include <poll.h>
    #include <time.h>
    static int work(unsigned long n, int passes) {
        unsigned char *p = map(n); CHECK(p != MAP_FAILED);
        for (int pass = 1; pass <= passes; pass++)
            for (unsigned long i = 0; i < n; i += 4096) {
                unsigned long *word = (unsigned long *)(p + i);
                if (word[0] != (pass > 1 ? i + pass - 1 : 0)) return 0;
                word[0] = i + pass; word[9] = i * 77;
            }
        return !munmap(p, n);
    }
    static pid_t child(unsigned long n, int passes) {
        pid_t pid = fork(); CHECK(pid >= 0);
        if (!pid) _exit(!work(n, passes));
        return pid;
    }
    static int ended_well(pid_t pid) { int status = 1; return waitpid(pid, &status, 0) == pid && status == 0; }
    static long ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
"#;

/// A figure of the summary that a run has written.
fn figure(program: &Program, name: &str) -> u64 {
    let text = std::fs::read_to_string(program.directory.path().join("summary.json")).expect("it was written");
    let summary: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    summary[name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"))
}

#[test]
fn two_that_need_all_of_it_have_half_each() {
    if skipped(&["gcc"]) {
        return;
    }
    let both = Program::new(&format!(
        "{WORK} int main(void) {{ pid_t a = child(24 * MIB, 8), b = child(24 * MIB, 8); CHECK(ended_well(a)); CHECK(ended_well(b)); puts(\"done\"); return 0; }}"
    ));
    let one = Program::new(&format!("{WORK} int main(void) {{ CHECK(work(24 * MIB, 8)); puts(\"done\"); return 0; }}"));
    let flags = ["--summary", "summary.json"];
    one.comes_through("8M", &flags);
    both.comes_through("16M", &flags);
    let (alone, together) = (figure(&one, "faults"), figure(&both, "faults"));
    assert!(together <= 3 * 2 * alone, "{together} faults of two, {alone} of one in half of the memory");
    assert!(figure(&both, "peak_bytes") <= 16 << 20, "never more than the budget");
}

/// The one that came first has everything, and sleeps in a call that is made again without being seen.
#[test]
fn who_sleeps_gives_way_and_sleeps_on() {
    if skipped(&["gcc"]) {
        return;
    }
    let sleeps = [
        ("waitpid", "(void)0;"),
        ("read", "char c; CHECK(read(ends[0], &c, 1) == 1 && c == 'x');"),
        ("poll", "struct pollfd f = {.fd = never[0], .events = POLLIN}; CHECK(poll(&f, 1, 900) == 0);"),
        ("nanosleep", "struct timespec t = {0, 900000000}; CHECK(!nanosleep(&t, 0));"),
        ("usleep", "CHECK(!usleep(900000));"),
        (
            "select",
            "fd_set s; FD_ZERO(&s); FD_SET(never[0], &s); struct timeval t = {0, 900000}; CHECK(select(never[0] + 1, &s, 0, 0, &t) == 0);",
        ),
        (
            "cond_timedwait",
            "pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; pthread_cond_t c = PTHREAD_COND_INITIALIZER; struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
             t.tv_nsec += 900000000; if (t.tv_nsec >= 1000000000) { t.tv_nsec -= 1000000000; t.tv_sec++; } pthread_mutex_lock(&m); CHECK(pthread_cond_timedwait(&c, &m, &t) == ETIMEDOUT);",
        ),
    ];
    for (name, sleep) in sleeps {
        let timed = !["waitpid", "read"].contains(&name);
        let program = Program::new(&format!(
            r#"{WORK}
            int main(void) {{
                int ends[2], never[2]; CHECK(!pipe(ends) && !pipe(never));
                unsigned char *p = map(24 * MIB); for (unsigned long i = 0; i < 24 * MIB; i += 4096) *(unsigned long *)(p + i) = i + 5;
                pid_t pid = fork(); CHECK(pid >= 0);
                if (!pid) {{ munmap(p, 24 * MIB); int good = work(16 * MIB, 60); CHECK(write(ends[1], "x", 1) == 1); _exit(!good); }}
                long begun = ms(); {sleep} long slept = ms() - begun;
                if ({timed}) CHECK(slept >= 899 && slept < 1800);
                CHECK(ended_well(pid));
                for (unsigned long i = 0; i < 24 * MIB; i += 4096) CHECK(*(unsigned long *)(p + i) == i + 5);
                puts("done"); return 0;
            }}"#,
            timed = i32::from(timed),
        ));
        program.comes_through("24M", &["--summary", "summary.json"]);
        // Sixty passes over 16 MiB, of which nothing comes to fit if the sleeper keeps its 24: 245 thousand pages would
        // come back. It gives half at once, and half of what is left each tenth of a second.
        let again = figure(&program, "read_back");
        assert!(again < 100_000, "{name}: {again} pages were brought back");
    }
}

/// It computes, and neither faults nor calls the kernel: it is asked where it runs.
#[test]
fn who_computes_gives_way() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(&format!(
        r#"{WORK}
        int main(void) {{
            volatile int *ended = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            unsigned char *p = map(24 * MIB); for (unsigned long i = 0; i < 24 * MIB; i += 4096) *(unsigned long *)(p + i) = i + 5;
            pid_t pid = fork(); CHECK(pid >= 0);
            if (!pid) {{ munmap(p, 24 * MIB); int good = work(16 * MIB, 60); *ended = 1; _exit(!good); }}
            volatile unsigned long sum = 0; while (!*ended) sum += *ended + 1;
            CHECK(ended_well(pid)); for (unsigned long i = 0; i < 24 * MIB; i += 4096) CHECK(*(unsigned long *)(p + i) == i + 5);
            puts("done"); return 0;
        }}"#
    ));
    program.comes_through("24M", &["--summary", "summary.json"]);
    let again = figure(&program, "read_back");
    assert!(again < 100_000, "{again} pages were brought back");
}
