/* Descriptors: the tool's may not be met, closed, inherited or written to. */
#include "probe.h"
#include <dirent.h>
#include <sys/stat.h>

static long named(const char *what) {
    long count = 0; DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; (e = readdir(d));) { char path[300], to[300]; snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name); ssize_t n = readlink(path, to, sizeof to - 1); if (n > 0) { to[n] = 0; count += strstr(to, what) != 0; } }
    closedir(d); return count;
}
static void show(const char *name) { char b[8192]; int f = open(name, O_RDONLY); ssize_t n = read(f, b, sizeof b - 1); b[n < 0 ? 0 : n] = 0; printf("%s\n", b); close(f); }
int main(int n, char **v) {
    const char *mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); unsigned char *p = map(8 * MIB); fill(p, 8 * MIB);
    MODE("two") {
        /* A data file that has become descriptor 2. */
        close(2); int f = open("database", O_RDWR | O_CREAT | O_TRUNC, 0600); if (write(f, "HEADER--HEADER--HEADER--", 24) != 24) return 1; lseek(f, 8, SEEK_SET);
        mlockall(MCL_CURRENT | MCL_FUTURE); munlockall(); push_out(p, 8 * MIB); pid_t c = fork(); if (!c) _exit(changed(p, 8 * MIB) != 0); waitpid(c, 0, 0);
        mmap(0, 1ul << 46, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); char *block = malloc(1ul << 45); free(block); printf("descriptor %d holds ", f); show("database"); unlink("database");
    }
    MODE("closed") { push_out(p, 8 * MIB); long r = syscall(SYS_close_range, 3u, ~0u, 0); printf("close_range %ld\n", r); push_out(p, 8 * MIB); printf("changed %ld\n", changed(p, 8 * MIB)); int f = open("/dev/null", O_RDONLY); printf("next %d\n", f); }
    MODE("one_by_one") { for (int round = 0; round < 2; round++) { push_out(p, 8 * MIB); for (int f = 3; f < 5000; f++) close(f); printf("changed %ld\n", changed(p, 8 * MIB)); } int f = open("/dev/null", O_RDONLY); printf("next %d\n", f); }
    MODE("replaced") {
        /* Every free number is given to a file of the program, and nothing may be written to it. */
        int f = open("mine", O_RDWR | O_CREAT | O_TRUNC, 0600); if (write(f, "mine", 4) != 4) return 1;
        for (int to = f + 1; to < 1024; to++) dup2(f, to); push_out(p, 8 * MIB); printf("changed %ld, holds ", changed(p, 8 * MIB)); show("mine"); printf("%ld bytes\n", (long)lseek(f, 0, SEEK_END)); unlink("mine");
    }
    MODE("unshared") { if (unshare(CLONE_FILES)) return 1; push_out(p, 8 * MIB); printf("changed %ld\n", changed(p, 8 * MIB)); }
    MODE("lowest") { int a = open("/dev/null", O_RDONLY), b = open("/dev/null", O_RDONLY); printf("%d %d\n", a, b); close(a); printf("%d\n", open("/dev/null", O_RDONLY)); struct rlimit l = {64, 64}; setrlimit(RLIMIT_NOFILE, &l); push_out(p, 8 * MIB); pid_t c = fork(); if (!c) { push_out(p, 8 * MIB); _exit(changed(p, 8 * MIB) != 0); } int s; waitpid(c, &s, 0); printf("child %d changed %ld\n", s, changed(p, 8 * MIB)); }
    MODE("three") {
        /* A program that begins without its standard descriptors finds none, and may use the numbers. */
        if (n < 3) { int keep = dup2(1, 20); close(0); close(1); close(2); (void)keep; execl(v[0], v[0], "three", "again", (char *)0); return 1; }
        long open_ones = 0; for (int f = 0; f < 1024; f++) { struct stat s; open_ones += f != 20 && (!fstat(f, &s) || fcntl(f, F_GETFD) >= 0); }
        int a = open("/dev/null", O_RDWR), b = dup2(20, 1), c = dup2(1, 2), e = close(2); push_out(p, 8 * MIB);
        printf("%ld open, then %d %d %d %d, changed %ld\n", open_ones, a, b, c, e, changed(p, 8 * MIB));
    }
    MODE("look") printf("userfaultfd %ld, device %ld, uid %d\n", named("[userfaultfd]"), named("/dev/userfaultfd"), getuid() == 65534);
    MODE("inherited") {
        /* v[2]: this program without the tool's library, since it is static. */
        if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) { puts("cannot change the user"); return 1; }
        execl(v[2], v[2], "look", (char *)0); perror("exec");
    }
    return 0;
}
