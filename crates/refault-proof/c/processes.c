/* Children, commands, credentials, name spaces, ends of threads. */
#include "probe.h"
#include <linux/seccomp.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>

extern char **environ;
static int sockets[2];
static void *receives(void *x) {
    (void)x; unsigned char *b = map(MIB); unsigned expect = 0, lost = 0, got = 0;
    for (;;) { ssize_t r = recv(sockets[1], b, 2048, 0); if (r <= 0) { printf("recv: %s\n", strerror(errno)); break; } unsigned q = *(unsigned *)b; if (q == ~0u) break; got++; lost += q - expect; expect = q + 1; if (got % 50 == 0) madvise(b, PAGE, MADV_PAGEOUT); }
    printf("received %u, lost %u\n", got, lost); return 0;
}
static void *sends(void *x) {
    (void)x; unsigned char *b = map(MIB); for (unsigned i = 0; i < 6000; i++) { *(unsigned *)b = i; if (send(sockets[0], b, 64, 0) != 64) perror("send"); if (i % 8 == 0) usleep(60); } *(unsigned *)b = ~0u; send(sockets[0], b, 64, 0); return 0;
}
static void *forks(void *x) {
    for (int i = 0; i < 20; i++) { char *block = malloc(200000); memset(block, i, 200000); pid_t p = fork(); if (!p) { char *more = malloc(300000); memset(more, 1, 300000); long sum = 0; for (int k = 0; k < 200000; k += 1000) sum += block[k]; free(more); _exit(sum == 200l * i ? 0 : 1); } int s = -1; waitpid(p, &s, 0); if (s) ++*(long *)x; free(block); }
    return 0;
}
static void *ends_late(void *x) { unsigned char *p = x; usleep(100000); push_out(p, 8 * MIB); printf("changed %ld\n", changed(p, 8 * MIB)); return 0; }
static volatile long ticks;
static void tick(int s) { (void)s; ticks++; }
static int strict(unsigned char *p) {
    pid_t c = fork(); if (!c) { push_out(p, 4 * MIB); prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); long bad = changed(p, 4 * MIB); syscall(SYS_exit, bad != 0); }
    int s; waitpid(c, &s, 0); return s;
}
int main(int n, char **v) {
    const char *mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); unsigned char *p = map(8 * MIB); fill(p, 8 * MIB);
    MODE("child_reads") { puts("a child"); return 0; }
    MODE("wait") {
        int *status = (int *)map(MIB); *status = 77; struct rusage *use = (void *)(status + 8192); siginfo_t *info = (void *)(status + 16384);
        pid_t c = fork(); if (!c) _exit(3); push_out(status, MIB); pid_t r = wait4(c, status, 0, use); printf("%d %d\n", r == c, WEXITSTATUS(*status));
        c = fork(); if (!c) _exit(4); push_out(status, MIB); int w = waitid(P_PID, c, info, WEXITED); printf("%d %d\n", w, info->si_status);
    }
    MODE("commands") {
        char *line = (char *)map(MIB); strcpy(line, "exit 5"); push_out(line, MIB); printf("system %#x\n", system(line));
        strcpy(line, "echo from a pipe"); push_out(line, MIB); FILE *f = popen(line, "r"); char got[64] = ""; if (f && fgets(got, 64, f)) printf("popen %s", got); printf("%d\n", f ? pclose(f) : -1);
        char **arguments = (char **)(line + 8192), *path = line + 16384; strcpy(path, v[0]); strcpy(line, "child_reads"); arguments[0] = path; arguments[1] = line; arguments[2] = 0; push_out(line, MIB);
        pid_t c; int s, e = posix_spawn(&c, path, 0, 0, arguments, environ); if (!e) waitpid(c, &s, 0); printf("spawn %d %d\n", e, e ? -1 : s);
        push_out(line, MIB); c = vfork(); if (!c) { execve(path, arguments, environ); _exit(9); } waitpid(c, &s, 0); printf("exec %d\n", s);
        push_out(line, MIB); execve(path, arguments, environ);
    }
    MODE("datagrams") {
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets)) return 1; pthread_t a, b; pthread_create(&a, 0, receives, 0); pthread_create(&b, 0, sends, 0);
        for (int i = 0; i < 60; i++) { pid_t c = fork(); if (!c) _exit(0); waitpid(c, 0, 0); if (i % 8 == 0) push_out(p, 8 * MIB); } pthread_join(b, 0); pthread_join(a, 0); printf("changed %ld\n", changed(p, 8 * MIB));
    }
    MODE("storm") { pthread_t t[4]; long bad[4] = {0}; for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, forks, &bad[i]); for (int i = 0; i < 4; i++) { pthread_join(t[i], 0); printf("%ld ", bad[i]); } printf("changed %ld\n", changed(p, 8 * MIB)); }
    MODE("generations") {
        /* Each child changes its copy of a page here and there; no other process may see it. */
        for (int g = 0;; g++) {
            push_out(p, 8 * MIB); pid_t c = g < 4 ? fork() : 0;
            if (!c && g < 4) { memset(p + (g + 1) * MIB, 0xff, PAGE); continue; }
            int s = 0; if (c) waitpid(c, &s, 0);
            printf("%d: child's status %d, words changed %ld\n", g, s, changed(p, 8 * MIB)); exit(g);
        }
    }
    MODE("last_thread") { pthread_t t; pthread_create(&t, 0, ends_late, p); pthread_detach(t); pthread_exit(0); }
    MODE("not_dumpable") {
        prctl(PR_SET_DUMPABLE, 0); for (int i = 0; i < 3; i++) { push_out(p, 8 * MIB); pid_t c = fork(); if (!c) { push_out(p, 8 * MIB); _exit(changed(p, 8 * MIB) != 0); } int s; waitpid(c, &s, 0); printf("%d %ld\n", s, changed(p, 8 * MIB)); } sleep(1); puts("still here");
    }
    MODE("name_spaces") {
        pid_t c = fork(); if (!c) { printf("unshare user %d\n", unshare(CLONE_NEWUSER) ? errno : 0); _exit(0); } waitpid(c, 0, 0);
        c = fork(); if (!c) { int f = open("/proc/self/ns/mnt", O_RDONLY); printf("setns mount %d\n", setns(f, CLONE_NEWNS) ? errno : 0); _exit(0); } waitpid(c, 0, 0);
    }
    MODE("strict") printf("status %d\n", strict(p));
    MODE("timers") {
        struct sigaction a = {.sa_handler = tick, .sa_flags = 0}; sigaction(SIGALRM, &a, 0); struct itimerval every = {{0, 700}, {0, 700}}; setitimer(ITIMER_REAL, &every, 0);
        for (int i = 0; i < 4; i++) push_out(p, 8 * MIB); long bad = changed(p, 8 * MIB); struct itimerval never = {{0, 0}, {0, 0}}; setitimer(ITIMER_REAL, &never, 0); printf("ticked %d changed %ld\n", ticks > 3, bad);
    }
    MODE("users") { if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) return 1; push_out(p, 8 * MIB); printf("changed %ld\n", changed(p, 8 * MIB)); pid_t c = fork(); if (!c) { push_out(p, 8 * MIB); _exit(changed(p, 8 * MIB) != 0); } int s; waitpid(c, &s, 0); printf("child %d\n", s); execl("/proc/self/exe", v[0], "work", (char *)0); perror("exec"); }
    MODE("work") { for (int i = 0; i < 3; i++) { push_out(p, 8 * MIB); printf("changed %ld\n", changed(p, 8 * MIB)); } system("echo a shell"); }
    MODE("static") { char *arguments[] = {v[2], "static", 0}; pid_t c; int s, e = posix_spawn(&c, v[2], 0, 0, arguments, environ); if (!e) waitpid(c, &s, 0); printf("spawned %d, status %d\n", e, e ? -1 : s); }
    return 0;
}
