//! `refault run --in-thread`: programs whose system calls touch managed memory, evicted or not.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use c_program::Program;
use common::skipped;

/// Memory that is given to a system call, after everything was evicted.
const CALLS: &str = r#"
    #include <dirent.h>
    #include <poll.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #define N (192ul << 10)
    static void out(void *p, unsigned long n) { madvise((void *)((unsigned long)p & -4096ul), n + 4096, MADV_PAGEOUT); }
"#;

#[test]
fn calls_are_given_evicted_memory() {
    if skipped(&["gcc"]) {
        return;
    }
    let body = r#"
        int main(void) {
            unsigned char *big = map(16 * MIB), *from = map(N), *to = map(N), *lists = map(MIB); fill(big, 16 * MIB);
            struct iovec *v = (void *)lists; struct msghdr *m = (void *)(lists + 8192);
            struct epoll_event *event = (void *)(lists + 16384); struct pollfd *polled = (void *)(lists + 24576);
            struct stat *status = (void *)(lists + 32768); char *name = (char *)lists + 40960; int ends[2], pair[2];
            strcpy(name, "a-file-with-a-name"); CHECK(!pipe(ends)); CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
            int size = 4 << 20; setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
            fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
            for (int round = 0; round < 20; round++) {
                fill(from, N); out(name, 100); out(from, N);
                int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600); CHECK(fd >= 0);
                CHECK(write(fd, from, N) == N); memset(to, 1, N); out(to, N); out(from, N);
                CHECK(pread(fd, to, N, 0) == N); CHECK(whole(to, N)); CHECK(pwrite(fd, from, N, N) == N);
                memset(to, 1, N); out(to, N); CHECK(read(fd, to, N) == N); CHECK(whole(to, N));
                out(status, 4096); CHECK(!fstat(fd, status)); CHECK(status->st_size == 2 * N);
                out(status, 4096); out(name, 100); CHECK(!stat(name, status)); CHECK(status->st_size == 2 * N);
                for (int i = 0; i < 4; i++) { v[i].iov_base = from + i * N / 4; v[i].iov_len = N / 4; }
                out(v, 4096); out(from, N); CHECK(writev(ends[1], v, 4) == N);
                for (int i = 0; i < 4; i++) v[i].iov_base = to + i * N / 4;
                memset(to, 1, N); out(to, N); out(v, 4096); CHECK(readv(ends[0], v, 4) == N); CHECK(whole(to, N));
                memset(m, 0, sizeof *m); m->msg_iov = v; m->msg_iovlen = 4; for (int i = 0; i < 4; i++) v[i].iov_base = from + i * N / 4;
                out(v, 4096); out(m, 4096); out(from, N); CHECK(sendmsg(pair[0], m, 0) == N);
                for (int i = 0; i < 4; i++) v[i].iov_base = to + i * N / 4;
                memset(to, 1, N); out(to, N); out(v, 4096); out(m, 4096); CHECK(recvmsg(pair[1], m, MSG_WAITALL) == N); CHECK(whole(to, N));
                out(from, N); CHECK(send(pair[0], from, N, 0) == N); memset(to, 1, N); out(to, N);
                CHECK(recv(pair[1], to, N, MSG_WAITALL) == N); CHECK(whole(to, N));
                polled->fd = ends[1]; polled->events = POLLOUT; out(polled, 4096); CHECK(poll(polled, 1, 0) == 1);
                int e = epoll_create1(0); event->events = EPOLLOUT; out(event, 4096); CHECK(!epoll_ctl(e, EPOLL_CTL_ADD, ends[1], event));
                out(event, 4096); CHECK(epoll_wait(e, event, 1, 0) == 1); close(e);
                out(from, N); FILE *f = fopen(name, "w"); CHECK(f && fwrite(from, 1, N, f) == N); fprintf(f, "%d lines\n", round); fill(big, 4 * MIB); CHECK(!fclose(f));
                f = fopen(name, "r"); memset(to, 1, N); out(to, N); CHECK(fread(to, 1, N, f) == N); CHECK(whole(to, N));
                char line[64]; fill(big, 8 * MIB); CHECK(fgets(line, 64, f)); CHECK(atoi(line) == round); fclose(f);
                DIR *d = opendir("."); fill(big, 8 * MIB); int found = 0; for (struct dirent *x; (x = readdir(d)); ) found += !strcmp(x->d_name, name); closedir(d); CHECK(found == 1);
                close(fd); out(name, 100); CHECK(!unlink(name));
            }
            char **words = (char **)lists; words[0] = "test"; words[1] = (char *)lists + 4096; words[2] = "="; words[3] = (char *)lists + 8192; words[4] = 0;
            strcpy(words[1], "same"); strcpy(words[3], "same"); out(lists, MIB - 4096); int ended; pid_t child = vfork();
            if (!child) { execvp("test", words); _exit(9); }
            CHECK(waitpid(child, &ended, 0) == child); CHECK(ended == 0);
            CHECK(whole(big, 16 * MIB)); CHECK(write(ends[1], (void *)8, 5) == -1 && errno == EFAULT);
            puts("done"); return 0;
        }"#;
    let program = Program::new(&format!("{CALLS}{body}"));
    program.interposed("4M", &["--in-thread"]);
    program.interposed("4M", &[]);
}

#[test]
fn what_waits_in_a_call_stays_and_signals_and_cancellation_come_through() {
    if skipped(&["gcc"]) {
        return;
    }
    let body = r#"
        static unsigned char *big; static volatile unsigned long beats;
        static void beat(int s) { big[(beats++ * 4096 * 7) % (16 * MIB)] += 0; }
        static void *reader(void *x) { int *end = x; unsigned char *p = map(N); fill(p, N); for (int i = 0; i < 50; i++) { CHECK(read(*end, p, 8) == 8); CHECK(*(unsigned long *)p == i); } CHECK(whole(p + 8, 0)); return x; }
        static void *sleeper(void *x) { unsigned char *p = map(N); read(*(int *)x, p, N); return 0; }
        int main(void) {
            big = map(16 * MIB); fill(big, 16 * MIB);
            struct sigaction a = { .sa_handler = beat, .sa_flags = SA_RESTART }; sigaction(SIGALRM, &a, 0);
            struct itimerval t = { { 0, 500 }, { 0, 500 } }; setitimer(ITIMER_REAL, &t, 0);
            int ends[2], never[2]; CHECK(!pipe(ends)); CHECK(!pipe(never)); pthread_t thread; CHECK(!pthread_create(&thread, 0, reader, ends));
            for (unsigned long i = 0; i < 50; i++) { CHECK(whole(big, 16 * MIB)); CHECK(write(ends[1], &i, 8) == 8); }
            void *end; CHECK(!pthread_join(thread, &end) && end == ends);
            for (int i = 0; i < 600; i++) { CHECK(!pthread_create(&thread, 0, sleeper, never)); if (i % 10 == 0) usleep(300); CHECK(!pthread_cancel(thread)); CHECK(!pthread_join(thread, &end) && end == PTHREAD_CANCELED); }
            CHECK(whole(big, 16 * MIB)); CHECK(beats > 10); puts("done"); return 0;
        }"#;
    let program = Program::new(&format!("{CALLS}{body}"));
    program.interposed("4M", &["--in-thread"]);
    program.interposed("4M", &[]);
}

#[test]
fn what_a_call_waits_with_is_not_evicted_until_it_returns_or_is_left() {
    if skipped(&["gcc"]) {
        return;
    }
    let body = r#"
        static unsigned char *p; static int never[2];
        static sigjmp_buf before; static void leave(int s) { siglongjmp(before, 1); }
        static void *sleeper(void *x) { read(never[0], p, N); return 0; }
        int main(void) {
            p = map(N); fill(p, N); out(p, N); CHECK(resident(p, N) == 0); CHECK(!pipe(never)); pthread_t thread; void *end;
            CHECK(!pthread_create(&thread, 0, sleeper, 0)); for (int i = 0; i < 1000 && resident(p, N) < N / 4096; i++) usleep(1000);
            out(p, N); CHECK(resident(p, N) == N / 4096); CHECK(!pthread_cancel(thread)); CHECK(!pthread_join(thread, &end));
            CHECK(end == PTHREAD_CANCELED); out(p, N); CHECK(resident(p, N) == 0);
            CHECK(!pthread_create(&thread, 0, sleeper, 0)); for (int i = 0; i < 1000 && resident(p, N) < N / 4096; i++) usleep(1000);
            out(p, N); CHECK(resident(p, N) == N / 4096); CHECK(write(never[1], "x", 1) == 1); CHECK(!pthread_join(thread, &end));
            out(p, N); CHECK(resident(p, N) == 0); CHECK(p[0] == 'x');
            signal(SIGALRM, leave); volatile int left = 0; if (sigsetjmp(before, 1)) left++;
            if (left < 600) { ualarm(300, 0); read(never[0], p, N); }
            unsigned char *q = map(N); fill(q, N); CHECK(pwrite(open("f", O_RDWR | O_CREAT, 0600), q, N, 0) == N);
            CHECK(left == 600); out(p, N); CHECK(resident(p, N) == 0); puts("done"); return 0;
        }"#;
    Program::new(&format!("{CALLS}{body}")).interposed("4M", &["--in-thread"]);
}

/// A word anywhere in `p`, of which a store changes nothing.
const SCATTERED: &str = r#"
    static unsigned char *p; static unsigned long n = 16 * MIB; static volatile int over; static volatile unsigned long stores;
    static unsigned long value(unsigned long i) { return i * 0x9e3779b97f4a7c15ul + 1; }
    static void store(unsigned long *r) {
        *r = *r * 6364136223846793005ul + 1442695040888963407ul; unsigned long i = (*r >> 33) % n / 8 * 8;
        *(volatile unsigned long *)(p + i) = value(i); stores++;
    }
"#;

#[test]
fn a_thread_may_be_cancelled_at_any_instruction() {
    if skipped(&["gcc"]) {
        return;
    }
    let body = r#"
        static void clean_up(void *nothing) {
            sigset_t now; pthread_sigmask(SIG_BLOCK, 0, &now); CHECK(!sigismember(&now, SIGTERM) && sigismember(&now, SIGUSR1));
        }
        static void *stores_on(void *seed) {
            unsigned long r = (unsigned long)seed; int before; sigset_t one; sigemptyset(&one); sigaddset(&one, SIGUSR1); pthread_sigmask(SIG_BLOCK, &one, 0);
            pthread_cleanup_push(clean_up, 0); CHECK(!pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before));
            for (;;) store(&r);
            pthread_cleanup_pop(0);
        }
        int main(void) {
            p = map(n); fill(p, n);
            for (long round = 0; round < 200; round++) {
                pthread_t t[2]; void *end; for (long i = 0; i < 2; i++) CHECK(!pthread_create(t + i, 0, stores_on, (void *)(round * 2 + i)));
                usleep(500 + round * 7);
                for (int i = 0; i < 2; i++) CHECK(!pthread_cancel(t[i]));
                for (int i = 0; i < 2; i++) CHECK(!pthread_join(t[i], &end) && end == PTHREAD_CANCELED);
            }
            CHECK(stores > 1000); CHECK(whole(p, n)); puts("done"); return 0;
        }"#;
    let program = Program::new(&format!("{SCATTERED}{body}"));
    program.interposed("4M", &["--in-thread"]);
    program.interposed("4M", &["--in-thread", "--policy", "lrfu"]);
}

#[test]
fn a_sigbus_that_somebody_sends_is_handled_outside_the_pager() {
    if skipped(&["gcc"]) {
        return;
    }
    let body = r#"
        static volatile int handled, depth, most;
        static void touch(int s) {
            static unsigned long r = 7; int now = __atomic_add_fetch(&depth, 1, __ATOMIC_SEQ_CST); if (now > most) most = now;
            store(&r); handled++; __atomic_sub_fetch(&depth, 1, __ATOMIC_SEQ_CST);
        }
        static void *stores_on(void *seed) { unsigned long r = (unsigned long)seed; while (!over) { store(&r); free(malloc(1000)); } return 0; }
        int main(void) {
            p = map(n); fill(p, n); struct sigaction a = { .sa_handler = touch }; sigaction(SIGBUS, &a, 0);
            pthread_t t[2]; for (long i = 0; i < 2; i++) pthread_create(t + i, 0, stores_on, (void *)i);
            for (int i = 0; i < 6000; i++) { unsigned long before = stores; CHECK(!(i % 3 ? pthread_kill(t[i % 2], SIGBUS) : kill(getpid(), SIGBUS))); usleep(100); for (int k = 0; stores == before; k++) { usleep(1000); CHECK(k < 5000); } }
            /* The kernel merges one with that of a fault which is just being delivered. */
            for (int i = 0, before; i < 100; i++) { before = handled; for (int k = 0; handled == before; k++) { CHECK(!pthread_kill(t[0], SIGBUS)); usleep(10000); CHECK(k < 50); } }
            over = 1; for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
            CHECK(most <= 3); CHECK(whole(p, n)); puts("done"); return 0;
        }"#;
    let program = Program::new(&format!("{SCATTERED}{body}"));
    program.interposed("4M", &["--in-thread"]);
    program.interposed("4M", &["--in-thread", "--policy", "lrfu"]);
}

/// There the kernel writes to the stack whenever there is a fault, and cannot wait for it.
#[test]
fn a_thread_whose_stack_is_managed_is_refused_in_words() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        static void *nothing(void *x) { return x; }
        int main(void) {
            pthread_t t; void *end; pthread_attr_t a; pthread_attr_init(&a);
            pthread_attr_setstack(&a, map(MIB), MIB); CHECK(pthread_create(&t, &a, nothing, 0) == EAGAIN);
            static unsigned char plain[1 << 18] __attribute__((aligned(4096)));
            pthread_attr_setstack(&a, plain, sizeof plain); CHECK(!pthread_create(&t, &a, nothing, plain)); CHECK(!pthread_join(t, &end) && end == plain);
            pthread_attr_destroy(&a); pthread_attr_init(&a); CHECK(!pthread_create(&t, &a, nothing, 0)); CHECK(!pthread_join(t, &end));
            pthread_attr_setstacksize(&a, 1 << 18); CHECK(!pthread_create(&t, &a, nothing, 0)); CHECK(!pthread_join(t, &end));
            puts("done"); return 0;
        }"#,
    );
    let said = program.interposed("4M", &["--in-thread"]);
    assert!(said.contains("its stack is managed memory, which --in-thread does not allow"), "{said}");
}

#[test]
fn a_program_may_be_executed_with_an_evicted_environment() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(
        r#"
        int main(void) {
            unsigned char *p = map(8 * MIB); char name[20]; for (int i = 0; i < 200; i++) { sprintf(name, "V%d", i); setenv(name, "some value", 1); }
            char **arguments = malloc(2 * sizeof(char *)); arguments[0] = strdup("true"); arguments[1] = 0;
            for (int i = 0; i < 10; i++) {
                fill(p, 8 * MIB); pid_t pid = i & 1 ? vfork() : fork(); CHECK(pid >= 0); if (pid == 0) { execvp(arguments[0], arguments); _exit(9); }
                int s; CHECK(waitpid(pid, &s, 0) == pid && !s);
            }
            puts("done"); return 0;
        }"#,
    );
    program.interposed("2M", &["--in-thread"]);
}
