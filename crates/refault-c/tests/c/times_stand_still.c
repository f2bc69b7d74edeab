/* For LD_PRELOAD: files have the same times for ever, as where a clock is too coarse to tell two changes apart. It prints
 * nothing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int statx(int directory, const char *restrict path, int flags, unsigned mask, struct statx *restrict out) {
    long result = syscall(SYS_statx, directory, path, flags, mask, out);
    if (result == 0) {
        out->stx_mtime = (struct statx_timestamp){.tv_sec = 1};
        out->stx_ctime = out->stx_mtime;
    }
    return (int)result;
}
