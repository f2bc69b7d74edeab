/* Two scans of a database through refault's VFS, all connections closed between them: the first by this process, the
 * second by its child after fork. Run with the extension and the database. Prints what each scan has found. A child
 * that has not ended after 20 seconds is killed by SIGALRM, and then the program fails. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int result, sqlite3 *db, const char *what) {
    if (result == SQLITE_OK) return;
    fprintf(stderr, "%s: %d: %s\n", what, result, db ? sqlite3_errmsg(db) : "");
    exit(1);
}

static int print(void *context, int columns, char **values, char **names) {
    (void)columns, (void)names;
    printf("%s: %s\n", (const char *)context, values[0]);
    return 0;
}

static void scan(const char *uri, const char *who) {
    sqlite3 *db = 0;
    check(sqlite3_open_v2(uri, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI, 0), db, "open");
    check(sqlite3_exec(db, "SELECT count(*) || ' ' || sum(length(x)) FROM t", print, (void *)who, 0), db, "scan");
    check(sqlite3_close(db), 0, "close");
    fflush(stdout);
}

int main(int count, char **arguments) {
    char uri[4096];
    sqlite3 *db = 0;
    if (count != 3) return 2;
    check(sqlite3_open(":memory:", &db), db, "open");
    check(sqlite3_enable_load_extension(db, 1), db, "enable");
    check(sqlite3_load_extension(db, arguments[1], "sqlite3_refaultvfs_init", 0), db, "load");
    check(sqlite3_close(db), 0, "close");
    snprintf(uri, sizeof uri, "file:%s?vfs=refault", arguments[2]);
    scan(uri, "parent");
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        scan(uri, "child");
        _exit(0);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child ended with status %d\n", status);
        return 1;
    }
    return 0;
}
