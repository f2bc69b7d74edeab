// Fills 40 MiB that do not compress, with a handler of SIGTERM that would end it with 3, and then waits.
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static void handler(int number) {
    (void)number;
    _exit(3);
}

int main(void) {
    uint64_t words = 5 << 20, state = 88172645463325252u, *memory = malloc(words * 8);
    signal(SIGTERM, handler);
    for (uint64_t word = 0; word < words; word++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memory[word] = state;
    }
    for (;;) pause();
}
