/* Ends threads by cancelling them and by pthread_exit, for which libc loads an unwinder. None is there before: the agent
 * needs none, and has brought none. Prints "done". */
#include "program.h"
#include <pthread.h>

static int cleaned;

static void clean(void *unused) { cleaned++; }

static void *waits(void *unused) {
    pthread_cleanup_push(clean, 0);
    for (;;)
        pause();
    pthread_cleanup_pop(0);
}

static void *leaves(void *result) {
    pthread_cleanup_push(clean, 0);
    pthread_exit(result);
    pthread_cleanup_pop(0);
}

static int has_unwinder(void) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "libgcc_s") != 0;
    fclose(maps);
    return found;
}

int main(void) {
    pthread_t thread;
    void *result;
    CHECK(!has_unwinder());
    for (int round = 1; round <= 3; round++) {
        CHECK(!pthread_create(&thread, 0, waits, 0));
        CHECK(!pthread_cancel(thread));
        CHECK(!pthread_join(thread, &result));
        CHECK(result == PTHREAD_CANCELED);
        cleaned = 0;
        CHECK(!pthread_create(&thread, 0, leaves, &thread));
        CHECK(!pthread_join(thread, &result));
        CHECK(result == &thread && cleaned == 1);
    }
    CHECK(has_unwinder());
    puts("done");
}
