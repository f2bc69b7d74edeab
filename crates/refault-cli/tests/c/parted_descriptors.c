/* Under a budget of 3 MiB: memory of threads that have tables of descriptors of their own ("unshare", "close_range"), and
 * of a child that has its parent's ("child"). Nothing of it is lost, and no file of the program's is written to. Prints
 * "done". */
#include "program.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#define BYTES (10 * MIB)
#define OWN_FILES 900

static unsigned char *first, *second;
static volatile int step;
static int parts_by_range;

static void reaches(int wanted) {
    while (step != wanted) usleep(1000);
}

static void *has_its_own_table(void *nothing) {
    CHECK(!(parts_by_range ? close_range(1000000, ~0u, 2) : unshare(CLONE_FILES)));
    step = 1;
    reaches(2);
    /* Every number that the other thread's table may have for its file is a file of this thread's. */
    int file = open("own", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    for (int at = 0; at < OWN_FILES; at++) dup(file);
    CHECK(whole(first, BYTES));
    fill(second, BYTES);
    CHECK(whole(second, BYTES));
    struct stat status;
    CHECK(!fstat(file, &status) && status.st_size == 0);
    step = 3;
    reaches(4);
    CHECK(whole(first, BYTES));
    return nothing;
}

static void among_threads(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, 0, has_its_own_table, 0));
    reaches(1);
    first = map(BYTES);
    second = map(BYTES);
    fill(first, BYTES);
    CHECK(whole(first, BYTES));
    step = 2;
    reaches(3);
    CHECK(whole(second, BYTES) && whole(first, BYTES));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) _exit(!whole(first, BYTES) || !whole(second, BYTES));
    CHECK(ended_well(child));
    step = 4;
    CHECK(!pthread_join(thread, 0));
    CHECK(!unlink("own"));
}

static void in_a_child(void) {
    first = map(BYTES);
    fill(first, BYTES);
    for (int round = 0; round < 2; round++) {
        pid_t child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
        CHECK(child >= 0);
        if (!child) {
            memset(first, round, BYTES);
            fill(first, BYTES);
            pid_t grandchild = fork();
            if (!grandchild) {
                memset(first, round, BYTES);
                fill(first, BYTES);
                _exit(!whole(first, BYTES));
            }
            _exit(!whole(first, BYTES) || !ended_well(grandchild));
        }
        CHECK(ended_well(child));
        CHECK(whole(first, BYTES));
        child = fork();
        if (!child) _exit(!whole(first, BYTES));
        CHECK(ended_well(child));
    }
}

int main(int arguments, char **words) {
    CHECK(arguments == 2);
    parts_by_range = !strcmp(words[1], "close_range");
    if (!strcmp(words[1], "child")) in_a_child();
    else among_threads();
    puts("done");
    return 0;
}
