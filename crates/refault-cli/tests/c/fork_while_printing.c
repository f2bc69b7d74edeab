/* Forks children that print to a stream and close it, while two threads print to the same stream and hold its lock
 * most of the time. Prints "done". */
#include "program.h"

static volatile int over;
static FILE *stream;

static void *prints_on(void *argument) {
    for (long line = 0; !over; line++) fprintf(stream, "%ld %s\n", line, "some words for this line");
    return 0;
}

int main(void) {
    unsigned char *memory = map(8 * MIB);
    fill(memory, 8 * MIB);
    stream = fopen("/dev/null", "w");
    CHECK(stream);
    setvbuf(stream, malloc(1 << 16), _IOFBF, 1 << 16);
    pthread_t threads[2];
    for (int at = 0; at < 2; at++) CHECK(!pthread_create(threads + at, 0, prints_on, 0));
    for (int round = 0; round < 100; round++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            fprintf(stream, "child\n");
            fflush(0);
            fclose(stream);
            _exit(0);
        }
        CHECK(ended_well(pid));
        usleep(500);
    }
    over = 1;
    for (int at = 0; at < 2; at++) CHECK(!pthread_join(threads[at], 0));
    CHECK(whole(memory, 8 * MIB));
    puts("done");
    return 0;
}
