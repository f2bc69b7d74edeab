/* Three processes that each touch 12 MiB at random, 200,000 times, and check what they find. Prints "done". */
#include "program.h"

#define PAGES (12 * MIB / PAGE)

static int touch_at_random(unsigned long state) {
    unsigned char *memory = map(PAGES * PAGE);
    CHECK(memory != MAP_FAILED);
    for (unsigned long page = 0; page < PAGES; page++) {
        unsigned long *words = (unsigned long *)(memory + page * PAGE);
        /* To a fifth or so they compress. */
        for (int word = 0; word < 512; word++) words[word] = word % 16 ? page : page * state + word;
    }
    for (int touch = 0; touch < 200000; touch++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        unsigned long page = (state >> 33) % PAGES;
        if (((unsigned long *)(memory + page * PAGE))[17] != page) return 0;
    }
    return 1;
}

int main(void) {
    pid_t children[3];
    for (int child = 0; child < 3; child++) {
        children[child] = fork();
        CHECK(children[child] >= 0);
        if (children[child] == 0) _exit(!touch_at_random(child + 1));
    }
    for (int child = 0; child < 3; child++) CHECK(ended_well(children[child]));
    puts("done");
    return 0;
}
