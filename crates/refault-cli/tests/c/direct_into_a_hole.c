/* Reads a file past the page cache into memory whose end is not mapped, more than fits into a piece: refused as a whole,
 * and the file is where it was. Prints "done". */
#include "program.h"
#include <fcntl.h>

#define BYTES (64 * PAGE)

int main(void) {
    unsigned char *memory = map(2 * BYTES);
    fill(memory, BYTES);
    int file = open("direct", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    if (file < 0 && errno == EINVAL) {
        puts("done");
        return 0;
    }
    CHECK(file >= 0 && write(file, memory, BYTES) == BYTES && !lseek(file, 0, SEEK_SET));
    CHECK(!munmap(memory + BYTES - 8 * PAGE, 8 * PAGE));
    CHECK(read(file, memory, BYTES) < 0 && errno == EFAULT);
    CHECK(lseek(file, 0, SEEK_CUR) == 0);
    CHECK(pread(file, memory, BYTES, 0) < 0 && errno == EFAULT);
    CHECK(whole(memory, BYTES - 8 * PAGE));
    CHECK(read(file, memory, BYTES - 8 * PAGE) == BYTES - 8 * PAGE && lseek(file, 0, SEEK_CUR) == BYTES - 8 * PAGE);
    CHECK(write(file, memory, BYTES) < 0 && errno == EFAULT);
    CHECK(lseek(file, 0, SEEK_CUR) == BYTES - 8 * PAGE);
    CHECK(!unlink("direct"));
    puts("done");
    return 0;
}
