/* An I/O engine for fio whose files lie behind refault's page cache: ioengine=external:/path/to/refault_fio.so
 *
 * Options: refault_memory (bytes of contents, default 64 MiB), refault_policy (default adaptive{head_start=25%}), refault_write_back
 * (default 0) and refault_compressed (percent of memory for evicted pages, compressed; default 0), read by the first job.
 * All jobs of one process share the cache and its files: use thread=1, or each job has a cache of its own. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"

#include <refault.h>

struct options {
    void *pad; /* fio takes offset 0 for "no option" */
    unsigned long long memory;
    char *policy;
    unsigned int write_back;
    unsigned int compressed;
};

static struct fio_option options[] = {
    {
        .name = "refault_memory",
        .lname = "Memory of the page cache",
        .type = FIO_OPT_STR_VAL,
        .off1 = offsetof(struct options, memory),
        .help = "Bytes of file contents in memory",
        .def = "64m",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "refault_policy",
        .lname = "Policy of the page cache",
        .type = FIO_OPT_STR_STORE,
        .off1 = offsetof(struct options, policy),
        .help = "As 'refault policies' lists them",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "refault_write_back",
        .lname = "Writes stay in memory",
        .type = FIO_OPT_BOOL,
        .off1 = offsetof(struct options, write_back),
        .help = "Writes are written in the background, or when fsync asks",
        .def = "0",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {
        .name = "refault_compressed",
        .lname = "Memory for compressed pages",
        .type = FIO_OPT_INT,
        .off1 = offsetof(struct options, compressed),
        .help = "Percent of memory for evicted pages, compressed",
        .def = "0",
        .category = FIO_OPT_C_ENGINE,
        .group = FIO_OPT_G_INVALID,
    },
    {.name = NULL},
};

/* A file that jobs of this process share. */
struct shared {
    refault_file file;
    char *name;
    int users;
    struct shared *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all;
static refault_cache cache;

static int complain(struct thread_data *td, const char *what) {
    int number = refault_error_number() ? refault_error_number() : EINVAL;
    log_err("refault: %s\n", refault_error_message());
    td_verror(td, number, what);
    return number;
}

static int start(struct thread_data *td) {
    struct options *own = td->eo;
    int result = 0;
    pthread_mutex_lock(&lock);
    refault_cache_options options = {
        .memory = own->memory,
        .policy = own->policy,
        .write_back = own->write_back,
        .compressed = own->compressed / 100.0,
    };
    if (!cache && refault_cache_new_with(&options, &cache) != REFAULT_OK) result = complain(td, "refault_cache_new_with");
    pthread_mutex_unlock(&lock);
    return result;
}

static int open_file(struct thread_data *td, struct fio_file *f) {
    int result = generic_open_file(td, f); /* makes the file if need be, and finds its size */
    if (result) return result;
    pthread_mutex_lock(&lock);
    struct shared *known = all;
    while (known && strcmp(known->name, f->file_name)) known = known->next;
    if (!known) {
        known = calloc(1, sizeof *known);
        known->name = strdup(f->file_name);
        if (refault_file_open(cache, f->file_name, &known->file) != REFAULT_OK) {
            result = complain(td, "refault_file_open");
            free(known->name);
            free(known);
            known = NULL;
        } else {
            known->next = all;
            all = known;
        }
    }
    if (known) known->users++;
    FILE_SET_ENG_DATA(f, known);
    pthread_mutex_unlock(&lock);
    if (result) generic_close_file(td, f);
    return result;
}

static int close_file(struct thread_data *td, struct fio_file *f) {
    struct shared *known = FILE_ENG_DATA(f);
    pthread_mutex_lock(&lock);
    if (known && --known->users == 0) {
        struct shared **at = &all;
        while (*at != known) at = &(*at)->next;
        *at = known->next;
        refault_file_close(known->file);
        free(known->name);
        free(known);
    }
    FILE_SET_ENG_DATA(f, NULL);
    pthread_mutex_unlock(&lock);
    return generic_close_file(td, f);
}

static enum fio_q_status queue(struct thread_data *td, struct io_u *io_u) {
    struct shared *known = FILE_ENG_DATA(io_u->file);
    refault_status status = REFAULT_OK;
    size_t done = io_u->xfer_buflen;
    fio_ro_check(td, io_u);
    if (io_u->ddir == DDIR_READ)
        status = refault_file_read(known->file, io_u->xfer_buf, io_u->xfer_buflen, io_u->offset, &done);
    else if (io_u->ddir == DDIR_WRITE)
        status = refault_file_write(known->file, io_u->xfer_buf, io_u->xfer_buflen, io_u->offset);
    else if (ddir_sync(io_u->ddir))
        status = refault_file_sync(known->file);
    else {
        io_u->error = EINVAL;
        return FIO_Q_COMPLETED;
    }
    if (status != REFAULT_OK) io_u->error = complain(td, "refault");
    else if (!ddir_sync(io_u->ddir)) io_u->resid = io_u->xfer_buflen - done;
    return FIO_Q_COMPLETED;
}

struct ioengine_ops ioengine = {
    .name = "refault",
    .version = FIO_IOOPS_VERSION,
    .flags = FIO_SYNCIO,
    .init = start,
    .queue = queue,
    .open_file = open_file,
    .close_file = close_file,
    .get_file_size = generic_get_file_size,
    .options = options,
    .option_struct_size = sizeof(struct options),
};
