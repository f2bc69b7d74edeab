/* Under a budget of 3 MiB: replaces a page that another thread reads by mremap, again and again, each time by one that
 * is out of memory. Prints "done". */
#include "program.h"
#include <pthread.h>

#define MOVES 400ul

static volatile unsigned long *place;
static volatile int stops;

static void *reads(void *nothing) {
    while (!stops) CHECK(place[5] != 0);
    return nothing;
}

int main(void) {
    pthread_t thread;
    unsigned long words = PAGE / 8;
    place = (unsigned long *)map(PAGE);
    place[5] = 1;
    unsigned long *from = (unsigned long *)map(MOVES * PAGE);
    for (unsigned long word = 0; word < MOVES * words; word++) from[word] = word * 7 + 1;
    unsigned char *more = map(6 * MIB);
    fill(more, 6 * MIB);
    CHECK(!munmap(more, 6 * MIB));
    CHECK(!pthread_create(&thread, 0, reads, 0));
    for (unsigned long move = 0; move < MOVES; move++) {
        unsigned long *page = from + move * words;
        CHECK(mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)place) == (void *)place);
        for (unsigned long word = 0; word < words; word++) CHECK(place[word] == (move * words + word) * 7 + 1);
    }
    stops = 1;
    CHECK(!pthread_join(thread, 0));
    puts("done");
    return 0;
}
