/* Writes eight pages six times through a cache with gathered writes, and makes each durable, whatever fails: it goes on,
 * and asks again once. It prints a line for each: `durable N`, or `failed N` and why. Run with the file's name. */
#include <refault.h>

#include <stdio.h>
#include <string.h>

enum { WRITES = 6, BYTES = 8 * 4096 };

int main(int arguments, char **argument) {
    refault_cache cache = 0;
    refault_file file = 0;
    static char buffer[BYTES];
    int durable;
    if (arguments != 2 || refault_cache_new(1 << 20, NULL, &cache) != REFAULT_OK) return 2;
    if (refault_file_open_with(cache, argument[1], REFAULT_OPEN_WRITE | REFAULT_OPEN_BUFFERED_WRITES, &file) != REFAULT_OK) {
        printf("failed open %s\n", refault_error_message());
        return 0;
    }
    for (int n = 0; n < WRITES; n++) {
        memset(buffer, n + 1, BYTES);
        if (refault_file_write(file, buffer, BYTES, (uint64_t)n * BYTES) != REFAULT_OK) {
            printf("refused %d %s\n", n, refault_error_message());
            continue;
        }
        for (int again = 0; again < 2; again++) {
            durable = refault_file_sync(file) == REFAULT_OK;
            printf("%s %d %s\n", durable ? "durable" : "failed", n, durable ? "" : refault_error_message());
            if (durable) break;
        }
    }
    /* It makes nothing durable. */
    return refault_file_close(file) == REFAULT_OK ? 0 : 1;
}
