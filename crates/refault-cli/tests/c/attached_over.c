/* Under a budget of 3 MiB: attaches shared memory over memory that is out, and forks. Prints "done". */
#include "program.h"
#include <sys/ipc.h>
#include <sys/shm.h>

#define BYTES (64 * PAGE)

int main(void) {
    unsigned char *memory = map(BYTES), *more = map(6 * MIB);
    fill(memory, BYTES);
    fill(more, 6 * MIB);
    CHECK(!munmap(more, 6 * MIB));
    int segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    CHECK(segment >= 0);
    void *attached = shmat(segment, memory, SHM_REMAP);
    CHECK(!shmctl(segment, IPC_RMID, 0));
    CHECK(attached == memory);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        CHECK(zero(memory, BYTES));
        fill(memory, BYTES);
        _exit(0);
    }
    CHECK(ended_well(child));
    CHECK(whole(memory, BYTES));
    puts("done");
    return 0;
}
