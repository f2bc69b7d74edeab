/* For LD_PRELOAD: while the file that FAIL names exists, fdatasync and fsync of every file whose name ends in `.db`
 * fail with EIO, by whatever descriptor; what was written before is there or not, as the kernel pleases. It prints
 * nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int descriptor) {
    const char *fail = getenv("FAIL");
    char link[64], name[4096];
    if (!fail || access(fail, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, name, sizeof name);
    return length > 3 && memcmp(name + length - 3, ".db", 3) == 0;
}

static int sync_or_fail(const char *call, int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    if (!fails(descriptor)) return real(descriptor);
    errno = EIO;
    return -1;
}

int fdatasync(int descriptor) { return sync_or_fail("fdatasync", descriptor); }
int fsync(int descriptor) { return sync_or_fail("fsync", descriptor); }
