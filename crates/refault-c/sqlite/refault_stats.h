/* What the two parts of the extension know of each other. */
#ifndef REFAULT_STATS_H
#define REFAULT_STATS_H

#include <refault.h>
#include <sqlite3ext.h>

/* The cache's figures now; zeros where there is none yet. */
void refault_vfs_figures(refault_cache_stats *out);

/* Gives a connection the table. */
int refault_stats_add(sqlite3 *db);

#endif
