/* A signal handler on an alternate stack of 8 KiB touches 16 MiB that were evicted. Prints how many bytes below the
 * stack were overwritten, if any, and else "done". */
#include "program.h"

static unsigned char *memory;
static volatile int good;

static void look(int number) {
    good = whole(memory, 16 * MIB);
}

int main(void) {
    unsigned char *area = map(MIB);
    memset(area, 0x5a, MIB);
    stack_t stack = {.ss_sp = area + MIB / 2, .ss_size = 8192}, now;
    CHECK(!sigaltstack(&stack, 0));
    CHECK(!sigaltstack(0, &now) && now.ss_sp == stack.ss_sp && now.ss_size == 8192);
    struct sigaction action = {.sa_handler = look, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, 0);
    memory = map(16 * MIB);
    fill(memory, 16 * MIB);
    raise(SIGUSR1);
    CHECK(good);
    for (unsigned long offset = 0; offset < MIB / 2; offset++) {
        if (area[offset] != 0x5a) {
            printf("%ld bytes below the stack were overwritten\n", MIB / 2 - offset);
            return 1;
        }
    }
    puts("done");
    return 0;
}
