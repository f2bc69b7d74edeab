/* Writes to 24 MiB, sleeps for a quarter of a second and prints "done". With TIMES it has "true" executed TIMES times
 * beside that, by children that share its memory until then; with MICROSECONDS each waits that time first.
 * Arguments: [TIMES [MICROSECONDS]]. */
#include "program.h"
#include <spawn.h>

extern char **environ;

int main(int count, char **arguments) {
    unsigned char *memory = map(24 * MIB);
    fill(memory, 24 * MIB);
    for (int left = count > 1 ? atoi(arguments[1]) : 0; left > 0; left--) {
        pid_t child;
        char *words[] = {"true", 0};
        if (count > 2) {
            child = vfork();
            if (!child) {
                usleep(atoi(arguments[2]));
                execvp("true", words);
                _exit(1);
            }
        } else
            CHECK(!posix_spawnp(&child, "true", 0, 0, words, environ));
        CHECK(waitpid(child, 0, 0) == child);
    }
    usleep(250000);
    puts("done");
    return 0;
}
