/* Goes PASSES times through MIB of memory that does not compress, makes the file READY, and ends when standard input
   does. Arguments: MIB PASSES READY. Prints nothing. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t words = (size_t)atoi(argv[1]) << 17;
    uint64_t *memory = mmap(0, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    uint64_t random = 88172645463325252;
    for (size_t at = 0; at < words; at++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        memory[at] = random;
    }
    for (int pass = 1; pass < atoi(argv[2]); pass++)
        for (size_t at = 0; at < words; at += 512) memory[at]++;
    close(open(argv[3], O_CREAT | O_WRONLY, 0600));
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
