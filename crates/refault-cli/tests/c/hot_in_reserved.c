/* Reserves a GiB, touches HOT and COLD MiB of it once, and then the hot ones every millisecond for SECONDS.
 * Prints nothing. Arguments: HOT COLD SECONDS. */
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

int main(int count, char **arguments) {
    size_t hot = (size_t)atol(arguments[1]) << 20, cold = (size_t)atol(arguments[2]) << 20;
    size_t all = (size_t)1 << 30;
    volatile char *memory =
        mmap(0, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise((void *)memory, all, MADV_NOHUGEPAGE);
    for (size_t offset = 0; offset < hot + cold; offset += 4096) memory[offset] = 1;
    struct timespec pause = {0, 1000000};
    for (time_t end = time(0) + atol(arguments[3]); time(0) < end; nanosleep(&pause, 0))
        for (size_t offset = 0; offset < hot; offset += 4096) memory[offset]++;
    return 0;
}
