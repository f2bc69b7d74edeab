/* An extension for SQLite that makes its VFS `unix-dotfile`, which has no shared memory, the default one. It prints
 * nothing. */
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1

int sqlite3_dotfile_init(sqlite3 *db, char **error, const sqlite3_api_routines *api) {
    (void)db, (void)error;
    SQLITE_EXTENSION_INIT2(api);
    sqlite3_vfs *dotfile = sqlite3_vfs_find("unix-dotfile");
    int result = dotfile ? sqlite3_vfs_register(dotfile, 1) : SQLITE_ERROR;
    return result == SQLITE_OK ? SQLITE_OK_LOAD_PERMANENTLY : result;
}
