/* The two pieces by which SQLite's own test program gets refault's VFS as its default one, for scripts/dev/sqlite_suite.py.
 *
 * The first, with -DSTARTS, is linked into the program, which calls it whenever SQLite is initialised. It loads the second if
 * the variable REFAULT_SUITE_VFS names it, so that one program serves with and without. The second is the VFS itself, where
 * the faults that the tests of SQLite simulate in its own VFS are simulated in the calls of the library. */
#ifdef STARTS
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int refault_suite_init(const char *unused) {
    const char *name = getenv("REFAULT_SUITE_VFS");
    (void)unused;
    if (!name) return 0;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror()), exit(2);
    return ((int (*)(void))dlsym(library, "refault_suite_begin"))();
}

#else
#include <errno.h>
#include <refault.h>
#include <sqlite3.h>
#include <stdlib.h>

/* See os_common.h of SQLite. */
extern int sqlite3_io_error_hit, sqlite3_io_error_hardhit, sqlite3_io_error_pending, sqlite3_io_error_persist;
extern int sqlite3_io_error_benign, sqlite3_diskfull_pending, sqlite3_diskfull, sqlite3_sync_count, sqlite3_fullsync_count;

static int simulated; /* the last fault's number, 0 if it was none of these */

static int is_hit(void) {
    simulated = 0;
    if (!(sqlite3_io_error_persist && sqlite3_io_error_hit) && sqlite3_io_error_pending-- != 1) return 0;
    sqlite3_io_error_hit++;
    if (!sqlite3_io_error_benign) sqlite3_io_error_hardhit++;
    return simulated = EIO;
}

static int is_full(void) {
    if (!sqlite3_diskfull_pending) return 0;
    if (sqlite3_diskfull_pending != 1) return sqlite3_diskfull_pending--, 0;
    sqlite3_io_error_hit++;
    if (!sqlite3_io_error_benign) sqlite3_io_error_hardhit++;
    sqlite3_diskfull = sqlite3_io_error_hit = 1;
    return simulated = ENOSPC;
}

static int number_of_error(void) { return simulated ? simulated : refault_error_number(); }
static refault_status counted_sync(refault_file file) {
    sqlite3_sync_count++;
    if (is_hit() || is_full()) return REFAULT_SYSTEM;
    return getenv("REFAULT_SUITE_SYNC") ? refault_file_sync(file) : REFAULT_OK;
}

#define refault_error_number number_of_error
#define refault_file_read(...) (is_hit() ? REFAULT_SYSTEM : refault_file_read(__VA_ARGS__))
#define refault_file_write(...) (is_hit() || is_full() ? REFAULT_SYSTEM : refault_file_write(__VA_ARGS__))
#define refault_file_truncate(...) (is_hit() ? REFAULT_SYSTEM : refault_file_truncate(__VA_ARGS__))
#define refault_file_size(...) (is_hit() ? REFAULT_SYSTEM : refault_file_size(__VA_ARGS__))
#define refault_file_sync counted_sync
/* Where it is defined, a function before it that counts. */
#define file_sync(base_, flags_)                                                      \
    really_sync(base_, flags_);                                                       \
    static int file_sync(base_, flags_) {                                             \
        if ((flags & 0xf) == SQLITE_SYNC_FULL) sqlite3_fullsync_count++;              \
        return really_sync(base, flags);                                              \
    }                                                                                 \
    static int really_sync(base_, flags_)
#include "refault_vfs.c"

/* The table of figures would be one more module than the tests count. */
int refault_stats_add(sqlite3 *db) { return db ? SQLITE_OK : SQLITE_OK; }

static int system_call_set(sqlite3_vfs *self, const char *name, sqlite3_syscall_ptr call) {
    return (void)self, below->xSetSystemCall(below, name, call);
}
static sqlite3_syscall_ptr system_call(sqlite3_vfs *self, const char *name) {
    return (void)self, below->xGetSystemCall(below, name);
}
static const char *system_call_after(sqlite3_vfs *self, const char *name) {
    return (void)self, below->xNextSystemCall(below, name);
}

__attribute__((visibility("default"))) int refault_suite_begin(void) {
    char *error = 0;
    int result = sqlite3_refaultvfs_init(0, &error, 0);
    sqlite3_reset_auto_extension(); /* as they count */
    /* Of the journals, locks and memory, which the default VFS keeps; what this one opens itself is not intercepted. */
    vfs.iVersion = 3;
    vfs.zName = getenv("REFAULT_SUITE_NAME") ? "unix" : vfs.zName; /* some tests are skipped if it has another name */
    vfs.xSetSystemCall = system_call_set;
    vfs.xGetSystemCall = system_call;
    vfs.xNextSystemCall = system_call_after;
    return result == SQLITE_OK_LOAD_PERMANENTLY ? sqlite3_vfs_register(&vfs, 1) : result;
}
#endif
