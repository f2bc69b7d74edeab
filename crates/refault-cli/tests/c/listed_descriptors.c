/* Lists its own open files as programs do that close them or confine themselves: each that is listed is there, none is a
 * folder but the one that is read, and a program in a child sees the same. Prints "done". */
#include "program.h"
#include <dirent.h>
#include <sys/stat.h>

/* Whether all that is listed is the program's, read `bytes` bytes at a time. How many are listed. */
static int all_are_ours(const char *path, unsigned long bytes) {
    int folder = open(path, O_RDONLY | O_DIRECTORY), count = 0;
    CHECK(folder >= 0);
    /* It goes out of memory, and comes back. */
    char *entries = map(MIB);
    fill(entries, MIB);
    CHECK(!madvise(entries, MIB, MADV_PAGEOUT));
    long length;
    while ((length = syscall(SYS_getdents64, folder, entries, bytes)) > 0) {
        for (long at = 0; at < length; at += *(unsigned short *)(entries + at + 16)) {
            const char *name = entries + at + 19;
            if (*name == '.') continue;
            struct stat status;
            CHECK(fcntl(atoi(name), F_GETFD) >= 0);
            CHECK(!fstatat(folder, name, &status, 0));
            CHECK(!S_ISDIR(status.st_mode) || atoi(name) == folder);
            count++;
        }
    }
    CHECK(length == 0 && !close(folder) && !munmap(entries, MIB));
    return count;
}

static int look(void) {
    int all = all_are_ours("/proc/self/fd", MIB);
    for (unsigned long bytes = 24; bytes < 100; bytes += 8) CHECK(all_are_ours("/proc/self/fd", bytes) == all);
    char path[64];
    sprintf(path, "/proc/%d/task/%d/fd", getpid(), getpid());
    CHECK(all_are_ours(path, 4096) == all);
    return all;
}

int main(void) {
    int before = look();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) _exit(look() != before);
    CHECK(ended_well(pid));
    /* Calls of libc jump from here on. */
    for (int call = 0; call < 2000; call++) CHECK(getppid() > 0);
    CHECK(dup(0) >= 0 && look() == before + 1);
    /* Other folders of /proc are whole. */
    DIR *all = opendir("/proc");
    int found = 0;
    for (struct dirent *entry; (entry = readdir(all));) found |= atoi(entry->d_name) == getpid();
    CHECK(found && !closedir(all));
    puts("done");
}
