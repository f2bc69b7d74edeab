/* A timer's handler touches evicted memory and forks now and then, whatever call it interrupts in three seconds of
 * mapping, moving, allocating and locking. Prints "done". */
#include "program.h"

static unsigned char *memory;
static unsigned long bytes = 12 * MIB, ticks;

static void tick(int number) {
    int before = errno;
    ticks++;
    unsigned char *address = memory + ticks * 7919 * PAGE % bytes;
    *(volatile unsigned char *)address = *address;
    if (ticks % 400 == 0) {
        pid_t pid = fork();
        if (pid == 0) _exit(*address == 255);
        waitpid(pid, 0, 0);
    }
    errno = before;
}

static void make_calls(void) {
    unsigned char *other = map(MIB);
    for (int page = 0; page < 256; page++) other[page * PAGE] = page;
    madvise(other, MIB / 2, MADV_DONTNEED);
    other = mremap(other, MIB, 2 * MIB, MREMAP_MAYMOVE);
    munmap(other, 2 * MIB);
    void *block = malloc(300000);
    memset(block, 1, 300000);
    block = realloc(block, 900000);
    free(block);
    madvise(memory + MIB, MIB, MADV_PAGEOUT);
    mlock(memory, 16384);
    munlock(memory, 16384);
}

int main(void) {
    memory = map(bytes);
    fill(memory, bytes);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    interrupt_every(300);
    for (time_t start = time(0); time(0) - start < 3;) make_calls();
    interrupt_every(0);
    CHECK(whole(memory, bytes));
    CHECK(ticks > 400);
    puts("done");
    return 0;
}
