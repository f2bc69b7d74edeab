/* A VFS for SQLite whose database files lie behind refault's page cache: a loadable extension.
 *
 *     .load ./refault_vfs
 *     .open file:data.db?vfs=refault
 *     SELECT * FROM refault_stats;
 *
 * It stands before the default VFS, which keeps names, locks, journals, WAL and shared memory; only the bytes of main
 * databases go another way. All connections of the process share one cache and, per database, one cached file, so they
 * see each other's writes. A file system without direct I/O (tmpfs) is left to the default VFS.
 *
 * Read past the kernel's page cache, they are written through it: when a write returns, everybody else sees it and it outlives
 * this process, as with the default VFS, and the kernel takes many pages to the device together by the time of a sync.
 *
 * What another process has written is found out before SQLite relies on what it reads, and before it writes: when it gets a
 * SHARED or EXCLUSIVE lock of the file, a lock of the WAL's index under which it reads, and when it has read that index
 * (xShmBarrier). Then everything that is cached of the file is dropped. Three things tell: the file's times and length; the 16 bytes
 * of the header by which SQLite itself knows a change, read past the cache; and in the WAL's index the salts and how many
 * frames were copied to the database, because a checkpoint writes without a lock of the file. Only who holds the WAL's
 * checkpoint lock writes to the database then, so what changes while this process holds it is its own.
 *
 * What a sync that failed may have lost is forgotten, not written again: others may have taken up the journal meanwhile.
 *
 * The cache is made at the first open. Parameters of the URI, read then: refault_memory (bytes, or with K, M, G; default 64 MiB) and
 * refault_policy (default adaptive{head_start=25%}). For shells that take no URI: the variables REFAULT_MEMORY and REFAULT_POLICY. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

#include "refault_stats.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What the WAL's index says of the database: see https://sqlite.org/walformat.html, 2.3.1. */
typedef struct {
    uint32_t salts[2]; /* of the log that there is now; the first one rises by 1 with each new one, in big-endian order */
    uint32_t copied;   /* frames of it that are in the database ("nBackfill") */
} Index;

enum {
    SALTS_AT = 32 / 4,
    COPIED_AT = 96 / 4,
    CHECKPOINT_LOCK = 1, /* of the WAL's index */
    READ_LOCKS = 4,      /* of those who read the log, four */
    HEADER_AT = 24,      /* what SQLite looks at in the database file itself */
    HEADER = 16
};

/* A database file, shared by all connections to it. */
typedef struct Shared Shared;
struct Shared {
    refault_file file;
    dev_t device;
    ino_t inode;
    int users;
    pthread_mutex_t seen_lock;
    Index seen; /* as of what is cached */
    unsigned char header[HEADER];
    int knows_index, knows_header;
    int indices; /* connections that have the index mapped: each life of it begins with zeros */
    int alone;   /* connections that hold a lock with which no other writes to the database */
    Shared *next;
};

typedef struct {
    sqlite3_file base;
    Shared *shared; /* null: the default VFS has it all */
    sqlite3_file *real;
    const volatile uint32_t *index; /* the WAL's, where it is mapped */
    int in_doubt;                   /* the last look failed */
    int level;                      /* of the file's lock */
    int is_immutable;               /* by the URI: no process writes */
    int is_readonly;                /* as the default VFS has opened it */
    int checkpoints, exclusive;     /* it holds the checkpoint lock; the file's EXCLUSIVE lock */
    int has_no_index;               /* there is one that cannot be read */
    int chunk;                      /* bytes of which the file's length is to be a multiple, or 0 */
    unsigned born;                  /* in which process, see `forks` */
} File;

static sqlite3_vfs *below;
static sqlite3_vfs vfs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and the cache */
static Shared *all;
static refault_cache cache;
static unsigned forks; /* times that this process is a child of the one that loaded the extension */

/* ---- What others did to the file ---- */

static Index index_now(const File *file) {
    return (Index){{file->index[SALTS_AT], file->index[SALTS_AT + 1]}, file->index[COPIED_AT]};
}

static int is_same(Index a, Index b) { return memcmp(&a, &b, sizeof a) == 0; }

static int complain(int code) {
    sqlite3_log(code, "refault: %s", refault_error_message());
    return code;
}

/* Whether the index says that another process has copied frames to the database. Called with `seen_lock`. */
static int index_differs(const File *file) {
    const Shared *shared = file->shared;
    return file->index && !shared->alone && !(shared->knows_index && is_same(index_now(file), shared->seen));
}

/* Whether the header of the file does. Called with `seen_lock`. */
static int header_differs(File *file, unsigned char now[HEADER]) {
    int result = file->real->pMethods->xRead(file->real, now, HEADER, HEADER_AT);
    if (result != SQLITE_OK && result != SQLITE_IOERR_SHORT_READ) memset(now, 0, HEADER); /* who reads it in earnest is told */
    return !(file->shared->knows_header && memcmp(now, file->shared->header, HEADER) == 0);
}

/* Drops what is cached if another process has written. */
static int look(File *file, int at_file) {
    Shared *shared = file->shared;
    unsigned char header[HEADER];
    Index index = {{0, 0}, 0};
    uint32_t reloaded = 0;
    refault_status status = REFAULT_OK;
    if (file->born != forks) return SQLITE_IOERR_READ; /* its parent's threads may have had the lock */
    pthread_mutex_lock(&shared->seen_lock);
    /* First, so that what changes after it is found the next time. */
    int differs = index_differs(file);
    if (differs) index = index_now(file);
    int header_is_other = at_file && header_differs(file, header);
    if (at_file) status = refault_file_reload_if_changed(shared->file, &reloaded);
    int is_other = differs || header_is_other || (at_file && file->has_no_index);
    if (status == REFAULT_OK && is_other && !reloaded) status = refault_file_reload(shared->file);
    if (status == REFAULT_OK && differs) {
        shared->seen = index;
        shared->knows_index = 1;
    }
    if (status == REFAULT_OK && header_is_other) {
        memcpy(shared->header, header, HEADER);
        shared->knows_header = 1;
    }
    pthread_mutex_unlock(&shared->seen_lock);
    file->in_doubt = status != REFAULT_OK || (file->in_doubt && !at_file);
    return status == REFAULT_OK ? SQLITE_OK : complain(SQLITE_IOERR_READ);
}

/* A connection holds a lock now with which no other writes. */
static void is_alone(File *file, int *holds) {
    pthread_mutex_lock(&file->shared->seen_lock);
    if (!*holds) file->shared->alone++;
    *holds = 1;
    pthread_mutex_unlock(&file->shared->seen_lock);
}

/* It is about to give it up: what the index says now is this process's own doing. */
static void is_not_alone(File *file, int *holds) {
    Shared *shared = file->shared;
    if (!*holds || file->born != forks) return;
    pthread_mutex_lock(&shared->seen_lock);
    if (file->index && shared->knows_index) shared->seen = index_now(file);
    *holds = 0;
    shared->alone--;
    pthread_mutex_unlock(&shared->seen_lock);
}

/* The connection sees the WAL's index from now on, or no longer. */
static void maps_index(File *file, const volatile uint32_t *index) {
    Shared *shared = file->shared;
    if (file->born != forks || !index == !file->index) return;
    pthread_mutex_lock(&shared->seen_lock);
    shared->indices += index ? 1 : -1;
    /* Of another life nothing is known. */
    if (shared->indices == (index ? 1 : 0)) shared->knows_index = 0;
    file->index = index;
    pthread_mutex_unlock(&shared->seen_lock);
}

/* ---- The bytes of a main database ---- */

static int file_close(sqlite3_file *base) {
    File *file = (File *)base;
    /* A child has no part in its parent's cache, whose threads are not there. */
    if (file->shared && file->born == forks) {
        is_not_alone(file, &file->checkpoints);
        is_not_alone(file, &file->exclusive);
        maps_index(file, 0);
        pthread_mutex_lock(&lock);
        if (--file->shared->users == 0) {
            Shared **at = &all;
            while (*at != file->shared) at = &(*at)->next;
            *at = file->shared->next;
            refault_file_close(file->shared->file);
            pthread_mutex_destroy(&file->shared->seen_lock);
            free(file->shared);
        }
        pthread_mutex_unlock(&lock);
    }
    return file->real->pMethods ? file->real->pMethods->xClose(file->real) : SQLITE_OK;
}

/* Whether the file can be used: not by a child of the process that opened it, and not while it is unknown what others did,
 * which without a lock (nolock=1, or a part of a database that another VFS splits) it always is. */
static int is_usable(File *file) {
    int is_known = !file->in_doubt && (file->level > SQLITE_LOCK_NONE || file->is_immutable);
    return file->born == forks && (is_known || look(file, 1) == SQLITE_OK);
}

static int file_read(sqlite3_file *base, void *buffer, int length, sqlite3_int64 offset) {
    File *file = (File *)base;
    size_t read = 0;
    if (!is_usable(file)) return SQLITE_IOERR_READ;
    if (refault_file_read(file->shared->file, buffer, (size_t)length, (uint64_t)offset, &read) != REFAULT_OK)
        return complain(SQLITE_IOERR_READ);
    if (read == (size_t)length) return SQLITE_OK;
    memset((char *)buffer + read, 0, (size_t)length - read); /* SQLite demands it */
    return SQLITE_IOERR_SHORT_READ;
}

static int failed(int otherwise) {
    int number = refault_error_number();
    return complain(number == ENOSPC || number == EDQUOT ? SQLITE_FULL : otherwise);
}

static int file_write(sqlite3_file *base, const void *buffer, int length, sqlite3_int64 offset) {
    Shared *shared = ((File *)base)->shared;
    if (((File *)base)->is_readonly) return SQLITE_READONLY;
    if (!is_usable((File *)base)) return SQLITE_IOERR_WRITE;
    int has_header = offset < HEADER_AT + HEADER && offset + length > HEADER_AT;
    /* Only then, so that those who look need not wait for the device at each page of a checkpoint. */
    if (has_header) pthread_mutex_lock(&shared->seen_lock);
    refault_status status = refault_file_write(shared->file, buffer, (size_t)length, (uint64_t)offset);
    if (has_header) {
        shared->knows_header = status == REFAULT_OK && offset <= HEADER_AT && offset + length >= HEADER_AT + HEADER;
        if (shared->knows_header) memcpy(shared->header, (const char *)buffer + (HEADER_AT - offset), HEADER);
        pthread_mutex_unlock(&shared->seen_lock);
    }
    return status == REFAULT_OK ? SQLITE_OK : failed(SQLITE_IOERR_WRITE);
}

/* The length with which the file is left if it is to be at least that long. */
static sqlite3_int64 in_chunks(const File *file, sqlite3_int64 size) {
    return file->chunk > 0 ? (size + file->chunk - 1) / file->chunk * file->chunk : size;
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size) {
    Shared *shared = ((File *)base)->shared;
    if (((File *)base)->is_readonly) return SQLITE_READONLY;
    if (!is_usable((File *)base)) return SQLITE_IOERR_TRUNCATE;
    size = in_chunks((File *)base, size);
    pthread_mutex_lock(&shared->seen_lock);
    refault_status status = refault_file_truncate(shared->file, (uint64_t)size);
    if (size < HEADER_AT + HEADER) shared->knows_header = 0;
    pthread_mutex_unlock(&shared->seen_lock);
    return status == REFAULT_OK ? SQLITE_OK : failed(SQLITE_IOERR_TRUNCATE);
}

static int file_sync(sqlite3_file *base, int flags) {
    (void)flags;
    if (!is_usable((File *)base)) return SQLITE_IOERR_FSYNC;
    return refault_file_sync(((File *)base)->shared->file) == REFAULT_OK ? SQLITE_OK : failed(SQLITE_IOERR_FSYNC);
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size) {
    uint64_t bytes = 0;
    if (!is_usable((File *)base) || refault_file_size(((File *)base)->shared->file, &bytes) != REFAULT_OK)
        return SQLITE_IOERR_FSTAT;
    *size = bytes == 1 ? 0 : (sqlite3_int64)bytes; /* the default VFS takes a single byte for an empty database */
    return SQLITE_OK;
}

/* The file is going to be that long: with a chunk size it is from now on. Not without a lock, as in the meantime others may
 * make it longer still, which would be cut off. */
static int file_grow(sqlite3_file *base, sqlite3_int64 size) {
    File *file = (File *)base;
    sqlite3_int64 now = 0;
    if (file->chunk <= 0 || !(file->level >= SQLITE_LOCK_RESERVED || file->checkpoints)) return SQLITE_OK;
    int result = file_size(base, &now);
    return result != SQLITE_OK || now >= in_chunks(file, size) ? result : file_truncate(base, size);
}

static int file_unlock(sqlite3_file *base, int level) {
    File *file = (File *)base;
    if (level < SQLITE_LOCK_EXCLUSIVE) is_not_alone(file, &file->exclusive);
    if (level < file->level) file->level = level;
    return file->real->pMethods->xUnlock(file->real, level);
}

static int file_lock(sqlite3_file *base, int level) {
    File *file = (File *)base;
    int result = file->real->pMethods->xLock(file->real, level);
    if (result == SQLITE_OK && level > file->level) file->level = level;
    if (result != SQLITE_OK || (level != SQLITE_LOCK_SHARED && level != SQLITE_LOCK_EXCLUSIVE)) return result;
    result = look(file, 1);
    /* SQLite goes on without the lock that it was not told of. A greater one it gives up with what it has. */
    if (result != SQLITE_OK && level == SQLITE_LOCK_SHARED) file_unlock(base, SQLITE_LOCK_NONE);
    if (result == SQLITE_OK && level == SQLITE_LOCK_EXCLUSIVE) is_alone(file, &file->exclusive);
    return result;
}

static int file_check(sqlite3_file *base, int *out) {
    sqlite3_file *real = ((File *)base)->real;
    return real->pMethods->xCheckReservedLock(real, out);
}

static int file_control(sqlite3_file *base, int operation, void *argument) {
    sqlite3_file *real = ((File *)base)->real;
    switch (operation) {
    case SQLITE_FCNTL_SIZE_HINT: /* below it would change the file's length behind the cache */
        return file_grow(base, *(sqlite3_int64 *)argument);
    case SQLITE_FCNTL_CHUNK_SIZE:
        ((File *)base)->chunk = *(int *)argument;
        return SQLITE_OK;
    case SQLITE_FCNTL_MMAP_SIZE:
        *(sqlite3_int64 *)argument = 0;
        return SQLITE_OK;
    case SQLITE_FCNTL_BEGIN_ATOMIC_WRITE:
    case SQLITE_FCNTL_COMMIT_ATOMIC_WRITE:
    case SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE:
        return SQLITE_NOTFOUND; /* other descriptors than ours */
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
    /* Of what is written the kernel has the same as by the default VFS, and so the same is claimed. If two claimed different
     * things, one would take a journal of less than a sector, as the other leaves them, for none, and not roll it back. */
    const int kept = SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN | SQLITE_IOCAP_POWERSAFE_OVERWRITE;
    return real->pMethods->xDeviceCharacteristics(real) & kept;
}

static int file_shm_map(sqlite3_file *base, int page, int size, int extend, void volatile **out) {
    File *file = (File *)base;
    int result = file->real->pMethods->xShmMap(file->real, page, size, extend, out);
    if (page == 0) {
        file->has_no_index = result == SQLITE_READONLY_CANTINIT;
        if ((result == SQLITE_OK || result == SQLITE_READONLY) && *out) maps_index(file, (const volatile uint32_t *)*out);
    }
    return result;
}

/* Locks of readers are about to be given up that were this connection's alone: a new log may have begun under them. That
 * is when all of the old one is copied, and it copies nothing. */
static void remember_new_log(File *file) {
    Shared *shared = file->shared;
    if (file->born != forks) return;
    pthread_mutex_lock(&shared->seen_lock);
    if (file->index && shared->knows_index) {
        Index now = index_now(file);
        if (now.copied == 0 && __builtin_bswap32(now.salts[0]) == __builtin_bswap32(shared->seen.salts[0]) + 1)
            shared->seen = now;
    }
    pthread_mutex_unlock(&shared->seen_lock);
}

static int file_shm_lock(sqlite3_file *base, int offset, int count, int flags) {
    File *file = (File *)base;
    int is_ours = offset + count > CHECKPOINT_LOCK; /* not the writers' alone */
    int is_exclusive = flags & SQLITE_SHM_EXCLUSIVE;
    if (is_exclusive && flags & SQLITE_SHM_UNLOCK) {
        if (is_ours && offset <= CHECKPOINT_LOCK) is_not_alone(file, &file->checkpoints);
        if (offset == READ_LOCKS && count > 1) remember_new_log(file);
    }
    int result = file->real->pMethods->xShmLock(file->real, offset, count, flags);
    if (result != SQLITE_OK || !is_ours || !(flags & SQLITE_SHM_LOCK)) return result;
    /* To set one reader's mark: nothing is read of the database before that lock is taken again, shared. */
    if (is_exclusive && offset >= READ_LOCKS && count == 1) return result;
    result = look(file, 1);
    if (result != SQLITE_OK) {
        int unlock = SQLITE_SHM_UNLOCK | (flags & (SQLITE_SHM_SHARED | SQLITE_SHM_EXCLUSIVE));
        file->real->pMethods->xShmLock(file->real, offset, count, unlock);
    } else if (is_exclusive && offset <= CHECKPOINT_LOCK) {
        is_alone(file, &file->checkpoints);
    }
    return result;
}

static void file_shm_barrier(sqlite3_file *base) {
    File *file = (File *)base;
    file->real->pMethods->xShmBarrier(file->real);
    /* It may have read how far the log is copied since it got its lock. */
    look(file, 0);
}

static int file_shm_unmap(sqlite3_file *base, int delete_it) {
    File *file = (File *)base;
    is_not_alone(file, &file->checkpoints);
    maps_index(file, 0);
    file->has_no_index = 0;
    return file->real->pMethods->xShmUnmap(file->real, delete_it);
}

/* For a VFS below that has shared memory, and for one that has none. */
static const sqlite3_io_methods methods = {
    2, file_close, file_read, file_write, file_truncate, file_sync, file_size, file_lock, file_unlock, file_check,
    file_control, file_sector, file_device, file_shm_map, file_shm_lock, file_shm_barrier, file_shm_unmap, 0, 0,
};
static const sqlite3_io_methods plain_methods = {
    1, file_close, file_read, file_write, file_truncate, file_sync, file_size, file_lock, file_unlock, file_check,
    file_control, file_sector, file_device, 0, 0, 0, 0, 0, 0,
};

/* ---- Opening ---- */

/* Bytes, by the URI or the environment; 0 if that says something else. */
static uint64_t memory_of(const char *name) {
    const char *asked = sqlite3_uri_parameter(name, "refault_memory");
    if (!asked) asked = getenv("REFAULT_MEMORY");
    if (!asked || !*asked) return (uint64_t)64 << 20;
    char *end;
    errno = 0;
    unsigned long long bytes = strtoull(asked, &end, 10);
    const char *units = "KMG", *unit = *end ? strchr(units, *end) : 0;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (errno || *asked < '0' || *asked > '9' || (*end && (!unit || end[1])) || bytes > UINT64_MAX >> shift) return 0;
    return (uint64_t)bytes << shift;
}

/* The shared file of a path; none where the file system has no direct I/O. Called with `lock`. */
static int shared_of(const char *name, const struct stat *status, Shared **out) {
    *out = 0;
    for (Shared *known = all; known; known = known->next) {
        if (known->device == status->st_dev && known->inode == status->st_ino) {
            known->users++;
            *out = known;
            return SQLITE_OK;
        }
    }
    if (!cache) {
        const char *policy = sqlite3_uri_parameter(name, "refault_policy");
        uint64_t memory = memory_of(name);
        if (!policy) policy = getenv("REFAULT_POLICY");
        if (memory == 0) {
            sqlite3_log(SQLITE_CANTOPEN, "refault: refault_memory is not a number of bytes, or one with K, M or G");
            return SQLITE_CANTOPEN;
        }
        if (refault_cache_new(memory, policy, &cache) != REFAULT_OK) return complain(SQLITE_CANTOPEN);
    }
    Shared *shared = calloc(1, sizeof *shared);
    if (!shared) return SQLITE_NOMEM;
    /* Connections share it, and the first may only read: the first that writes opens it for writing. */
    const uint32_t rights = REFAULT_OPEN_WRITE_ON_DEMAND | REFAULT_OPEN_BUFFERED_WRITES;
    if (refault_file_open_with(cache, name, rights, &shared->file) != REFAULT_OK) {
        int number = refault_error_number();
        free(shared);
        if (number != EINVAL && number != EOPNOTSUPP) return complain(SQLITE_CANTOPEN);
        sqlite3_log(SQLITE_NOTICE, "refault: not cached: %s", refault_error_message());
        return SQLITE_OK;
    }
    refault_file_forget_on_failure(shared->file);
    pthread_mutex_init(&shared->seen_lock, 0);
    shared->device = status->st_dev;
    shared->inode = status->st_ino;
    shared->users = 1;
    shared->next = all;
    all = shared;
    *out = shared;
    return SQLITE_OK;
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
    int got = flags;
    int result = below->xOpen(below, name, file->real, flags, &got);
    if (out_flags) *out_flags = got;
    if (result != SQLITE_OK) {
        if (file->real->pMethods) file->real->pMethods->xClose(file->real);
        return result;
    }
    pthread_mutex_lock(&lock);
    result = stat(name, &status) == 0 ? SQLITE_OK : SQLITE_CANTOPEN;
    /* Whether a directory is good for anything the default VFS says. */
    if (result == SQLITE_OK && S_ISREG(status.st_mode)) result = shared_of(name, &status, &file->shared);
    pthread_mutex_unlock(&lock);
    if (!file->shared) {
        file->real->pMethods->xClose(file->real);
        memset(file, 0, sizeof *file);
        /* Without direct I/O, or no file, opened again in our place, so that its own methods work. */
        return result == SQLITE_OK ? below->xOpen(below, name, base, flags, out_flags) : result;
    }
    file->born = forks;
    file->is_readonly = (got & SQLITE_OPEN_READONLY) != 0;
    file->is_immutable = sqlite3_uri_boolean(name, "immutable", 0);
    base->pMethods = file->real->pMethods->iVersion >= 2 && file->real->pMethods->xShmMap ? &methods : &plain_methods;
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
    if (below->iVersion >= 2 && below->xCurrentTimeInt64) return below->xCurrentTimeInt64(below, out);
    double days = 0;
    int result = below->xCurrentTime(below, &days);
    *out = (sqlite3_int64)(days * 86400000.0);
    return result;
}

/* For the table of figures: zeros where there is no cache yet. */
void refault_vfs_figures(refault_cache_stats *out) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&lock);
    if (cache) refault_cache_stats_now(cache, out);
    pthread_mutex_unlock(&lock);
}

static int add_stats(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    (void)error, (void)api;
    return refault_stats_add(db);
}

/* A fork waits for the list. The child begins without a cache: that of its parent has threads which it has not. */
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
    forks++;
    all = 0;
    cache = 0;
    pthread_mutex_init(&lock, 0);
}

__attribute__((visibility("default"))) int sqlite3_refaultvfs_init(sqlite3 *db, char **error,
                                                                   const sqlite3_api_routines *api) {
    SQLITE_EXTENSION_INIT2(api);
    pthread_mutex_lock(&lock);
    if (!below) {
        /* One that is not the system's own may change what is written, and would be passed by. */
        below = sqlite3_vfs_find(0);
        if (strncmp(below->zName, "unix", 4) != 0 && sqlite3_vfs_find("unix")) below = sqlite3_vfs_find("unix");
        pthread_atfork(before_fork, in_parent, in_child);
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
