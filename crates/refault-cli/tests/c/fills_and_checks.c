// Fills this many MiB a page at a time, of which this many eighths of each page do not compress, and reads them back in
// an order by chance this often. Prints "right", or the number of the first page that is wrong. Arguments: MiB, eighths,
// times. A fourth, until its input ends: "waits" prints "filled" when all is filled and waits, "reads" reads, and then as
// often as the third says.
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fill(uint64_t *page, uint64_t number, int eighths) {
    uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
    for (int word = 0; word < 512; word++) page[word] = word < eighths * 64 ? next(&state) : number;
}

int main(int count, char **words) {
    uint64_t pages = strtoull(words[1], 0, 10) << 8, state = 88172645463325252u, times = strtoull(words[3], 0, 10);
    int eighths = atoi(words[2]);
    char *memory = mmap(0, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t wanted[512];
    for (uint64_t page = 0; page < pages; page++) fill((uint64_t *)(memory + (page << 12)), page, eighths);
    char byte;
    int reads = count > 4 && !strcmp(words[4], "reads");
    if (count > 4 && !reads) {
        if (write(1, "filled\n", 7) != 7) return 1;
        while (read(0, &byte, 1) > 0) {}
    }
    struct pollfd input = {.events = POLLIN};
    for (uint64_t look = 0; look < times * pages; look++) {
        if (reads && poll(&input, 1, 0) > 0) reads = read(0, &byte, 1) > 0;
        if (reads) look = 0;
        uint64_t page = next(&state) % pages;
        fill(wanted, page, eighths);
        if (memcmp(wanted, memory + (page << 12), 4096)) {
            printf("wrong %llu\n", (unsigned long long)page);
            return 1;
        }
    }
    puts("right");
    return 0;
}
