/* Accesses memory as it is told on standard input, and answers each line with "done":
 *
 *   anonymous MIB | huge MIB | shared MIB   gets memory and writes all of it; huge: of huge pages
 *   map FILE MIB                            writes a file, lets go of it, and maps it
 *   touch FROM TO                           reads a byte of each page between these MiB of what it got last
 *   step FROM TO                            the same, of each huge page
 *   both FROM TO                            the same as touch, and so does a child, which lives until the end
 *   write FILE MIB                          writes a file, and lets go of its pages
 *   read FILE TIMES                         reads it from its beginning to its end this often
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define MIB (1ul << 20)
static volatile char *memory;
static char block[1 << 16];
static volatile char sink;

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void touch(unsigned long from, unsigned long to, unsigned long step) {
    for (unsigned long at = from * MIB; at < to * MIB; at += step)
        sink = memory[at];
}

static int written(const char *file, unsigned long mib) {
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(fd >= 0, file);
    for (unsigned long at = 0; at < mib * MIB; at += sizeof block)
        check(write(fd, block, sizeof block) == sizeof block, "write");
    check(fsync(fd) == 0, "fsync");
    check(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "fadvise");
    return fd;
}

int main(void) {
    char line[4096], word[16], file[2048];
    unsigned long from, to;
    memset(block, 7, sizeof block);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%15s", word) != 1)
            continue;
        if (sscanf(line, "map %2047s %lu", file, &to) == 2) {
            int fd = written(file, to);
            memory = mmap(NULL, to * MIB, PROT_READ, MAP_SHARED, fd, 0);
            check(memory != MAP_FAILED, "mmap");
        } else if (sscanf(line, "write %2047s %lu", file, &to) == 2) {
            close(written(file, to));
        } else if (sscanf(line, "read %2047s %lu", file, &to) == 2) {
            int fd = open(file, O_RDONLY);
            check(fd >= 0, file);
            for (; to > 0; to--) {
                check(lseek(fd, 0, SEEK_SET) == 0, "lseek");
                while (read(fd, block, sizeof block) > 0) {
                }
            }
            close(fd);
        } else if (sscanf(line, "touch %lu %lu", &from, &to) == 2) {
            touch(from, to, 4096);
        } else if (sscanf(line, "step %lu %lu", &from, &to) == 2) {
            touch(from, to, 2 * MIB);
        } else if (sscanf(line, "both %lu %lu", &from, &to) == 2) {
            int ready[2];
            check(pipe(ready) == 0, "pipe");
            touch(from, to, 4096);
            if (fork() == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                touch(from, to, 4096);
                check(write(ready[1], "x", 1) == 1, "write");
                for (;;)
                    pause();
            }
            check(read(ready[0], word, 1) == 1, "read");
        } else if (sscanf(line, "%*s %lu", &to) == 1) {
            int shared = strcmp(word, "shared") == 0, huge = strcmp(word, "huge") == 0;
            int flags = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
            char *all = mmap(NULL, (to + 2) * MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
            check(all != MAP_FAILED, "mmap");
            all = (char *)(((unsigned long)all + 2 * MIB - 1) & ~(2 * MIB - 1));
            check(madvise(all, to * MIB, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0 || !huge, "madvise");
            memset(all, 1, to * MIB);
            memory = all;
        }
        puts("done");
        fflush(stdout);
    }
    return 0;
}
