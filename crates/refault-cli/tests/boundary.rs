//! Programs under `refault run`: memory, signals, stacks, forks and files are as they are without it.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use c_program::Program;
use common::{skipped, text};
use refault_testing::skip;

const FLAGS: &[&str] = &[];

/// Does not compress, so the file is needed; the kernel says what is resident.
#[test]
fn what_does_not_fit_goes_out_and_comes_back() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static long resident_kib(void) {
            char line[256]; long kib = 0; FILE *f = fopen("/proc/self/status", "r");
            while (fgets(line, sizeof line, f)) sscanf(line, "RssAnon: %ld", &kib);
            fclose(f); return kib;
        }
        int main(void) {
            unsigned char *p = map(32 * MIB); fill(p, 32 * MIB);
            long kib = resident_kib(); if (kib > 10 * 1024) { printf("%ld KiB are resident\n", kib); return 1; }
            CHECK(whole(p, 32 * MIB)); CHECK(whole(p, 32 * MIB)); puts("done"); return 0;
        }"#,
    );
    let said = program.comes_through("8M", FLAGS);
    assert!(said.contains("refault: peak ") && said.contains("pages stored"), "{said}");
}

#[test]
fn forked_children_have_what_their_parent_had_and_no_more() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        int main(void) {
            unsigned char *p = map(16 * MIB); fill(p, 16 * MIB);
            for (int i = 0; i < 4; i++) {
                pid_t pid = fork(); CHECK(pid >= 0);
                if (pid == 0) { int good = whole(p, 16 * MIB); memset(p, i, 16 * MIB); for (long k = 0; k < 16 * MIB; k += 4096) good &= p[k] == i; _exit(!good); }
                CHECK(whole(p, 8 * MIB)); int s; CHECK(waitpid(pid, &s, 0) == pid && !s); CHECK(whole(p, 16 * MIB));
            }
            CHECK(!system("exit 0")); puts("done"); return 0;
        }"#,
    );
    program.comes_through("6M", FLAGS);
}

/// The most that a program used of its budget, in MiB, by the line that is printed at its end.
fn peak(said: &str) -> f64 {
    let (_, rest) = said.split_once("refault: peak ").unwrap_or_else(|| panic!("no peak in {said}"));
    let mut words = rest.split(' ');
    let (number, unit) = (words.next().and_then(|word| word.parse::<f64>().ok()), words.next());
    number.expect("a number") / if unit == Some("MiB") { 1.0 } else { 1024.0 }
}

/// Executable memory is not managed: what becomes so is whole, and named beside the budget, which holds for the rest.
#[test]
fn memory_that_becomes_executable_is_left_alone_and_named() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        #include <sys/personality.h>
        int main(void) {
            unsigned char *code = map(16 * MIB), *p = map(16 * MIB); fill(code, 16 * MIB); fill(p, 16 * MIB);
            CHECK(!mprotect(code, 16 * MIB, PROT_READ | PROT_WRITE | PROT_EXEC)); CHECK(whole(code, 16 * MIB));
            memcpy(code, "\xb8\x2a\0\0\0\xc3", 6); CHECK(((int (*)(void))code)() == 42);
            for (int i = 0; i < 3; i++) CHECK(whole(p, 16 * MIB));
            CHECK(!mprotect(code, 16 * MIB, PROT_READ | PROT_WRITE)); CHECK(whole(code + 4096, 0));
            CHECK(personality(PER_LINUX | READ_IMPLIES_EXEC) >= 0);
            unsigned char *more = map(8 * MIB), *heap = sbrk(8 * MIB); memset(more, 7, 8 * MIB); memset(heap, 7, 8 * MIB);
            memcpy(heap, "\xb8\x2b\0\0\0\xc3", 6); CHECK(((int (*)(void))heap)() == 43);
            for (int i = 0; i < 3; i++) CHECK(whole(p, 16 * MIB));
            usleep(1500000); puts("done"); return 0;
        }"#,
    );
    let said = program.comes_through("8M", FLAGS);
    assert!(peak(&said) <= 8.2, "{said}");
    let beside = said.lines().find(|line| line.contains("code made while running")).unwrap_or_else(|| panic!("{said}"));
    let (_, size) = beside.split_once("up to ").expect("how much");
    let mib = size.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    assert!(mib.is_some_and(|mib| mib > 30.0), "{said}");
}

/// Sites of frequent calls are rewritten to jump to the agent, in a process that makes many calls and in one that
/// starts a thread; one that does little keeps libc as it is.
#[test]
fn frequent_calls_jump_and_idle_processes_stay_as_they_are() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static int jumps(void) {
            unsigned char *code = (unsigned char *)lseek;
            for (int i = 0; i < 32; i++) if (!memcmp(code + i, "\x0f\x05\x48\x3d", 4)) return 0; else if (code[i] == 0xe9 && !memcmp(code + i + 5, "\xf0\xff\xff", 3)) return 1;
            return -1;
        }
        static void *nothing(void *x) { return x; }
        int main(void) {
            CHECK(jumps() == 0);
            pid_t pid = fork(); CHECK(pid >= 0);
            if (!pid) { pthread_t t; CHECK(!pthread_create(&t, 0, nothing, 0)); CHECK(!pthread_join(t, 0)); _exit(jumps() != 1); }
            int s; CHECK(waitpid(pid, &s, 0) == pid && !s);
            CHECK(jumps() == 0); for (int i = 0; i < 2000; i++) CHECK(getppid() > 0); CHECK(jumps() == 1);
            long at = 0; char path[] = "/tmp/sites.XXXXXX"; int f = mkstemp(path); CHECK(f >= 0 && !unlink(path));
            for (int i = 0; i < 1000; i++) { CHECK(write(f, path, 10) == 10); at += 10; CHECK(lseek(f, 0, SEEK_CUR) == at); }
            CHECK(lseek(-1, 0, SEEK_CUR) == -1 && errno == EBADF); puts("done"); return 0;
        }"#,
    );
    program.comes_through("8M", FLAGS);
}

/// A condition's words are in memory that would be evicted; signals restart the call that waits for them.
#[test]
fn waits_in_managed_memory_survive_eviction_and_signals() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        #include <semaphore.h>
        static sem_t *sem; static volatile int handled, passed;
        static void on(int s) { handled++; }
        static void *waits(void *x) { CHECK(!sem_wait(sem)); passed = 1; return 0; }
        int main(void) {
            sem = (sem_t *)map(MIB); CHECK(!sem_init(sem, 0, 0)); struct sigaction a = {.sa_handler = on, .sa_flags = SA_RESTART}; sigaction(SIGUSR1, &a, 0);
            pthread_t t; CHECK(!pthread_create(&t, 0, waits, 0)); unsigned char *p = map(16 * MIB);
            for (int i = 0; i < 3; i++) { usleep(30000); fill(p, 16 * MIB); int before = handled; pthread_kill(t, SIGUSR1); for (int k = 0; k < 1000 && handled == before; k++) usleep(1000); CHECK(handled == before + 1); }
            CHECK(!passed); CHECK(!sem_post(sem)); CHECK(!pthread_join(t, 0)); CHECK(passed); CHECK(whole(p, 16 * MIB)); puts("done"); return 0;
        }"#,
    );
    program.comes_through("4M", FLAGS);
}

#[test]
fn small_alternate_stacks_are_not_overrun() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static unsigned char *p, *area; static volatile int good;
        static void on(int s) { good = whole(p, 16 * MIB); }
        int main(void) {
            area = map(MIB); memset(area, 0x5a, MIB); stack_t st = {.ss_sp = area + MIB / 2, .ss_size = 8192}; CHECK(!sigaltstack(&st, 0));
            stack_t now; CHECK(!sigaltstack(0, &now) && now.ss_sp == st.ss_sp && now.ss_size == 8192);
            struct sigaction a = {.sa_handler = on, .sa_flags = SA_ONSTACK}; sigaction(SIGUSR1, &a, 0);
            p = map(16 * MIB); fill(p, 16 * MIB); raise(SIGUSR1); CHECK(good);
            for (long k = 0; k < MIB / 2; k++) if (area[k] != 0x5a) { printf("%ld bytes below the stack were overwritten\n", MIB / 2 - k); return 1; }
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("4M", FLAGS);
}

#[test]
fn unmapped_memory_is_gone_and_new_memory_is_zero() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static sigjmp_buf back; static void on(int s) { siglongjmp(back, 1); }
        static int faults(unsigned char *p) { if (sigsetjmp(back, 1)) return 1; (void)*(volatile unsigned char *)p; return 0; }
        int main(void) {
            signal(SIGSEGV, on);
            for (int i = 0; i < 20; i++) {
                unsigned char *p = map(4 * MIB); CHECK(zero(p, 4 * MIB)); fill(p, 4 * MIB);
                unsigned char *q = map(4 * MIB); fill(q, 4 * MIB); CHECK(!munmap(q, 4 * MIB)); CHECK(faults(q) && faults(q + 2 * MIB));
                CHECK(!madvise(p, 2 * MIB, MADV_DONTNEED)); CHECK(zero(p, 2 * MIB));
                p = mremap(p, 4 * MIB, 8 * MIB, MREMAP_MAYMOVE); CHECK(p != MAP_FAILED && zero(p, 2 * MIB) && zero(p + 4 * MIB, 4 * MIB));
                for (long k = 2 * MIB; k < 4 * MIB; k += 8) CHECK(*(unsigned long *)(p + k) == k * 0x9e3779b97f4a7c15ul + 1);
                CHECK(!mprotect(p, 4096, PROT_NONE) && faults(p)); CHECK(!munmap(p, 8 * MIB));
                p = map(MIB); int f = memfd_create("f", 0); CHECK(!ftruncate(f, 4096)); fill(p, MIB);
                CHECK(mmap(p + MIB / 2, 4096, 3, MAP_PRIVATE | MAP_FIXED, f, 0) == p + MIB / 2); p[MIB / 2] = 7;
                CHECK(madvise(p, MIB, MADV_FREE) && errno == EINVAL && p[MIB / 2] == 7); close(f); CHECK(!munmap(p, MIB));
            }
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("2M", FLAGS);
}

/// The child has descriptors of its own: a file that another thread of its parent opens meanwhile it does not have.
#[test]
fn a_child_that_shares_memory_reads_what_other_threads_have_evicted() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        #include <sched.h>
        static unsigned char stack[1 << 16] __attribute__((aligned(16))), *p; static volatile int begun, filled, good;
        static int child(void *x) { begun = 1; while (!filled) usleep(1000); good = whole(p, 16 * MIB); return 0; }
        static void *fills(void *x) { while (!begun) usleep(1000); fill(p, 16 * MIB); filled = 1; return 0; }
        int main(void) {
            p = map(16 * MIB); pthread_t t; CHECK(!pthread_create(&t, 0, fills, 0)); int status = 1;
            pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, 0); CHECK(pid > 0);
            CHECK(waitpid(pid, &status, 0) == pid && !status); CHECK(!pthread_join(t, 0)); CHECK(good); CHECK(whole(p, 16 * MIB)); puts("done"); return 0;
        }"#,
    );
    program.comes_through("4M", FLAGS);
}

#[test]
fn needs_no_privilege() {
    if skipped(&["setpriv", "sort", "seq"]) {
        return;
    }
    let refault = env!("CARGO_BIN_EXE_refault");
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]);
        command.args(arguments).current_dir("/").output().expect("setpriv starts")
    };
    let reached = as_nobody(&[refault, "--version"]);
    if !reached.status.success() {
        skip(format_args!("another user cannot execute this build: {}", text(&reached.stderr).trim()));
        return;
    }
    let output =
        as_nobody(&[refault, "run", "--memory", "8M", "--", "sh", "-c", "seq 1 40000 | sort -r | sort -n | tail -1"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("40000\n", Some(0)), "{}", text(&output.stderr));
}

/// The line at the end and the summary, however the program ends: by returning, by its last thread, by a signal.
#[test]
fn what_happened_is_said_at_every_end() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static void *last(void *x) { usleep(50000); syscall(SYS_exit, 0); return 0; }
        int main(int n, char **v) {
            unsigned char *p = map(16 * MIB); fill(p, 16 * MIB); CHECK(whole(p, 16 * MIB)); int how = atoi(getenv("HOW"));
            if (how == 1) { pthread_t t; pthread_create(&t, 0, last, 0); syscall(SYS_exit, 0); }
            if (how == 2) kill(getpid(), SIGKILL);
            if (how == 3) abort();
            if (how == 4) { pid_t pid = fork(); if (!pid) { fill(p, 16 * MIB); kill(getpid(), SIGKILL); } waitpid(pid, 0, 0); return 7; }
            return 0;
        }"#,
    );
    for (how, code, signal) in
        [(0, Some(0), None), (1, Some(0), None), (2, None, Some(9)), (3, None, Some(6)), (4, Some(7), None)]
    {
        let summary = program.directory.path().join("summary.json");
        let output = Command::new(env!("CARGO_BIN_EXE_refault"))
            .args(["run", "--memory", "6M", "--summary"])
            .arg(&summary)
            .arg("--")
            .arg(&program.path)
            .env("HOW", how.to_string())
            .current_dir(program.directory.path())
            .output()
            .expect("refault starts");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.status.signal()), (code, signal), "{how}: {said}");
        assert!(said.starts_with("refault: peak ") && said.contains(" brought back, "), "{how}: {said}");
        let summary = std::fs::read_to_string(&summary).expect("a summary");
        let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
        let number = |key: &str| summary[key].as_u64().unwrap_or_else(|| panic!("{key}: {summary}"));
        assert_eq!(
            (summary["exit_code"].as_i64(), summary["signal"].as_i64()),
            (code.map(i64::from), signal.map(i64::from))
        );
        // 10 MiB of 16 cannot be resident, and all of it was looked at again; the child wrote to all of it.
        let passes = if how == 4 { 2 } else { 1 };
        assert!(number("stored") >= passes * 2560 && number("read_back") >= 2560, "{how}: {summary}");
        assert!(
            number("first_touches") >= 4096 && number("fault_p99_ns") >= number("fault_p50_ns"),
            "{how}: {summary}"
        );
        assert_eq!(
            (number("lost"), number("budget_bytes"), number("left_running")),
            (0, 6 << 20, 0),
            "{how}: {summary}"
        );
        assert!(number("peak_bytes") > 5 << 20, "{how}: {summary}");
    }
    let quiet = program.run("32M", &["--quiet"]);
    assert_eq!(text(&quiet.stderr), "");
}

/// A process between the program and its caller changes neither signals nor stops.
#[test]
fn signals_and_stops_reach_the_program() {
    if skipped(&["bash"]) {
        return;
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["run", "--memory", "32M", "--", "bash", "-c"])
        .arg("trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("refault starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("a pipe")));
    let mut next = || lines.next().expect("a line").expect("text");
    let send = |signal| rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("sent");
    assert_eq!(next(), "ready");
    // Once: a shell forgets a signal that comes again while it runs the trap.
    send(rustix::process::Signal::USR1);
    assert_eq!(next(), "usr1");
    send(rustix::process::Signal::TERM);
    assert_eq!(next(), "term");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    // If we are killed, so is the program: nobody else would do it.
    let mut child = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["run", "--memory", "32M", "--", "bash", "-c", "echo $$; while :; do sleep 0.05; done"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("refault starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("a pipe")));
    let pid = lines.next().expect("a line").expect("text");
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let gone = || !std::path::Path::new("/proc").join(&pid).exists();
    assert!(
        (0..200).any(|_| gone() || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            false
        }),
        "{pid} goes on"
    );
}

/// What libc keeps for itself the agent does not know.
#[test]
fn the_agent_names_nothing_private_of_libc() {
    let directory = std::path::Path::new(env!("CARGO_BIN_EXE_refault")).parent().expect("a directory");
    let built = ["librefault_boundary.so", "deps/librefault_boundary.so"].map(|name| directory.join(name));
    let library = built.iter().find(|path| path.is_file()).expect("it is built with the binary");
    let bytes = std::fs::read(library).expect("it can be read");
    for name in
        ["_rtld_global", "__nptl_", "_thread_db_", "__libc_single_threaded\0_IO_", "__libc_malloc", "_dl_find_dso"]
    {
        assert!(!bytes.windows(name.len()).any(|window| window == name.as_bytes()), "{name} is in the library");
    }
}
