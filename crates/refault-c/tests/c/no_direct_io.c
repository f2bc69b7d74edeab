/* For LD_PRELOAD: a file system without direct I/O. Opening with O_DIRECT fails with EINVAL. It prints nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>

static int open_or_fail(const char *call, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, call);
    if (!(flags & O_DIRECT)) return real(path, flags, mode);
    errno = EINVAL;
    return -1;
}

#define OPEN(name)                                                          \
    int name(const char *path, int flags, ...) {                            \
        va_list rest;                                                       \
        va_start(rest, flags);                                              \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                       \
        return open_or_fail(#name, path, flags, mode);                      \
    }

OPEN(open)
OPEN(open64)
