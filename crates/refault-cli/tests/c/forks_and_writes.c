/* Writes MIB MiB, as four children do that it forks, each PAUSE milliseconds after the one before, from 3 seconds on;
 * then all sleep. A process ends with its parent. Each prints a dot when it has written. Arguments: MIB PAUSE. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 3) return 2;
    size_t bytes = strtoul(arguments[1], 0, 10) << 20;
    unsigned pauses = atoi(arguments[2]);
    pid_t parent = getpid();
    for (int child = 4; child >= 0; child--) {
        if (child && fork()) continue;
        if (child && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)) return 1;
        if (child) usleep(3000000 + (child - 1) * pauses * 1000);
        unsigned char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return 1;
        unsigned state = 1 + child;
        for (size_t at = 0; at < bytes; at++) memory[at] = (state = state * 1664525 + 1013904223) >> 29;
        if (write(1, ".", 1) != 1) return 1;
        for (;;) pause();
    }
}
