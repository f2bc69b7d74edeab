/* Every function once, and what must be refused. Valid as C11 and as C++17. Run with a directory on a file system that
 * does direct I/O; with a second argument, regions are left out (valgrind knows no userfaultfd). */
#include <refault.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, refault_error_message()); \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

static char path[4096];

static void files(void) {
    refault_cache cache = 0, other = 0;
    refault_file file = 0;
    refault_cache_stats stats;
    char buffer[8192];
    size_t read = 1;
    uint64_t size = 0;

    CHECK(refault_cache_new(1, NULL, &cache) == REFAULT_BAD_ARGUMENT && cache == 0);
    CHECK(strstr(refault_error_message(), "too little") != NULL);
    CHECK(refault_cache_new(1 << 20, "no-such-policy", &cache) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_cache_new(1 << 20, NULL, NULL) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_cache_new(1 << 20, "s3fifo", &cache) == REFAULT_OK && cache != 0);
    CHECK(refault_file_open(cache, "/no/such/file", &file) == REFAULT_SYSTEM && refault_error_number() == ENOENT);
    CHECK(refault_file_open(cache, NULL, &file) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_open(12345, path, &file) == REFAULT_BAD_HANDLE);
    CHECK(refault_file_open_with(12345, path, 0, &file) == REFAULT_BAD_HANDLE);
    CHECK(refault_file_open_with(cache, path, 64, &file) == REFAULT_BAD_ARGUMENT && file == 0);
    CHECK(refault_file_open_with(cache, path, 0, &file) == REFAULT_OK);
    CHECK(refault_file_write(file, "x", 1, 0) == REFAULT_SYSTEM && refault_error_number() == EBADF);
    CHECK(strstr(refault_error_message(), "opened for reading only") != NULL);
    CHECK(refault_file_truncate(file, 1) == REFAULT_SYSTEM && refault_error_number() == EBADF);
    CHECK(refault_file_sync(file) == REFAULT_OK && refault_file_close(file) == REFAULT_OK);
    const uint32_t gathered = REFAULT_OPEN_WRITE | REFAULT_OPEN_BUFFERED_WRITES;
    CHECK(refault_file_open_with(cache, path, gathered, &file) == REFAULT_OK);
    CHECK(refault_file_read(file, buffer, 7, 999990, &read) == REFAULT_OK && read == 7);
    CHECK(refault_file_write(file, "through", 7, 999990) == REFAULT_OK);
    FILE *kernels = fopen(path, "r"); /* which has it at once */
    char through[8] = "";
    CHECK(kernels && fseek(kernels, 999990, SEEK_SET) == 0 && fread(through, 1, 7, kernels) == 7);
    CHECK(strcmp(through, "through") == 0);
    CHECK(fclose(kernels) == 0);
    CHECK(refault_file_write(file, buffer, 7, 999990) == REFAULT_OK);
    CHECK(refault_file_sync(file) == REFAULT_OK && refault_file_close(file) == REFAULT_OK);
    CHECK(refault_file_open(cache, path, &file) == REFAULT_OK);

    CHECK(refault_file_size(file, &size) == REFAULT_OK && size == 1000000);
    CHECK(refault_file_read(file, buffer, 8192, 4000, &read) == REFAULT_OK && read == 8192);
    for (size_t at = 0; at < read; at++) CHECK(buffer[at] == (char)((4000 + at) % 251));
    CHECK(refault_file_read(file, buffer, 8192, 999990, &read) == REFAULT_OK && read == 10);
    CHECK(refault_file_read(file, buffer, 8192, 5000000, &read) == REFAULT_OK && read == 0);
    CHECK(refault_file_read(file, buffer, SIZE_MAX, 0, &read) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_read(file, buffer, 10, UINT64_MAX - 5, &read) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_read(file, NULL, 10, 0, &read) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_read(file, buffer, 10, 0, NULL) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_read(file, NULL, 0, 0, &read) == REFAULT_OK && read == 0);
    CHECK(refault_file_read(cache, buffer, 10, 0, &read) == REFAULT_BAD_HANDLE); /* of another type */

    CHECK(refault_file_write(file, "refault", 7, 1000000) == REFAULT_OK);
    CHECK(refault_file_sync(file) == REFAULT_OK);
    CHECK(refault_file_size(file, &size) == REFAULT_OK && size == 1000007);
    CHECK(refault_file_read(file, buffer, 100, 1000000, &read) == REFAULT_OK && read == 7);
    CHECK(memcmp(buffer, "refault", 7) == 0);
    CHECK(refault_file_truncate(file, 1000000) == REFAULT_OK);
    CHECK(refault_file_truncate(file, 1000010) == REFAULT_OK);
    CHECK(refault_file_read(file, buffer, 100, 1000000, &read) == REFAULT_OK && read == 10);
    for (size_t at = 0; at < read; at++) CHECK(buffer[at] == 0); /* what was cut off does not come back */
    CHECK(refault_file_truncate(file, 1000000) == REFAULT_OK);

    struct timespec from, now; /* the clock of files steps by milliseconds */
    CHECK(timespec_get(&from, TIME_UTC) == TIME_UTC);
    do CHECK(timespec_get(&now, TIME_UTC) == TIME_UTC);
    while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 30000000L);
    FILE *other_way = fopen(path, "r+b"); /* another writer */
    CHECK(other_way && fputs("changed", other_way) >= 0 && fclose(other_way) == 0);
    uint32_t was_changed = 0;
    CHECK(refault_file_reload_if_changed(file, NULL) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_reload_if_changed(file, &was_changed) == REFAULT_OK && was_changed == 1);
    CHECK(refault_file_read(file, buffer, 7, 0, &read) == REFAULT_OK && read == 7 && memcmp(buffer, "changed", 7) == 0);
    CHECK(refault_file_reload_if_changed(file, &was_changed) == REFAULT_OK && was_changed == 0);
    for (size_t at = 0; at < 7; at++) buffer[at] = (char)at;
    CHECK(refault_file_write(file, buffer, 7, 0) == REFAULT_OK);

    refault_pin pin = 1;
    const void *data = NULL;
    size_t bytes = 0;
    CHECK(refault_file_pin(file, 8000, &data, &bytes, &pin) == REFAULT_OK && bytes == 192);
    for (size_t at = 0; at < bytes; at++) CHECK(((const char *)data)[at] == (char)((8000 + at) % 251));
    CHECK(refault_file_write(file, "changed", 7, 8000) == REFAULT_OK);
    CHECK(((const char *)data)[0] == (char)(8000 % 251)); /* as it was */
    CHECK(refault_pin_free(pin) == REFAULT_OK && refault_pin_free(pin) == REFAULT_BAD_HANDLE);
    CHECK(refault_file_pin(file, 5000000, &data, &bytes, &pin) == REFAULT_OK && bytes == 0);
    CHECK(refault_pin_free(pin) == REFAULT_OK);
    CHECK(refault_file_pin(file, 0, NULL, &bytes, &pin) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_pin(file, UINT64_MAX, &data, &bytes, &pin) == REFAULT_OK && bytes == 0);
    CHECK(refault_pin_free(pin) == REFAULT_OK);
    CHECK(refault_file_truncate(file, UINT64_MAX) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_truncate(file, (uint64_t)INT64_MAX + 1) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_file_write(file, "x", 1, (uint64_t)1 << 62) == REFAULT_BAD_ARGUMENT);
    for (size_t at = 0; at < 7; at++) buffer[at] = (char)((8000 + at) % 251);
    CHECK(refault_file_write(file, buffer, 7, 8000) == REFAULT_OK);
    CHECK(refault_file_prefetch(file, 100000, 200000) == REFAULT_OK);
    CHECK(refault_file_sync_range(file, 0, 10000) == REFAULT_OK);

    CHECK(refault_cache_stats_now(cache, &stats) == REFAULT_OK);
    CHECK(stats.hits > 0 && stats.misses > 0 && stats.resident_bytes <= stats.memory_bytes);
    CHECK(refault_cache_new(1 << 20, NULL, &other) == REFAULT_OK && other != cache);
    CHECK(refault_cache_free(other) == REFAULT_OK);
    CHECK(refault_cache_free(other) == REFAULT_BAD_HANDLE);

    refault_cache_options options;
    refault_file later = 0;
    memset(&options, 0, sizeof options);
    CHECK(refault_cache_new_with(NULL, &other) == REFAULT_BAD_ARGUMENT);
    options.ratio = 0.9;
    options.write_back = 1;
    CHECK(refault_cache_new_with(&options, &other) == REFAULT_BAD_ARGUMENT && strstr(refault_error_message(), "0.5"));
    options.ratio = 0.25;
    options.policy = "lru";
    options.compressed = 0.9;
    CHECK(refault_cache_new_with(&options, &other) == REFAULT_BAD_ARGUMENT && strstr(refault_error_message(), "0.75"));
    options.compressed = 0.25;
    options.statistics = "/no/such/directory/cache.jsonl";
    CHECK(refault_cache_new_with(&options, &other) == REFAULT_SYSTEM && refault_error_number() == ENOENT);
    char statistics[4200];
    snprintf(statistics, sizeof statistics, "%s.jsonl", path);
    options.statistics = statistics;
    CHECK(refault_cache_new_with(&options, &other) == REFAULT_OK);
    CHECK(refault_file_open(other, path, &later) == REFAULT_OK);
    CHECK(refault_file_write(later, "later", 5, 500) == REFAULT_OK);
    CHECK(refault_file_read(later, buffer, 5, 500, &read) == REFAULT_OK && memcmp(buffer, "later", 5) == 0);
    CHECK(refault_file_reload(file) == REFAULT_OK);
    CHECK(refault_file_read(file, buffer, 5, 500, &read) == REFAULT_OK && memcmp(buffer, "later", 5) != 0);
    CHECK(refault_file_sync(later) == REFAULT_OK);
    CHECK(refault_file_reload(file) == REFAULT_OK);
    CHECK(refault_file_read(file, buffer, 5, 500, &read) == REFAULT_OK && memcmp(buffer, "later", 5) == 0);
    for (size_t at = 0; at < 5; at++) buffer[at] = (char)((500 + at) % 251);
    CHECK(refault_file_write(later, buffer, 5, 500) == REFAULT_OK);
    CHECK(refault_file_close(later) == REFAULT_OK);
    CHECK(refault_cache_free(other) == REFAULT_OK);
    FILE *lines = fopen(statistics, "r"); /* the last line comes with the end of the cache and its files */
    static char line[1 << 16];
    CHECK(lines && fgets(line, sizeof line, lines) != NULL && strstr(line, "\"policy\":\"lru\"") && fclose(lines) == 0);
    CHECK(strstr(line, "\"would_miss\":[]") != NULL); /* which nothing has asked for */
    CHECK(refault_file_reload(file) == REFAULT_OK);
    CHECK(refault_cache_free(cache) == REFAULT_OK);
    CHECK(refault_file_read(file, buffer, 10, 0, &read) == REFAULT_OK && read == 10); /* files outlive their cache */
    CHECK(refault_file_close(file) == REFAULT_OK);
    CHECK(refault_file_close(file) == REFAULT_BAD_HANDLE);
    CHECK(refault_file_read(file, buffer, 10, 0, &read) == REFAULT_BAD_HANDLE);
    CHECK(refault_file_sync(file) == REFAULT_BAD_HANDLE);
}

static refault_file shared;

static void *reader(void *seed) {
    unsigned state = (unsigned)(size_t)seed;
    for (int turn = 0; turn < 2000; turn++) {
        char byte = 0;
        size_t read = 0;
        state = state * 1664525u + 1013904223u;
        uint64_t at = state % 1000000u;
        refault_status status = refault_file_read(shared, &byte, 1, at, &read);
        if (status == REFAULT_BAD_HANDLE) return NULL; /* closed meanwhile */
        CHECK(status == REFAULT_OK && read == 1 && byte == (char)(at % 251));
    }
    return NULL;
}

static void threads(void) {
    refault_cache cache;
    pthread_t thread[4];
    CHECK(refault_cache_new(256 << 10, "mglru", &cache) == REFAULT_OK);
    CHECK(refault_file_open(cache, path, &shared) == REFAULT_OK);
    for (size_t at = 0; at < 4; at++) CHECK(pthread_create(&thread[at], NULL, reader, (void *)(at + 1)) == 0);
    CHECK(pthread_join(thread[0], NULL) == 0);
    CHECK(refault_file_close(shared) == REFAULT_OK); /* amid the others' reads */
    CHECK(refault_cache_free(cache) == REFAULT_OK);
    for (size_t at = 1; at < 4; at++) CHECK(pthread_join(thread[at], NULL) == 0);
}

static void regions(void) {
    refault_budget budget;
    refault_region region, file;
    refault_budget_stats stats;
    void *address = NULL, *contents = NULL;
    size_t bytes = 0;

    CHECK(refault_budget_new(100, NULL, &budget) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_budget_new(4 << 20, "lru", &budget) == REFAULT_BAD_ARGUMENT); /* needs each access */
    CHECK(refault_budget_new(4 << 20, NULL, &budget) == REFAULT_OK);
    CHECK(refault_region_new(budget, 32 << 20, &address, &region) == REFAULT_OK);
    uint64_t *words = (uint64_t *)address;
    for (uint64_t at = 0; at < (32 << 20) / 8; at++) words[at] = at * 3;
    CHECK(refault_budget_stats_now(budget, &stats) == REFAULT_OK);
    CHECK(stats.resident_bytes <= 4 << 20 && stats.pages_out > 1000);
    for (uint64_t at = 0; at < (32 << 20) / 8; at++) CHECK(words[at] == at * 3);
    CHECK(refault_region_pin(region, 0, 1 << 20) == REFAULT_OK);
    CHECK(refault_region_unpin(region, 0, 1 << 20) == REFAULT_OK);
    CHECK(refault_region_pin(region, 0, 33 << 20) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_region_pin(region, SIZE_MAX, 2) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_region_prefetch(region, 0, 1 << 20) == REFAULT_OK);
    CHECK(refault_region_discard(region, 0, 1 << 20) == REFAULT_OK && words[5] == 0);
    CHECK(refault_budget_resize(budget, 2 << 20) == REFAULT_OK);
    CHECK(refault_budget_stats_now(budget, &stats) == REFAULT_OK && stats.resident_bytes <= 2 << 20);
    CHECK(refault_region_from_file(budget, path, &contents, &bytes, &file) == REFAULT_OK && bytes == 1000000);
    for (size_t at = 0; at < bytes; at++) CHECK(((char *)contents)[at] == (char)(at % 251));
    CHECK(refault_budget_free(budget) == REFAULT_OK);
    CHECK(words[1 << 20] == 3 << 20); /* regions outlive their budget */
    CHECK(refault_region_free(region) == REFAULT_OK);
    CHECK(refault_region_free(file) == REFAULT_OK);
    CHECK(refault_region_free(file) == REFAULT_BAD_HANDLE);
}

static void policies(void) {
    refault_policy lru;
    bool hit = true;
    uint64_t misses = 0;
    CHECK(strstr(refault_policy_names(), "mglru") != NULL);
    CHECK(refault_policy_new("opt", 2, 10, &lru) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_policy_new("lru", 2, 10, &lru) == REFAULT_OK);
    CHECK(refault_policy_access(lru, 1, false, &hit) == REFAULT_OK && !hit);
    CHECK(refault_policy_access(lru, 1, false, &hit) == REFAULT_OK && hit);
    CHECK(refault_policy_access(lru, 10, false, &hit) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_policy_counter(lru, "misses", &misses) == REFAULT_OK && misses == 1);
    CHECK(refault_policy_counter(lru, "moons", &misses) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_policy_free(lru) == REFAULT_OK);
}

static void estimates(void) {
    refault_estimator estimator;
    refault_estimate read[2];
    const uint64_t caches[2] = {50 << 10, 200 << 10};
    uint64_t objects[100], sizes[100];
    for (uint64_t object = 0; object < 100; object++) {
        objects[object] = object;
        sizes[object] = 1 << 10;
    }
    CHECK(refault_estimator_new("opt", caches, 2, &estimator) == REFAULT_BAD_ARGUMENT);
    CHECK(strstr(refault_error_message(), "choose from lru") != NULL);
    CHECK(refault_estimator_new("lru", NULL, 2, &estimator) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_estimator_new("lru", caches, 0, &estimator) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_estimator_new("lru,s3fifo", caches, 2, &estimator) == REFAULT_OK);
    CHECK(refault_estimator_accessed(estimator, NULL, sizes, 100) == REFAULT_BAD_ARGUMENT);
    for (int round = 0; round < 10; round++)
        CHECK(refault_estimator_accessed(estimator, objects, sizes, 100) == REFAULT_OK);
    CHECK(refault_estimator_read(estimator, "fifo", read) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_estimator_read(estimator, "lru", NULL) == REFAULT_BAD_ARGUMENT);
    CHECK(refault_estimator_read(estimator, "lru", read) == REFAULT_OK);
    CHECK(read[0].cache_bytes == 50 << 10 && read[0].miss_ratio == 1 && read[0].byte_miss_ratio == 1);
    CHECK(read[1].cache_bytes == 200 << 10 && read[1].miss_ratio == 0.1 && read[1].byte_miss_ratio == 0.1);
    CHECK(refault_estimator_restart(estimator) == REFAULT_OK);
    CHECK(refault_estimator_accessed(estimator, objects, sizes, 100) == REFAULT_OK);
    CHECK(refault_estimator_read(estimator, "lru", read) == REFAULT_OK && read[1].miss_ratio == 0);
    CHECK(refault_estimator_free(estimator) == REFAULT_OK);
    CHECK(refault_estimator_free(estimator) == REFAULT_BAD_HANDLE);
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    CHECK(strcmp(refault_error_message(), "") == 0 && refault_error_number() == 0);
    CHECK(refault_version()[0] != 0);
    snprintf(path, sizeof path, "%s/data", argv[1]);
    FILE *data = fopen(path, "wb");
    CHECK(data != NULL);
    for (size_t at = 0; at < 1000000; at++) fputc((int)(at % 251), data);
    CHECK(fclose(data) == 0);
    files();
    threads();
    policies();
    estimates();
    if (argc < 3) regions();
    puts("ok");
    return 0;
}
