//! docs/semantics.md, sentence by sentence, where tests/run.rs does not hold it already.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use c_program::Program;
use common::{skipped, text};

/// Pages of a file that begin with the mark. Holes, most of a dump, are passed over.
fn marked_pages(path: &std::path::Path) -> usize {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path).expect("opens");
    let mut at = 0;
    let mut marked = 0;
    while let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(data)).expect("data ends somewhere");
        let mut page = [0; 8];
        for offset in (data..end).step_by(4096) {
            let read = file.read_at(&mut page, offset).expect("reads");
            marked += usize::from(read == 8 && page == *b"MARK0000");
        }
        at = end;
    }
    marked
}

#[test]
fn a_core_dump_holds_the_resident_pages_and_ends_soon() {
    if skipped(&["gcc"]) {
        return;
    }
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('|') || pattern.contains('/') {
        refault_testing::skip("core dumps do not go to the working directory here");
        return;
    }
    let program = Program::new(
        r#"int main(void) {
            struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
            if (setrlimit(RLIMIT_CORE, &all)) FAIL("rlimit");
            unsigned char *p = map(16 * MIB);
            for (unsigned long i = 0; i < 16 * MIB / 4096; i++) { sprintf((char *)p + i * 4096, "MARK%08lu", i); p[i * 4096 + 100 + i % 50] = i; }
            abort();
        }"#,
    );
    let start = std::time::Instant::now();
    let output = program.run("4M", &["--interpose"]);
    assert_eq!(output.status.signal(), Some(6), "{}", text(&output.stderr));
    let core = std::fs::read_dir(program.directory.path())
        .expect("reads")
        .flatten()
        .find(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("core")));
    let Some(core) = core else {
        refault_testing::skip("no core dump was written");
        return;
    };
    // A dump that walked what is only reserved would take minutes; the holes tell how much was walked.
    let walked = core.metadata().expect("is there").len();
    assert!(walked < 4 << 30, "{walked} bytes");
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
    let marked = marked_pages(&core.path());
    assert!((100..=1024).contains(&marked), "{marked} of 4096 pages, 1024 may be resident");
}

#[test]
fn mlockall_is_refused_and_mlocked_memory_may_be_written_to_directly() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static unsigned char *churned;
        static volatile int stop;
        static void *churn(void *_) { while (!stop) for (unsigned long i = 0; i < 12 * MIB; i += 4096) churned[i]++; return 0; }
        int main(void) {
            errno = 0;
            if (mlockall(MCL_CURRENT) != -1 || errno != ENOMEM) FAIL("mlockall");
            static unsigned char data[MIB]; fill(data, MIB);
            int f = open("data", O_CREAT | O_RDWR, 0600);
            if (write(f, data, MIB) != (long)MIB || fsync(f)) FAIL("write");
            int d = open("data", O_RDONLY | O_DIRECT);
            if (d < 0) { puts("no O_DIRECT"); puts("done"); return 0; }
            churned = map(12 * MIB);
            unsigned char *p = map(MIB);
            if (mlock(p, MIB)) FAIL("mlock");
            pthread_t t; pthread_create(&t, 0, churn, 0);
            for (int k = 0; k < 40; k++) {
                memset(p, 0, MIB);
                if (pread(d, p, MIB, 0) != (long)MIB) FAIL("read");
                if (!whole(p, MIB)) { puts("damaged"); return 1; }
            }
            stop = 1; pthread_join(t, 0);
            puts("done"); return 0;
        }"#,
    );
    let said = program.succeeds("6M", &["--interpose"]);
    assert!(said.contains("mlockall is refused (ENOMEM)"), "{said}");
}

#[test]
fn a_child_of_the_bare_system_call_has_no_managed_memory() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"int main(void) {
            unsigned char *p = map(8 * MIB); fill(p, 8 * MIB);
            long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (pid == 0) { volatile unsigned char c = p[4096]; (void)c; syscall(SYS_exit_group, 0); }
            int s; if (waitpid(pid, &s, 0) != pid) FAIL("wait");
            if (!WIFSIGNALED(s) || WTERMSIG(s) != SIGSEGV) { printf("status %x\n", s); return 1; }
            if (!whole(p, 8 * MIB)) { puts("damaged"); return 1; }
            puts("done"); return 0;
        }"#,
    );
    program.succeeds("4M", &["--interpose"]);
}

#[test]
fn any_thread_may_fork_whatever_is_evicted() {
    if skipped(&["gcc"]) {
        return;
    }
    // Each child starts its pager in a copy of the forking thread, whose tables of libc must be there.
    let program = Program::new(
        r#"
        static void *churn(void *mine) {
            unsigned char *p = map(8 * MIB);
            for (int k = 0; k < 4; k++) {
                fill(p, 8 * MIB);
                pid_t pid = fork();
                if (pid == 0) { unsigned char *q = malloc(MIB); fill(q, MIB); _exit(!whole(p, 8 * MIB) || !whole(q, MIB)); }
                int s; if (waitpid(pid, &s, 0) != pid || s) { printf("the child ended with %x\n", s); exit(1); }
                if (!whole(p, 8 * MIB)) { puts("damaged"); exit(1); }
            }
            return mine;
        }
        int main(void) {
            alarm(50);
            pthread_t t[3];
            for (int k = 0; k < 3; k++) pthread_create(t + k, 0, churn, 0);
            for (int k = 0; k < 3; k++) pthread_join(t[k], 0);
            puts("done"); return 0;
        }"#,
    );
    program.succeeds("3M", &["--interpose"]);
    program.succeeds("3M", &["--interpose", "--in-thread"]);
}

/// A thread that starts reads the locale's tables, and in a forked child it does so before faults are served there.
#[test]
fn a_child_is_whole_when_the_locale_was_evicted() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"static void *nothing(void *x) { return x; }
        int main(void) {
            if (!setlocale(LC_ALL, "C.UTF-8")) FAIL("setlocale");
            for (int round = 0; round < 3; round++) {
                unsigned long n = 16 * MIB;
                unsigned char *p = malloc(n); fill(p, n);
                pthread_t t; if (pthread_create(&t, 0, nothing, 0)) FAIL("thread");
                pthread_join(t, 0);
                pid_t pid = fork(); if (pid < 0) FAIL("fork");
                if (pid == 0) _exit(whole(p, n) ? 7 : 8);
                int s; waitpid(pid, &s, 0);
                if (!WIFEXITED(s) || WEXITSTATUS(s) != 7) { printf("the child ended with %x\n", s); return 1; }
                free(p);
            }
            puts("done"); return 0;
        }"#,
    );
    program.succeeds("2M", &["--interpose"]);
    program.succeeds("2M", &["--interpose", "--in-thread"]);
}

#[test]
fn advice_does_what_is_written() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"int main(void) {
            unsigned long n = 2 * MIB; int pages = n / 4096;
            unsigned char *p = map(n); fill(p, n);
            if (resident(p, n) != pages) { printf("%d resident at first\n", resident(p, n)); return 1; }
            if (madvise(p, n, MADV_PAGEOUT)) FAIL("pageout");
            if (resident(p, n) != 0) { printf("%d resident after pageout\n", resident(p, n)); return 1; }
            if (madvise(p, n, MADV_WILLNEED)) FAIL("willneed");
            if (resident(p, n) < pages * 3 / 4) { printf("%d resident after willneed\n", resident(p, n)); return 1; }
            if (madvise(p, n, MADV_COLD)) FAIL("cold");
            if (resident(p, n) != 0) { printf("%d resident after cold\n", resident(p, n)); return 1; }
            if (!whole(p, n)) { puts("damaged"); return 1; }
            int none[] = {MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_DONTDUMP, MADV_DODUMP, MADV_SEQUENTIAL, MADV_RANDOM, MADV_NORMAL};
            for (unsigned k = 0; k < sizeof none / sizeof *none; k++) if (madvise(p, n, none[k])) FAIL("advice without effect");
            if (!whole(p, n)) { puts("damaged by advice without effect"); return 1; }
            if (madvise(p, n, MADV_FREE)) FAIL("free");
            for (unsigned long i = 0; i < n; i += 512) if (p[i]) { puts("not zero after free"); return 1; }
            errno = 0; if (madvise(p, n, 4711) != -1 || errno != EINVAL) FAIL("unknown advice");
            errno = 0; if (madvise(p + 1, 4096, MADV_COLD) != -1 || errno != EINVAL) FAIL("unaligned advice");
            if (madvise(p, n, MADV_POPULATE_WRITE)) FAIL("populate");
            unsigned char *q = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            if (resident(q, MIB) < 200) { printf("%d resident after MAP_POPULATE\n", resident(q, MIB)); return 1; }
            int f = open("/proc/self/exe", O_RDONLY);
            errno = 0;
            if (mmap(p, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, f, 0) != MAP_FAILED || errno != EINVAL) FAIL("a file over managed memory");
            puts("done"); return 0;
        }"#,
    );
    let said = program.succeeds("8M", &["--interpose"]);
    assert!(said.contains("a file was to be mapped over managed memory"), "{said}");
}

#[test]
fn in_thread_a_call_by_number_on_an_evicted_page_gets_efault() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"int main(int argc, char **argv) {
            unsigned char *p = map(MIB); fill(p, MIB);
            if (madvise(p, MIB, MADV_PAGEOUT)) FAIL("pageout");
            int f = open("/dev/zero", O_RDONLY); errno = 0;
            long got = syscall(SYS_read, f, p, 4096);
            printf("read %ld errno %d\n", got, got < 0 ? errno : 0);
            puts("done"); return 0;
        }"#,
    );
    let output = program.run("8M", &["--interpose", "--in-thread"]);
    assert!(text(&output.stdout).contains("read -1 errno 14"), "{}{}", text(&output.stdout), text(&output.stderr));
    let output = program.run("8M", &["--interpose"]);
    assert!(text(&output.stdout).contains("read 4096 errno 0"), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn set_uid_programs_and_those_of_another_libc_are_told_apart() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new("int main(void) { puts(\"done\"); return 0; }");
    let refused = |path: &std::path::Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_refault"))
            .args(["run", "--memory", "64M", "--"])
            .arg(path)
            .output()
            .expect("refault starts");
        (output.status.code(), text(&output.stderr))
    };
    // The loader's name, replaced by another libc's of the same length.
    let mut bytes = std::fs::read(&program.path).expect("reads");
    const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
    let other = b"/lib/ld-musl-x86_64.so.1\0\0\0\0";
    match bytes.windows(LOADER.len()).position(|window| window == LOADER) {
        Some(at) => {
            bytes[at..at + LOADER.len()].copy_from_slice(other);
            let path = program.directory.path().join("musl");
            std::fs::write(&path, &bytes).expect("writes");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permits");
            let (code, line) = refused(&path);
            assert!(code == Some(1) && line.contains("glibc build") && line.contains("ld-musl"), "{line}");
        }
        None => refault_testing::skip("another loader than x86-64 glibc's"),
    }
    let path = program.directory.path().join("setuid");
    std::fs::copy(&program.path, &path).expect("copies");
    if std::os::unix::fs::chown(&path, Some(65534), Some(65534)).is_err() {
        refault_testing::skip_required("only root can make somebody else's set-uid program");
        return;
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("permits");
    let (code, line) = refused(&path);
    assert!(code == Some(1) && line.contains("set-uid") && line.lines().count() == 1, "{line}");
}
