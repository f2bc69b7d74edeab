#include <refault.h>
#include <stdio.h>

int main(void) {
    refault_cache_options options = {.memory = 64 << 20, .policy = "s3fifo"};
    refault_cache cache;
    refault_file file;
    char record[100];
    size_t bytes;
    if (refault_cache_new_with(&options, &cache) || refault_file_open(cache, "data", &file) ||
        refault_file_read(file, record, sizeof record, 123456, &bytes) ||
        refault_file_write(file, record, bytes, 0) || refault_file_sync(file)) {
        fprintf(stderr, "%s\n", refault_error_message());
        return 1;
    }
    printf("%zu bytes\n", bytes);
    refault_file_close(file);
    refault_cache_free(cache);
    return 0;
}
