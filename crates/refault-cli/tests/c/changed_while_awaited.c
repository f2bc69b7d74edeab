/* Under a budget of 3 MiB: a thread waits in read() for data of a pipe, while another changes the memory that it reads
 * into: discards, replaces, moves it away and back. The data arrive in what is there then. Prints "done". */
#include "program.h"

#define PAGES 4ul
#define BYTES (PAGES * PAGE)

static unsigned char *memory;

struct wait {
    int ends[2];
    unsigned long bytes;
    pthread_t thread;
};

static void push_out(void) {
    unsigned char *more = map(6 * MIB);
    fill(more, 6 * MIB);
    CHECK(!munmap(more, 6 * MIB));
}

static void *reads(void *argument) {
    struct wait *wait = argument;
    long got = read(wait->ends[0], memory, wait->bytes);
    CHECK(got == (long)wait->bytes);
    return 0;
}

/* Returns when the thread waits in its call. */
static void begins(struct wait *wait, unsigned long bytes) {
    CHECK(!pipe(wait->ends));
    wait->bytes = bytes;
    CHECK(!pthread_create(&wait->thread, 0, reads, wait));
    usleep(100000);
}

static void arrives(struct wait *wait, unsigned char *data) {
    CHECK(write(wait->ends[1], data, wait->bytes) == (long)wait->bytes);
    CHECK(!pthread_join(wait->thread, 0));
    CHECK(!close(wait->ends[0]) && !close(wait->ends[1]));
}

static void discards(void) { CHECK(!madvise(memory, BYTES, MADV_DONTNEED)); }

static void frees(void) { CHECK(!madvise(memory, BYTES, MADV_FREE)); }

static void replaces(void) {
    void *at = mmap(memory, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(at == memory);
}

static void unmaps_and_maps(void) {
    CHECK(!munmap(memory, BYTES));
    replaces();
}

static void takes_rights_away_and_back(void) {
    CHECK(!mprotect(memory, BYTES, PROT_NONE));
    push_out();
    CHECK(!mprotect(memory, BYTES, PROT_READ | PROT_WRITE));
}

static void discards_without_rights(void) {
    CHECK(!mprotect(memory, BYTES, PROT_NONE));
    CHECK(!madvise(memory, BYTES, MADV_DONTNEED));
    CHECK(!mprotect(memory, BYTES, PROT_READ | PROT_WRITE));
}

static void moves_away_and_back(void) {
    unsigned char *place = map(BYTES);
    CHECK(mremap(memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    push_out();
    CHECK(mremap(place, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == memory);
}

/* What has moved there was out of memory. */
static void moves_other_memory_there(void) {
    unsigned char *other = map(BYTES);
    fill(other, BYTES);
    push_out();
    CHECK(mremap(other, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == memory);
}

static volatile int stops;

static void *purges(void *nothing) {
    while (!stops) CHECK(!madvise(memory, BYTES, MADV_DONTNEED));
    return nothing;
}

/* As an allocator that gives memory back does, while another thread's calls are about that memory. */
static void discards_all_the_time(void) {
    pthread_t thread;
    int file = open("/dev/zero", O_RDWR);
    memory = map(BYTES);
    CHECK(file >= 0 && !pthread_create(&thread, 0, purges, 0));
    for (int turn = 0; turn < 3000; turn++) {
        CHECK(read(file, memory, BYTES) == (long)BYTES);
        CHECK(write(file, memory, BYTES) == (long)BYTES);
    }
    stops = 1;
    CHECK(!pthread_join(thread, 0) && !close(file));
}

int main(void) {
    static void (*const changes[])(void) = {discards, frees, replaces, unmaps_and_maps, takes_rights_away_and_back,
        discards_without_rights, moves_away_and_back, moves_other_memory_there};
    static unsigned char data[BYTES];
    fill(data, BYTES);
    for (unsigned index = 0; index < sizeof changes / sizeof *changes; index++) {
        struct wait wait;
        memory = map(BYTES);
        memset(memory, 1, BYTES);
        begins(&wait, BYTES);
        changes[index]();
        push_out();
        arrives(&wait, data);
        CHECK(whole(memory, BYTES));
    }
    /* The first that waits ends while another waits for the same place. */
    struct wait first, second;
    memory = map(PAGE);
    memory[0] = 1;
    begins(&first, 8);
    CHECK(!madvise(memory, PAGE, MADV_DONTNEED));
    begins(&second, 8);
    arrives(&first, data);
    push_out();
    arrives(&second, data);
    CHECK(whole(memory, 8));
    discards_all_the_time();
    puts("done");
    return 0;
}
