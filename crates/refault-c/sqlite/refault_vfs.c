/* A VFS for SQLite whose database files lie behind refault's page cache: a loadable extension.
 *
 *     .load ./refault_vfs
 *     .open file:data.db?vfs=refault
 *     SELECT * FROM refault_stats;
 *
 * It stands before the default VFS, which keeps names, locks, journals, WAL and shared memory; only the bytes of main
 * databases go another way. All connections of the process share one cache and, per database, one cached file, so they
 * see each other's writes. What another process wrote is found out by the file's time and size when a read begins
 * (a SHARED lock, or a read lock of the WAL), which is before SQLite relies on what it reads; then everything that is
 * cached of the file is dropped. A file system without direct I/O (tmpfs) is left to the default VFS.
 *
 * The cache is made at the first open. Parameters of the URI, read then: refault_memory (bytes, default 64 MiB) and
 * refault_policy (default adaptive{cyclic=yes}). For shells that take no URI: the variables REFAULT_MEMORY and REFAULT_POLICY. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include <refault.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A database file, shared by all connections to it. */
typedef struct Shared Shared;
struct Shared {
    refault_file file;
    dev_t device;
    ino_t inode;
    char *path;
    int users;
    pthread_mutex_t seen_lock;
    struct timespec changed; /* the file's time of change after our last write */
    off_t size;
    Shared *next;
};

typedef struct {
    sqlite3_file base;
    Shared *shared; /* null: the default VFS has it all */
    sqlite3_file *real;
} File;

static sqlite3_vfs *below;
static sqlite3_vfs vfs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and the cache */
static Shared *all;
static refault_cache cache;

/* ---- What others did to the file ---- */

/* Called with `seen_lock`. */
static void remember(Shared *shared) {
    struct stat now;
    if (stat(shared->path, &now) == 0) {
        shared->changed = now.st_mtim;
        shared->size = now.st_size;
    }
}

/* Drops what is cached if somebody else has written. */
static int look(Shared *shared) {
    struct stat now;
    int result = SQLITE_OK;
    pthread_mutex_lock(&shared->seen_lock);
    if (stat(shared->path, &now) != 0 || now.st_ino != shared->inode || now.st_dev != shared->device) {
        /* Unlinked or replaced: SQLite goes on with the file it has open, and so do we. */
    } else if (now.st_size != shared->size || now.st_mtim.tv_sec != shared->changed.tv_sec ||
               now.st_mtim.tv_nsec != shared->changed.tv_nsec) {
        if (refault_file_reload(shared->file) == REFAULT_OK) {
            shared->changed = now.st_mtim;
            shared->size = now.st_size;
        } else {
            result = SQLITE_IOERR_READ;
        }
    }
    pthread_mutex_unlock(&shared->seen_lock);
    return result;
}

/* ---- The bytes of a main database ---- */

static int file_close(sqlite3_file *base) {
    File *file = (File *)base;
    if (file->shared) {
        pthread_mutex_lock(&lock);
        if (--file->shared->users == 0) {
            Shared **at = &all;
            while (*at != file->shared) at = &(*at)->next;
            *at = file->shared->next;
            refault_file_close(file->shared->file);
            pthread_mutex_destroy(&file->shared->seen_lock);
            free(file->shared->path);
            free(file->shared);
        }
        pthread_mutex_unlock(&lock);
    }
    return file->real->pMethods ? file->real->pMethods->xClose(file->real) : SQLITE_OK;
}

static int file_read(sqlite3_file *base, void *buffer, int length, sqlite3_int64 offset) {
    File *file = (File *)base;
    size_t read = 0;
    if (refault_file_read(file->shared->file, buffer, (size_t)length, (uint64_t)offset, &read) != REFAULT_OK)
        return SQLITE_IOERR_READ;
    if (read == (size_t)length) return SQLITE_OK;
    memset((char *)buffer + read, 0, (size_t)length - read); /* SQLite demands it */
    return SQLITE_IOERR_SHORT_READ;
}

static int failed(int otherwise) {
    int number = refault_error_number();
    return number == 28 /* ENOSPC */ || number == 122 /* EDQUOT */ ? SQLITE_FULL : otherwise;
}

static int file_write(sqlite3_file *base, const void *buffer, int length, sqlite3_int64 offset) {
    Shared *shared = ((File *)base)->shared;
    pthread_mutex_lock(&shared->seen_lock);
    refault_status status = refault_file_write(shared->file, buffer, (size_t)length, (uint64_t)offset);
    remember(shared);
    pthread_mutex_unlock(&shared->seen_lock);
    return status == REFAULT_OK ? SQLITE_OK : failed(SQLITE_IOERR_WRITE);
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size) {
    Shared *shared = ((File *)base)->shared;
    pthread_mutex_lock(&shared->seen_lock);
    refault_status status = refault_file_truncate(shared->file, (uint64_t)size);
    remember(shared);
    pthread_mutex_unlock(&shared->seen_lock);
    return status == REFAULT_OK ? SQLITE_OK : failed(SQLITE_IOERR_TRUNCATE);
}

static int file_sync(sqlite3_file *base, int flags) {
    (void)flags;
    return refault_file_sync(((File *)base)->shared->file) == REFAULT_OK ? SQLITE_OK : failed(SQLITE_IOERR_FSYNC);
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size) {
    uint64_t bytes = 0;
    if (refault_file_size(((File *)base)->shared->file, &bytes) != REFAULT_OK) return SQLITE_IOERR_FSTAT;
    *size = (sqlite3_int64)bytes;
    return SQLITE_OK;
}

static int file_lock(sqlite3_file *base, int level) {
    File *file = (File *)base;
    int result = file->real->pMethods->xLock(file->real, level);
    return result == SQLITE_OK && level == SQLITE_LOCK_SHARED ? look(file->shared) : result;
}

static int file_unlock(sqlite3_file *base, int level) {
    sqlite3_file *real = ((File *)base)->real;
    return real->pMethods->xUnlock(real, level);
}

static int file_check(sqlite3_file *base, int *out) {
    sqlite3_file *real = ((File *)base)->real;
    return real->pMethods->xCheckReservedLock(real, out);
}

static int file_control(sqlite3_file *base, int operation, void *argument) {
    sqlite3_file *real = ((File *)base)->real;
    switch (operation) {
    case SQLITE_FCNTL_SIZE_HINT:
    case SQLITE_FCNTL_CHUNK_SIZE:
        return SQLITE_OK; /* would change the file's length behind the cache */
    case SQLITE_FCNTL_MMAP_SIZE:
        *(sqlite3_int64 *)argument = 0;
        return SQLITE_OK;
    case SQLITE_FCNTL_VFSNAME:
        *(char **)argument = sqlite3_mprintf("refault");
        return SQLITE_OK;
    default:
        return real->pMethods->xFileControl(real, operation, argument);
    }
}

static int file_sector(sqlite3_file *base) {
    sqlite3_file *real = ((File *)base)->real;
    return real->pMethods->xSectorSize(real);
}

static int file_device(sqlite3_file *base) {
    sqlite3_file *real = ((File *)base)->real;
    /* Whole pages of 4 KiB are rewritten below, so a write that fails may tear its neighbours within them. */
    return real->pMethods->xDeviceCharacteristics(real) & ~(SQLITE_IOCAP_POWERSAFE_OVERWRITE | SQLITE_IOCAP_ATOMIC);
}

static int file_shm_map(sqlite3_file *base, int page, int size, int extend, void volatile **out) {
    sqlite3_file *real = ((File *)base)->real;
    return real->pMethods->xShmMap(real, page, size, extend, out);
}

static int file_shm_lock(sqlite3_file *base, int offset, int count, int flags) {
    File *file = (File *)base;
    int result = file->real->pMethods->xShmLock(file->real, offset, count, flags);
    /* A read of the WAL begins: somebody else's checkpoint may have written to the database. */
    return result == SQLITE_OK && flags == (SQLITE_SHM_LOCK | SQLITE_SHM_SHARED) ? look(file->shared) : result;
}

static void file_shm_barrier(sqlite3_file *base) {
    sqlite3_file *real = ((File *)base)->real;
    real->pMethods->xShmBarrier(real);
}

static int file_shm_unmap(sqlite3_file *base, int delete_it) {
    sqlite3_file *real = ((File *)base)->real;
    return real->pMethods->xShmUnmap(real, delete_it);
}

static const sqlite3_io_methods methods = {
    2, file_close, file_read, file_write, file_truncate, file_sync, file_size, file_lock, file_unlock, file_check,
    file_control, file_sector, file_device, file_shm_map, file_shm_lock, file_shm_barrier, file_shm_unmap, 0, 0,
};

/* ---- Opening ---- */

static uint64_t memory_of(const char *name) {
    sqlite3_int64 asked = sqlite3_uri_int64(name, "refault_memory", 0);
    if (asked <= 0 && getenv("REFAULT_MEMORY")) asked = strtoll(getenv("REFAULT_MEMORY"), 0, 10);
    return asked > 0 ? (uint64_t)asked : (uint64_t)64 << 20;
}

/* The shared file of a path; null if it cannot be cached. Called with `lock`. */
static Shared *shared_of(const char *name, const struct stat *status) {
    for (Shared *known = all; known; known = known->next) {
        if (known->device == status->st_dev && known->inode == status->st_ino) {
            known->users++;
            return known;
        }
    }
    if (!cache) {
        const char *policy = sqlite3_uri_parameter(name, "refault_policy");
        if (!policy) policy = getenv("REFAULT_POLICY");
        if (refault_cache_new(memory_of(name), policy, &cache) != REFAULT_OK) {
            sqlite3_log(SQLITE_CANTOPEN, "refault: %s", refault_error_message());
            return 0;
        }
    }
    Shared *shared = calloc(1, sizeof *shared);
    if (!shared) return 0;
    shared->path = strdup(name);
    if (!shared->path || refault_file_open(cache, name, &shared->file) != REFAULT_OK) {
        sqlite3_log(SQLITE_NOTICE, "refault: not cached: %s", refault_error_message());
        free(shared->path);
        free(shared);
        return 0;
    }
    pthread_mutex_init(&shared->seen_lock, 0);
    shared->device = status->st_dev;
    shared->inode = status->st_ino;
    shared->changed = status->st_mtim;
    shared->size = status->st_size;
    shared->users = 1;
    shared->next = all;
    all = shared;
    return shared;
}

static int vfs_open(sqlite3_vfs *self, const char *name, sqlite3_file *base, int flags, int *out_flags) {
    File *file = (File *)base;
    struct stat status;
    (void)self;
    memset(file, 0, sizeof *file);
    if (!name || !(flags & SQLITE_OPEN_MAIN_DB)) {
        /* Everything else lies where the default VFS puts it, in the same memory: its methods find themselves. */
        return below->xOpen(below, name, base, flags, out_flags);
    }
    file->real = (sqlite3_file *)(file + 1);
    int result = below->xOpen(below, name, file->real, flags, out_flags);
    if (result != SQLITE_OK) {
        if (file->real->pMethods) file->real->pMethods->xClose(file->real);
        return result;
    }
    pthread_mutex_lock(&lock);
    file->shared = stat(name, &status) == 0 ? shared_of(name, &status) : 0;
    pthread_mutex_unlock(&lock);
    if (!file->shared) {
        /* Opened again in our place, so that its own methods work. */
        file->real->pMethods->xClose(file->real);
        return below->xOpen(below, name, base, flags, out_flags);
    }
    base->pMethods = &methods;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *self, const char *name, int sync) {
    (void)self;
    return below->xDelete(below, name, sync);
}
static int vfs_access(sqlite3_vfs *self, const char *name, int flags, int *out) {
    (void)self;
    return below->xAccess(below, name, flags, out);
}
static int vfs_full_path(sqlite3_vfs *self, const char *name, int bytes, char *out) {
    (void)self;
    return below->xFullPathname(below, name, bytes, out);
}
static void *vfs_dl_open(sqlite3_vfs *self, const char *name) {
    (void)self;
    return below->xDlOpen(below, name);
}
static void vfs_dl_error(sqlite3_vfs *self, int bytes, char *out) {
    (void)self;
    below->xDlError(below, bytes, out);
}
static void (*vfs_dl_sym(sqlite3_vfs *self, void *library, const char *name))(void) {
    (void)self;
    return below->xDlSym(below, library, name);
}
static void vfs_dl_close(sqlite3_vfs *self, void *library) {
    (void)self;
    below->xDlClose(below, library);
}
static int vfs_random(sqlite3_vfs *self, int bytes, char *out) {
    (void)self;
    return below->xRandomness(below, bytes, out);
}
static int vfs_sleep(sqlite3_vfs *self, int microseconds) {
    (void)self;
    return below->xSleep(below, microseconds);
}
static int vfs_time(sqlite3_vfs *self, double *out) {
    (void)self;
    return below->xCurrentTime(below, out);
}
static int vfs_error(sqlite3_vfs *self, int bytes, char *out) {
    (void)self;
    return below->xGetLastError(below, bytes, out);
}
static int vfs_time64(sqlite3_vfs *self, sqlite3_int64 *out) {
    (void)self;
    return below->xCurrentTimeInt64(below, out);
}

/* ---- The table refault_stats(name, value) ---- */

enum { STATS = 7 };
static const char *const names[STATS] = {"memory_bytes", "resident_bytes", "metadata_bytes", "hits",
                                         "misses",       "read_ahead",     "written"};

typedef struct {
    sqlite3_vtab_cursor base;
    int row;
    uint64_t values[STATS];
} Cursor;

static int stats_connect(sqlite3 *db, void *context, int count, const char *const *arguments, sqlite3_vtab **out,
                         char **error) {
    (void)context, (void)count, (void)arguments, (void)error;
    int result = sqlite3_declare_vtab(db, "CREATE TABLE refault_stats(name TEXT, value INTEGER)");
    if (result != SQLITE_OK) return result;
    *out = sqlite3_malloc(sizeof **out);
    if (!*out) return SQLITE_NOMEM;
    memset(*out, 0, sizeof **out);
    return SQLITE_OK;
}
static int stats_disconnect(sqlite3_vtab *table) {
    sqlite3_free(table);
    return SQLITE_OK;
}
static int stats_best(sqlite3_vtab *table, sqlite3_index_info *info) {
    (void)table;
    info->estimatedCost = STATS;
    return SQLITE_OK;
}
static int stats_open(sqlite3_vtab *table, sqlite3_vtab_cursor **out) {
    (void)table;
    *out = sqlite3_malloc(sizeof(Cursor));
    if (!*out) return SQLITE_NOMEM;
    memset(*out, 0, sizeof(Cursor));
    return SQLITE_OK;
}
static int stats_close(sqlite3_vtab_cursor *cursor) {
    sqlite3_free(cursor);
    return SQLITE_OK;
}
static int stats_filter(sqlite3_vtab_cursor *base, int index, const char *text, int count, sqlite3_value **values) {
    (void)index, (void)text, (void)count, (void)values;
    Cursor *cursor = (Cursor *)base;
    refault_cache_stats stats;
    memset(&stats, 0, sizeof stats);
    cursor->row = 0;
    pthread_mutex_lock(&lock);
    if (cache) refault_cache_stats_now(cache, &stats);
    pthread_mutex_unlock(&lock);
    uint64_t found[STATS] = {stats.memory_bytes, stats.resident_bytes, stats.metadata_bytes, stats.hits,
                             stats.misses,       stats.read_ahead,     stats.written};
    memcpy(cursor->values, found, sizeof found);
    return SQLITE_OK;
}
static int stats_next(sqlite3_vtab_cursor *cursor) {
    ((Cursor *)cursor)->row++;
    return SQLITE_OK;
}
static int stats_eof(sqlite3_vtab_cursor *cursor) { return ((Cursor *)cursor)->row >= STATS; }
static int stats_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column) {
    Cursor *cursor = (Cursor *)base;
    if (column == 0) {
        sqlite3_result_text(context, names[cursor->row], -1, SQLITE_STATIC);
    } else {
        sqlite3_result_int64(context, (sqlite3_int64)cursor->values[cursor->row]);
    }
    return SQLITE_OK;
}
static int stats_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *out) {
    *out = ((Cursor *)cursor)->row;
    return SQLITE_OK;
}

/* Without xCreate it is there without being made. */
static sqlite3_module stats_module = {
    .xConnect = stats_connect,
    .xBestIndex = stats_best,
    .xDisconnect = stats_disconnect,
    .xOpen = stats_open,
    .xClose = stats_close,
    .xFilter = stats_filter,
    .xNext = stats_next,
    .xEof = stats_eof,
    .xColumn = stats_column,
    .xRowid = stats_rowid,
};

static int add_stats(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    (void)error, (void)api;
    return sqlite3_create_module(db, "refault_stats", &stats_module, 0);
}

__attribute__((visibility("default"))) int sqlite3_refaultvfs_init(sqlite3 *db, char **error,
                                                                   const sqlite3_api_routines *api) {
    SQLITE_EXTENSION_INIT2(api);
    pthread_mutex_lock(&lock);
    if (!below) {
        below = sqlite3_vfs_find(0);
        vfs = (sqlite3_vfs){
            .iVersion = 2,
            .szOsFile = (int)sizeof(File) + below->szOsFile,
            .mxPathname = below->mxPathname,
            .zName = "refault",
            .xOpen = vfs_open,
            .xDelete = vfs_delete,
            .xAccess = vfs_access,
            .xFullPathname = vfs_full_path,
            .xDlOpen = vfs_dl_open,
            .xDlError = vfs_dl_error,
            .xDlSym = vfs_dl_sym,
            .xDlClose = vfs_dl_close,
            .xRandomness = vfs_random,
            .xSleep = vfs_sleep,
            .xCurrentTime = vfs_time,
            .xGetLastError = vfs_error,
            .xCurrentTimeInt64 = vfs_time64,
        };
    }
    pthread_mutex_unlock(&lock);
    int result = sqlite3_vfs_register(&vfs, 0);
    if (result == SQLITE_OK) result = sqlite3_auto_extension((void (*)(void))add_stats); /* connections to come */
    if (result == SQLITE_OK) result = add_stats(db, error, api);
    return result == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : result;
}
