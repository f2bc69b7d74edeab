/* Opens the file in argv[1] for reading, in each way that the library has, and reads its beginning. For each way it prints what
 * it read, and how many descriptors of the process may write to the file. With a third argument it then writes a byte by
 * refault_file_open's handle, and prints the error. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <refault.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int writers(const char *path) {
    struct stat wanted, status;
    struct dirent *entry;
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    if (!all || stat(path, &wanted)) exit(1);
    while ((entry = readdir(all))) {
        int number = atoi(entry->d_name);
        if (*entry->d_name == '.' || fstat(number, &status)) continue;
        if (status.st_ino == wanted.st_ino && status.st_dev == wanted.st_dev)
            count += (fcntl(number, F_GETFL) & O_ACCMODE) != O_RDONLY;
    }
    closedir(all);
    return count;
}

int main(int count, char **arguments) {
    const uint32_t ways[] = {0, REFAULT_OPEN_BUFFERED_WRITES, REFAULT_OPEN_WRITE_ON_DEMAND,
                             REFAULT_OPEN_WRITE_ON_DEMAND | REFAULT_OPEN_BUFFERED_WRITES};
    const size_t all = sizeof ways / sizeof *ways;
    refault_cache_options options = {.memory = 1 << 20};
    refault_cache cache;
    refault_file file;
    size_t moved;
    if (count < 2 || refault_cache_new_with(&options, &cache)) return 1;
    for (size_t way = 0; way <= all; way++) {
        char found[5] = "";
        refault_status status = way < all ? refault_file_open_with(cache, arguments[1], ways[way], &file)
                                          : refault_file_open(cache, arguments[1], &file);
        if (status || refault_file_read(file, found, 4, 0, &moved)) {
            fprintf(stderr, "%s\n", refault_error_message());
            return 1;
        }
        printf("%zu bytes, %d writers\n", moved, writers(arguments[1]));
        if (way < all) refault_file_close(file);
    }
    if (count > 2)
        printf("written: %s\n", refault_file_write(file, "x", 1, 0) ? strerror(refault_error_number()) : "yes");
    refault_file_close(file);
    refault_cache_free(cache);
    return 0;
}
