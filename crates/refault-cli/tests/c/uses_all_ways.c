// Uses memory in each way that the agent makes calls of its own for: fills, reads back, reads into it, discards, moves,
// protects, forks, executes, has threads and maps much. Prints "done", or what is false, and ends with 1.
#include "program.h"

#define BYTES (4 * MIB)

static void *in_a_thread(void *given) {
    unsigned char *memory = given;
    for (int pass = 0; pass < 3; pass++)
        if (!whole(memory, BYTES)) return 0;
    return memory;
}

int main(void) {
    unsigned char *memory = map(BYTES), *other = map(BYTES);
    CHECK(memory != MAP_FAILED && other != MAP_FAILED);
    fill(memory, BYTES);
    fill(other, BYTES);
    CHECK(whole(memory, BYTES));
    // A call that reads and writes what is out.
    int file = memfd_create("file", 0);
    CHECK(file >= 0);
    CHECK(write(file, memory, BYTES) == (long)BYTES);
    memset(other, 7, BYTES);
    CHECK(pread(file, other, BYTES, 0) == (long)BYTES);
    CHECK(whole(other, BYTES));
    close(file);
    // Mappings change.
    CHECK(!madvise(other, MIB, MADV_DONTNEED));
    CHECK(zero(other, MIB));
    fill(other, BYTES);
    CHECK(!mprotect(other, BYTES, PROT_READ));
    CHECK(whole(other, BYTES));
    CHECK(!mprotect(other, BYTES, PROT_READ | PROT_WRITE));
    unsigned char *moved = mremap(other, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    CHECK(whole(moved, BYTES) && zero(moved + BYTES, MIB));
    CHECK(!munmap(moved + BYTES, BYTES));
    // Memory that becomes executable is the kernel's from then on.
    CHECK(!mprotect(moved, MIB / 2, PROT_READ | PROT_EXEC));
    CHECK(whole(moved, BYTES));
    // Another thread, a child, and a program.
    pthread_t thread;
    void *right = 0;
    CHECK(!pthread_create(&thread, 0, in_a_thread, memory));
    for (int pass = 0; pass < 3; pass++) CHECK(whole(moved, BYTES));
    CHECK(!pthread_join(thread, &right));
    CHECK(right);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        if (!whole(memory, BYTES)) _exit(9);
        memset(memory, 1, BYTES);
        for (unsigned long at = 0; at < BYTES; at++)
            if (memory[at] != 1) _exit(9);
        _exit(whole(moved, BYTES) ? 0 : 9);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    // What a fault has ended has said why. Contents that are wrong end with 9.
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 9);
    if (status) {
        printf("the child ended with %x\n", status);
        return 3;
    }
    CHECK(whole(memory, BYTES));
    CHECK(whole(moved, BYTES));
    status = system("exit 0");
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 9);
    if (status) {
        printf("the program ended with %x\n", status);
        return 3;
    }
    puts("done");
    return 0;
}
