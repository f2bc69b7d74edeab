//! Forks under `refault run`, at any moment: what libc's own `fork` would have put in order in the child is in order.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use c_program::Program;
use common::skipped;

/// A thread is created and another is gone every moment, so that one of them holds libc's lists of threads at some
/// fork.
#[test]
fn a_child_may_be_forked_while_other_threads_come_and_go() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static volatile int over; static volatile long forks;
        static void *nothing(void *x) { return x; }
        static void *forks_on(void *x) {
            while (!over) {
                pid_t pid = fork(); CHECK(pid >= 0);
                if (pid == 0) { pthread_t t; void *end; _exit(pthread_create(&t, 0, nothing, &t) || pthread_join(t, &end) || end != &t); }
                int s; CHECK(waitpid(pid, &s, 0) == pid && !s); forks++; usleep(1000);
            }
            return 0;
        }
        int main(void) {
            unsigned char *p = map(8 * MIB); fill(p, 8 * MIB); pthread_t forker, t[2]; CHECK(!pthread_create(&forker, 0, forks_on, 0));
            for (int i = 0; i < 20000 && forks < 300; i++) {
                for (int k = 0; k < 2; k++) CHECK(!pthread_create(t + k, 0, nothing, 0));
                for (int k = 0; k < 2; k++) CHECK(!pthread_join(t[k], 0));
                usleep(100);
            }
            over = 1; CHECK(!pthread_join(forker, 0)); CHECK(forks >= 20); CHECK(whole(p, 8 * MIB)); puts("done"); return 0;
        }"#,
    );
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

/// The dynamic linker reads its records of such libraries when a thread is created: in the child before memory is
/// served.
#[test]
fn a_child_may_be_forked_after_a_library_with_thread_local_variables_was_opened() {
    if skipped(&["gcc", "python3"]) {
        return;
    }
    let program = Program::new(
        r#"
        #include <dlfcn.h>
        int main(void) {
            CHECK(dlopen("libstdc++.so.6", RTLD_NOW)); unsigned char *p = map(16 * MIB);
            for (int i = 0; i < 5; i++) {
                fill(p, 16 * MIB); pid_t pid = fork(); CHECK(pid >= 0); if (pid == 0) _exit(!whole(p, 16 * MIB));
                int s; CHECK(waitpid(pid, &s, 0) == pid && !s);
            }
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

/// Other threads hold the lock of a stream most of the time.
#[test]
fn a_child_finds_streams_unlocked() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static volatile int over; static FILE *f;
        static void *prints_on(void *x) { for (long i = 0; !over; i++) fprintf(f, "%ld %s\n", i, "some words for this line"); return 0; }
        int main(void) {
            unsigned char *p = map(8 * MIB); fill(p, 8 * MIB); CHECK(f = fopen("/dev/null", "w")); setvbuf(f, malloc(1 << 16), _IOFBF, 1 << 16);
            pthread_t t[2]; for (int i = 0; i < 2; i++) CHECK(!pthread_create(t + i, 0, prints_on, 0));
            for (int i = 0; i < 100; i++) {
                pid_t pid = fork(); CHECK(pid >= 0); if (pid == 0) { fprintf(f, "child\n"); fflush(0); fclose(f); _exit(0); }
                int s; CHECK(waitpid(pid, &s, 0) == pid && !s); usleep(500);
            }
            over = 1; for (int i = 0; i < 2; i++) CHECK(!pthread_join(t[i], 0)); CHECK(whole(p, 8 * MIB)); puts("done"); return 0;
        }"#,
    );
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

#[test]
fn a_stream_that_another_thread_has_locked_is_free_in_the_child() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static FILE *stream; static volatile int held, stop;
        static void *hold(void *_) { flockfile(stream); held = 1; while (!stop) usleep(1000); funlockfile(stream); return 0; }
        int main(void) {
            stream = tmpfile(); if (!stream) FAIL("tmpfile");
            pthread_t t; pthread_create(&t, 0, hold, 0);
            while (!held) usleep(1000);
            pid_t pid = fork();
            if (pid == 0) _exit(ftrylockfile(stream) != 0);
            int s; waitpid(pid, &s, 0); stop = 1; pthread_join(t, 0);
            if (s) { puts("the child could not lock it"); return 1; }
            puts("done"); return 0;
        }"#,
    );
    program.comes_through("8M", &[]);
    program.comes_through("8M", &[]);
}

#[test]
fn a_stream_that_the_forking_thread_holds_stays_its_own() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static void *prints(void *x) { printf("thread\n"); return 0; }
        int main(void) {
            pthread_t t; flockfile(stdout); pid_t pid = fork(); CHECK(pid >= 0);
            if (pid == 0) { alarm(20); funlockfile(stdout); printf("child\n"); CHECK(!pthread_create(&t, 0, prints, 0)); CHECK(!pthread_join(t, 0)); fflush(stdout); _exit(0); }
            funlockfile(stdout); int s; CHECK(waitpid(pid, &s, 0) == pid && !s); puts("done"); return 0;
        }"#,
    );
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

/// The agent's threads do not keep a program alive, in a child neither.
#[test]
fn a_program_ends_with_its_last_thread() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static void bye(void) { puts("done"); }
        static void *last(void *x) { usleep(100000); return 0; }
        static void end_with_another(void) { pthread_t t; CHECK(!pthread_create(&t, 0, last, 0)); pthread_exit(0); }
        int main(void) {
            unsigned char *p = map(8 * MIB); fill(p, 8 * MIB);
            pid_t pid = fork(); CHECK(pid >= 0); if (pid == 0) end_with_another();
            int s; CHECK(waitpid(pid, &s, 0) == pid && !s); atexit(bye); end_with_another();
        }"#,
    );
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}

#[test]
fn handlers_of_a_library_that_was_closed_are_not_called() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        #include <dlfcn.h>
        int main(void) {
            void *library = dlopen("./library.so", RTLD_NOW); CHECK(library); int *called = dlsym(library, "called"); int s;
            pid_t pid = fork(); CHECK(pid >= 0); if (pid == 0) _exit(*called != 2); CHECK(waitpid(pid, &s, 0) == pid && !s && *called == 2);
            CHECK(!dlclose(library)); pid = fork(); CHECK(pid >= 0); if (pid == 0) _exit(0); CHECK(waitpid(pid, &s, 0) == pid && !s);
            puts("done"); return 0;
        }"#,
    );
    let source = program.directory.path().join("library.c");
    let library = "#include <pthread.h>\nint called;\nstatic void handler(void) { called++; }\n\
                   __attribute__((constructor)) static void start(void) { pthread_atfork(handler, handler, handler); }\n";
    std::fs::write(&source, library).expect("writes");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-shared", "-fPIC", "-o"]).arg(program.directory.path().join("library.so")).arg(&source);
    assert!(gcc.status().expect("gcc starts").success());
    program.comes_through("4M", &[]);
    program.comes_through("4M", &[]);
}
