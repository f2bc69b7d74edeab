/* A VFS for SQLite, `held`: refault's, but a thread that takes a shared lock of the WAL's index, which is how a read
 * begins, waits with that lock while the file that HOLD names exists, and says so by making another with `.in` behind
 * its name. It prints nothing. Load it after refault's extension. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sqlite3_vfs vfs;
static sqlite3_vfs *below;
static sqlite3_io_methods methods;
static int (*lock)(sqlite3_file *, int, int, int);

static int held_lock(sqlite3_file *file, int offset, int count, int flags) {
    int result = lock(file, offset, count, flags);
    const char *hold = getenv("HOLD");
    if (result == SQLITE_OK && flags == (SQLITE_SHM_LOCK | SQLITE_SHM_SHARED) && hold && access(hold, F_OK) == 0) {
        char in[4096];
        snprintf(in, sizeof in, "%s.in", hold);
        close(open(in, O_CREAT | O_WRONLY, 0600));
        while (access(hold, F_OK) == 0) usleep(1000);
    }
    return result;
}

static int held_open(sqlite3_vfs *self, const char *name, sqlite3_file *file, int flags, int *out) {
    (void)self;
    int result = below->xOpen(below, name, file, flags, out);
    if (result == SQLITE_OK && (flags & SQLITE_OPEN_MAIN_DB)) {
        methods = *file->pMethods;
        lock = methods.xShmLock;
        methods.xShmLock = held_lock;
        file->pMethods = &methods;
    }
    return result;
}

int sqlite3_heldvfs_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    (void)db, (void)error;
    SQLITE_EXTENSION_INIT2(api);
    below = sqlite3_vfs_find("refault");
    if (!below) return SQLITE_ERROR;
    vfs = *below;
    vfs.pNext = 0;
    vfs.zName = "held";
    vfs.xOpen = held_open;
    int result = sqlite3_vfs_register(&vfs, 0);
    return result == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : result;
}
