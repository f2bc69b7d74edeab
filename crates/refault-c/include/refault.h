/* refault: page caches for files, memory under a budget, reclaim policies by name.
 *
 * Made by cbindgen from crates/refault-c; do not edit. Licence: MIT OR Apache-2.0. */

#ifndef REFAULT_H
#define REFAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 For `refault_file_open_with`: the file is opened for reading and writing. Without a flag it is opened for reading.
 */
#define REFAULT_OPEN_WRITE 1

/*
 The file is opened for reading, and for writing by its first write, which may fail then.
 */
#define REFAULT_OPEN_WRITE_ON_DEMAND 2

/*
 What is written goes through the kernel's page cache: `refault_file_write` returns when the kernel has it, which writes
 it to the device when it sees fit, at the latest at `refault_file_sync`. Small writes between two syncs cost about
 what they cost without direct I/O. Until a sync the kernel holds a copy, which does not count in the cache's memory;
 without a sync it holds it until it wants the memory.
 */
#define REFAULT_OPEN_BUFFERED_WRITES 4

/*
 What came of a call.
 */
typedef enum {
  /*
   It did what it should.
   */
  REFAULT_OK = 0,
  /*
   An argument is null, too large, or not understood.
   */
  REFAULT_BAD_ARGUMENT = 1,
  /*
   The handle was closed, or never was one of this type.
   */
  REFAULT_BAD_HANDLE = 2,
  /*
   The system refused: `refault_error_number()` says why.
   */
  REFAULT_SYSTEM = 3,
  /*
   There is not enough memory, or no frame or address is free.
   */
  REFAULT_NO_ROOM = 4,
  /*
   The object is in use: close what depends on it first.
   */
  REFAULT_BUSY = 5,
  /*
   refault failed inside; its state may be wrong. Please report it.
   */
  REFAULT_INTERNAL = 6,
} refault_status;

/*
 A limit, in bytes, of the resident memory of the regions that share it.
 */
typedef uint64_t refault_budget;

/*
 A budget's state at one moment.
 */
typedef struct {
  /*
   Bytes that may be resident.
   */
  uint64_t budget_bytes;
  /*
   Bytes that are.
   */
  uint64_t resident_bytes;
  /*
   Bytes that the evicted pages take, compressed or in a file.
   */
  uint64_t stored_bytes;
  /*
   Bytes of bookkeeping.
   */
  uint64_t metadata_bytes;
  /*
   Faults on evicted pages since the start.
   */
  uint64_t faults;
  /*
   Pages brought back since the start.
   */
  uint64_t pages_in;
  /*
   Pages evicted with a write to a store since the start.
   */
  uint64_t pages_out;
} refault_budget_stats;

/*
 A range of memory under a budget.
 */
typedef uint64_t refault_region;

/*
 A page cache.
 */
typedef uint64_t refault_cache;

/*
 How a cache is made. Set all to zero first: a zero is the default.
 */
typedef struct {
  /*
   Bytes of memory, at least 256 KiB, for files' contents and what is kept of pages; 64 MiB if 0.
   */
  uint64_t memory;
  /*
   The policy, or null.
   */
  const char *policy;
  /*
   Pages of a window of readahead at most; if 0, as many as the kernel reads ahead on the file's device, 512 at least, but no more than a 32nd of memory, or 8 if that is more.
   */
  uint32_t read_ahead;
  /*
   Not 0: nothing is read ahead.
   */
  uint32_t no_read_ahead;
  /*
   Not 0: writes stay in memory until they are written in the background, or `refault_file_sync` asks for it.
   */
  uint32_t write_back;
  /*
   With `write_back`: the share of memory from which on pages are written in the background; 0.1 if 0.
   */
  double background_ratio;
  /*
   The share of memory that may wait to be written, at most 0.5; 0.2 if 0.
   */
  double ratio;
  /*
   Milliseconds after which pages are written in any case; 30,000 if 0.
   */
  uint64_t expire_ms;
  /*
   The share of memory for evicted pages, compressed, at most 0.75; none if 0.
   */
  double compressed;
  /*
   A file that gets a line each second, for `refault top`; or null: the environment variable
   `REFAULT_CACHE_STATS` may name one.
   */
  const char *statistics;
} refault_cache_options;

/*
 A cache's state at one moment. Counts are pages since the start.
 */
typedef struct {
  /*
   Bytes of contents that may be in memory now: what records take is taken off.
   */
  uint64_t memory_bytes;
  /*
   Bytes of contents that are.
   */
  uint64_t resident_bytes;
  /*
   Bytes of records of pages and frames. They count in the cache's memory beyond the first MiB.
   */
  uint64_t metadata_bytes;
  /*
   Pages that were asked for and were in memory.
   */
  uint64_t hits;
  /*
   Pages that were asked for and had to be read.
   */
  uint64_t misses;
  /*
   Pages that were read along in sequences.
   */
  uint64_t read_ahead;
  /*
   Pages written.
   */
  uint64_t written;
} refault_cache_stats;

/*
 A file behind a page cache.
 */
typedef uint64_t refault_file;

/*
 An estimator: it is told of accesses, and says what caches would have missed.
 */
typedef uint64_t refault_estimator;

/*
 What a cache would have missed.
 */
typedef struct {
  /*
   The size of the cache in bytes.
   */
  uint64_t cache_bytes;
  /*
   Misses per access, 0 to 1, first touches included.
   */
  double miss_ratio;
  /*
   Bytes missed per byte asked for, 0 to 1.
   */
  double byte_miss_ratio;
} refault_estimate;

/*
 Bytes of a file that stay where they are.
 */
typedef uint64_t refault_pin;

/*
 A policy over a memory of a few pages.
 */
typedef uint64_t refault_policy;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Makes a budget of `bytes` under a policy that needs only accessed bits, such as `"mglru"` or `"clock"`; null is the
 default. What does not fit is compressed. Needs userfaultfd; the message of a failure says what permits it.

 # Safety
 `policy` is null or a string; `out` can be written to.
 */
refault_status refault_budget_new(uint64_t bytes,
                                  const char *policy,
                                  refault_budget *out);

/*
 Changes a budget, and returns when no more than that is resident; after a minute it gives up with `REFAULT_BUSY`.
 */
refault_status refault_budget_resize(refault_budget budget,
                                     uint64_t bytes);

/*
 A budget's state now.

 # Safety
 `out` can be written to.
 */
refault_status refault_budget_stats_now(refault_budget budget, refault_budget_stats *out);

/*
 Ends the use of a budget. Its regions stay usable until they are freed.
 */
refault_status refault_budget_free(refault_budget budget);

/*
 Takes `bytes` of zeros under a budget; `address` gets where they are. They can be used like any memory, by any
 thread, until the region is freed.

 # Safety
 `address` and `out` can be written to.
 */
refault_status refault_region_new(refault_budget budget,
                                  size_t bytes,
                                  void **address,
                                  refault_region *out);

/*
 The same with a file's contents, which are read when they are touched. What is written stays in memory.

 # Safety
 `file_path` is a string; `address` and `out` can be written to, and so can `bytes`, which gets the length.
 */
refault_status refault_region_from_file(refault_budget budget,
                                        const char *file_path,
                                        void **address,
                                        size_t *bytes,
                                        refault_region *out);

/*
 Forgets the contents of all pages that lie wholly in a range of bytes of a region: they are zeros (or the file's)
 again.
 */
refault_status refault_region_discard(refault_region region,
                                      size_t offset,
                                      size_t length);

/*
 Brings a range of bytes in as far as the budget has room.
 */
refault_status refault_region_prefetch(refault_region region, size_t offset, size_t length);

/*
 Brings a range of bytes in and keeps it until `refault_region_unpin`. Fails, with nothing pinned, if it does not
 fit. Pages that are pinned twice are unpinned at once. Needed for what writes into a region past the program: direct
 reads (O_DIRECT), io_uring's registered buffers, another process's process_vm_writev. What they write to a page that
 is evicted meanwhile is lost, without an error.
 */
refault_status refault_region_pin(refault_region region,
                                  size_t offset,
                                  size_t length);

/*
 Ends that.
 */
refault_status refault_region_unpin(refault_region region, size_t offset, size_t length);

/*
 Gives a region back. Its memory must not be used any more.
 */
refault_status refault_region_free(refault_region region);

/*
 Makes an empty cache of at most `memory` bytes (at least 256 KiB), records of pages included, under a policy such as
 `"mglru"` or `"s3fifo{small=0.1}"`; null is the default. `refault_policy_names` lists them.

 # Safety
 `policy` is null or a string; `out` can be written to.
 */
refault_status refault_cache_new(uint64_t memory,
                                 const char *policy,
                                 refault_cache *out);

/*
 `refault_cache_new` with more to say.

 # Safety
 `options` points to options whose `policy` and `statistics` are null or strings; `out` can be written to.
 */
refault_status refault_cache_new_with(const refault_cache_options *options,
                                      refault_cache *out);

/*
 Ends the use of a cache. Its files stay usable until they are closed.
 */
refault_status refault_cache_free(refault_cache cache);

/*
 A cache's state now.

 # Safety
 `out` can be written to.
 */
refault_status refault_cache_stats_now(refault_cache cache, refault_cache_stats *out);

/*
 Opens a file, which must exist, with direct I/O: for reading, and for writing by its first write, which fails where that
 is not allowed. While it is open only this cache should write to it.

 # Safety
 `file_path` is a string; `out` can be written to.
 */
refault_status refault_file_open(refault_cache cache,
                                 const char *file_path,
                                 refault_file *out);

/*
 `refault_file_open` with the rights that the `REFAULT_OPEN_` flags ask for: with 0 the file is opened for reading.

 # Safety
 `file_path` is a string; `out` can be written to.
 */
refault_status refault_file_open_with(refault_cache cache,
                                      const char *file_path,
                                      uint32_t flags,
                                      refault_file *out);

/*
 Closes a file; what is cached of it goes. What waits to be written is written, but nothing is made durable, and a
 failure is not told: see `refault_file_sync`.
 */
refault_status refault_file_close(refault_file file);

/*
 Reads up to `length` bytes from `offset` on; `read` gets how many: fewer only at the end of the file, 0 beyond it.

 # Safety
 `buffer` can hold `length` bytes, and no other thread uses them during the call; `read` can be written to.
 */
refault_status refault_file_read(refault_file file,
                                 void *buffer,
                                 size_t length,
                                 uint64_t offset,
                                 size_t *read);

/*
 Writes `length` bytes at `offset`; the file grows if need be. When it returns the device has
 them, or memory with `write_back`; `refault_file_sync` makes them durable.

 # Safety
 `buffer` holds `length` bytes, which do not change during the call.
 */
refault_status refault_file_write(refault_file file,
                                  const void *buffer,
                                  size_t length,
                                  uint64_t offset);

/*
 Makes everything durable that was written before. After a failure, what was written since the last success may not
 be.
 */
refault_status refault_file_sync(refault_file file);

/*
 Cuts the file off, or adds zeros at its end.
 */
refault_status refault_file_truncate(refault_file file, uint64_t bytes);

/*
 Another program may have written to the file: drops what is cached of it, and asks for its length.
 */
refault_status refault_file_reload(refault_file file);

/*
 Asks the system whether another program has changed the file since it was opened or this was last called, and if so
 does what `refault_file_reload` does; `changed` gets 1 then, and 0 otherwise. A change within some milliseconds of a
 write of this cache's may not be noticed.

 # Safety
 `changed` can be written to.
 */
refault_status refault_file_reload_if_changed(refault_file file,
                                              uint32_t *changed);

/*
 From now on a sync that fails makes the cache forget what was written since the last one, as the kernel's page cache
 does: it says so once, and reads ask the device for what it has. Otherwise such pages are written again later, which is
 wrong for a program with a journal of its own that others may take up meanwhile.
 */
refault_status refault_file_forget_on_failure(refault_file file);

/*
 The file's length in bytes.

 # Safety
 `out` can be written to.
 */
refault_status refault_file_size(refault_file file, uint64_t *out);

/*
 Makes an estimator in at most 2 MiB for policies, separated by commas (`lru`, `fifo`, `clock`, `s3fifo`), at `caches`
 sizes of the cache in bytes, 1 to 16.

 # Safety
 `policies` is a string; `cache_bytes` has `caches` numbers; `out` can be written to.
 */
refault_status refault_estimator_new(const char *policies,
                                     const uint64_t *cache_bytes,
                                     size_t caches,
                                     refault_estimator *out);

/*
 Tells of `count` accesses in their order: each object's number or hash, and its size in bytes. A call costs some
 50 ns beside the accesses, so tell of many at a time.

 # Safety
 `objects` and `sizes` have `count` numbers each.
 */
refault_status refault_estimator_accessed(refault_estimator estimator,
                                          const uint64_t *objects,
                                          const uint64_t *sizes,
                                          size_t count);

/*
 The estimates of one policy, for each size of the cache in the order in which they were given.

 # Safety
 `policy` is a string; `out` can be written to as many times as there are sizes.
 */
refault_status refault_estimator_read(refault_estimator estimator,
                                      const char *policy,
                                      refault_estimate *out);

/*
 Counts from now on, with the caches as they are.
 */
refault_status refault_estimator_restart(refault_estimator estimator);

/*
 Ends the use of an estimator.
 */
refault_status refault_estimator_free(refault_estimator estimator);

/*
 Lends the cache's own memory: `data` gets the byte at `offset`, `bytes` how many follow it, up to the end of its
 page of 4096 bytes or of the file. They stay as they are until `refault_pin_free`, whatever is written or cut off;
 the page cannot be evicted meanwhile, so pin little and not for long. Beyond the end of the file there are 0 bytes.

 # Safety
 `data`, `bytes` and `out` can be written to.
 */
refault_status refault_file_pin(refault_file file,
                                uint64_t offset,
                                const void **data,
                                size_t *bytes,
                                refault_pin *out);

/*
 Ends a pin; what it lent must not be read any more.
 */
refault_status refault_pin_free(refault_pin pin);

/*
 Begins to read `length` bytes from `offset` on in the background, as far as there is room, and returns at once.
 */
refault_status refault_file_prefetch(refault_file file,
                                     uint64_t offset,
                                     uint64_t length);

/*
 Makes durable what was written to `length` bytes from `offset` on before; see `refault_file_sync`.
 */
refault_status refault_file_sync_range(refault_file file, uint64_t offset, uint64_t length);

/*
 The names of all policies, separated by commas.
 */
const char *refault_policy_names(void);

/*
 Makes a policy over a memory of `memory_pages`, for pages numbered from 0 to below `pages`, which are read through a
 descriptor.

 # Safety
 `name` is a string; `out` can be written to.
 */
refault_status refault_policy_new(const char *name,
                                  uint64_t memory_pages,
                                  uint64_t pages,
                                  refault_policy *out);

/*
 Accesses a page; `hit` gets whether it was in memory.

 # Safety
 `hit` can be written to.
 */
refault_status refault_policy_access(refault_policy policy, uint64_t page, bool write, bool *hit);

/*
 A counter: `accesses`, `hits`, `misses`, or one of `/proc/vmstat`'s names.

 # Safety
 `name` is a string; `out` can be written to.
 */
refault_status refault_policy_counter(refault_policy policy, const char *name, uint64_t *out);

/*
 Ends the use of a policy.
 */
refault_status refault_policy_free(refault_policy policy);

/*
 The sentence of this thread's last failure: what failed, where, what to do. Empty if nothing failed. It is valid
 until the next failure of this thread.
 */
const char *refault_error_message(void);

/*
 The `errno` of this thread's last failure, or 0 if the system had no part in it. A file without direct I/O has `EINVAL`.
 */
int refault_error_number(void);

/*
 The version of the library, such as `0.1.0`.
 */
const char *refault_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REFAULT_H */
