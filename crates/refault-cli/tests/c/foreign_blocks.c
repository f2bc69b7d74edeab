/* Frees and grows blocks that libc's own allocator has made behind the names that are taken over. Prints "done". */
#include "program.h"
#include <malloc.h>

extern void *__libc_malloc(size_t bytes), *__libc_memalign(size_t alignment, size_t bytes);

int main(void) {
    for (size_t bytes = 8; bytes < 1000000; bytes *= 3) {
        unsigned char *first = __libc_malloc(bytes), *aligned = __libc_memalign(64, bytes);
        unsigned char *last = __libc_malloc(bytes);
        memset(first, 1, bytes);
        memset(aligned, 2, bytes);
        memset(last, 3, bytes);
        CHECK(malloc_usable_size(first) >= bytes);
        aligned = realloc(aligned, 2 * bytes);
        CHECK(aligned[bytes - 1] == 2);
        free(first);
        free(aligned);
        free(last);
    }
    unsigned char *block = memalign(3, 100);
    CHECK(block);
    free(block);
    puts("done");
    return 0;
}
