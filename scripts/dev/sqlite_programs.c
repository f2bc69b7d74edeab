/* Makes refault's VFS the default one of a program of SQLite's, if the variable REFAULT_PROGRAMS is set: for
 * scripts/dev/sqlite_programs.py, which compiles it into each. */
#include <sqlite3.h>
#include <stdlib.h>

int sqlite3_refaultvfs_init(sqlite3 *db, char **error, const void *api);

/* The table of figures is for shells. */
int refault_stats_add(sqlite3 *db) { return db ? SQLITE_OK : SQLITE_OK; }

int refault_programs_init(const char *unused) {
    char *error = 0;
    (void)unused;
    if (!getenv("REFAULT_PROGRAMS")) return SQLITE_OK;
    int result = sqlite3_refaultvfs_init(0, &error, 0);
    sqlite3_reset_auto_extension();
    sqlite3_vfs *ours = sqlite3_vfs_find("refault");
    return result == SQLITE_OK_LOAD_PERMANENTLY && ours ? sqlite3_vfs_register(ours, 1) : SQLITE_ERROR;
}
