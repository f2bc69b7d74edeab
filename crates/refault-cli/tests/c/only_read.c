/* Memory that was only read is joined with what is mapped beside it, wherever it has moved: it moves on with that in one
 * call. What was written to is not. And what was only read is zeros, however much of it there is, in children too.
 * Prints "done". */
#include "program.h"

#define PAGES 40ul
static int ends[2];

static unsigned char *map_at(unsigned char *place, unsigned long pages) {
    return mmap(place, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Whether memory that was used is one mapping with what is mapped beside it after a move. */
static int is_joined_after(void (*use)(unsigned char *)) {
    unsigned char *window = mmap(0, 400 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *memory = map_at(window + 10 * PAGE, PAGES), *place = window + 100 * PAGE;
    use(memory);
    CHECK(mremap(memory, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    map_at(place + PAGES * PAGE, 10);
    unsigned char *grown = mremap(place, (PAGES + 10) * PAGE, (PAGES + 60) * PAGE, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED || errno == EFAULT);
    CHECK(!munmap(window, 400 * PAGE));
    return grown != MAP_FAILED;
}

static void leave(unsigned char *memory) {}
static void read_all(unsigned char *memory) { CHECK(zero(memory, PAGES * PAGE)); }
static void read_one(unsigned char *memory) { CHECK(zero(memory + 7 * PAGE, PAGE)); }
static void give_to_a_call(unsigned char *memory) { CHECK(write(ends[1], memory + 100, 9000) == 9000); }
static void let_a_call_fill(unsigned char *memory) {
    CHECK(read(ends[0], memory + 100, 9000) == 9000);
}
static void offer_to_a_call(unsigned char *memory) { CHECK(read(ends[0], memory + 100, 9000) < 0 && errno == EAGAIN); }
static void write_one(unsigned char *memory) { memory[5 * PAGE] = 1; }
static void write_where_it_was_read(unsigned char *memory) {
    read_all(memory);
    memory[5 * PAGE] = 1;
}
static void fork_it(unsigned char *memory) {
    read_all(memory);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        read_all(memory);
        fill(memory, PAGES * PAGE);
        _exit(!whole(memory, PAGES * PAGE));
    }
    CHECK(ended_well(child));
    read_all(memory);
}
/* All that was read leaves memory and comes back. */
static void push_it_out(unsigned char *memory) {
    read_all(memory);
    unsigned char *more = map(6 * MIB);
    fill(more, 6 * MIB);
    CHECK(whole(more, 6 * MIB));
    CHECK(!munmap(more, 6 * MIB));
    read_all(memory);
}

int main(void) {
    CHECK(!pipe2(ends, O_NONBLOCK));
    CHECK(is_joined_after(leave));
    CHECK(is_joined_after(read_all));
    CHECK(is_joined_after(read_one));
    CHECK(is_joined_after(give_to_a_call));
    CHECK(!is_joined_after(let_a_call_fill));
    CHECK(is_joined_after(offer_to_a_call));
    CHECK(is_joined_after(fork_it));
    CHECK(is_joined_after(push_it_out));
    CHECK(!is_joined_after(write_one));
    CHECK(!is_joined_after(write_where_it_was_read));

    /* Read first and written to then, more than fits: nothing of it is lost. */
    unsigned char *memory = map(8 * MIB);
    CHECK(zero(memory, 8 * MIB));
    fill(memory, 8 * MIB);
    pid_t child = fork();
    CHECK(child >= 0);
    CHECK(whole(memory, 8 * MIB));
    if (!child) _exit(0);
    CHECK(ended_well(child));
    puts("done");
    return 0;
}
