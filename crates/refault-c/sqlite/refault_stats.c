/* The table refault_stats(name, value): the figures of the cache that a process's databases lie behind. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "refault_stats.h"

#include <string.h>

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
    cursor->row = 0;
    refault_vfs_figures(&stats);
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

int refault_stats_add(sqlite3 *db) { return sqlite3_create_module(db, "refault_stats", &stats_module, 0); }
