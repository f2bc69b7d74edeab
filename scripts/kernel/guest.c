// Runs inside the kernel that scripts/ask-kernel asks: does the steps of one cell and reports the kernel's counters.
//
//   guest STEPS OUT OFFSET LENGTH    does the steps in file STEPS, writes the report to device OUT
//   guest datafile FILE PAGES        makes the data file that tasks read: every page has contents of its own
//
// A task is a process in its group that accesses pages when it is told to, one task at a time. It owns the pages of its
// workload and a few locked pages of its own, which are on the unevictable list and compete with nothing. The sequence
// of accesses is in memory that is charged to the root group, as is this program's own.
//
// An entry of a sequence is a little-endian 64-bit number: bits 0-55 page, bit 56 write, bits 57-58 kind (0 anonymous
// memory, 1 file by pread and pwrite, 2 file through a shared mapping).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef unsigned long long llu;
#define PAGE 4096ul
#define WORDS (PAGE / 8)
#define NONE UINT64_MAX
#define ROOT "/sys/fs/cgroup"
// Aligned to every level of page tables, so that regions begin where the sequence's page numbers say.
#define ANON_BASE ((char *)0x10000000000ul)
#define FILE_BASE ((char *)0x20000000000ul)
#define DUMMY_PAGES 64 // more than the kernel flushes one by one: a change of their protection flushes the whole TLB
enum { MAX_GROUPS = 16, MAX_TASKS = 16, MAX_FIELDS = 16, TEXT = 1 << 18 };

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ": %s\n", strerror(errno));
    exit(1);
}

static u64 mix(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static int slurp(const char *path, char *text, int capacity) {
    int fd = open(path, O_RDONLY), length = 0, got;
    if (fd < 0) return -1;
    while (length < capacity - 1 && (got = read(fd, text + length, capacity - 1 - length)) > 0) length += got;
    close(fd);
    text[length] = 0;
    return length;
}

// Writes one line into a kernel file. Answers 0 or the error.
static int tell(const char *path, const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    int fd = open(path, O_WRONLY);
    if (fd < 0) return errno;
    int error = write(fd, line, length) == length ? 0 : errno;
    close(fd);
    return error;
}

static void must_tell(const char *path, u64 value) {
    char text[32] = "max";
    if (value != NONE) snprintf(text, sizeof text, "%llu", (llu)value);
    if ((errno = tell(path, "%s", text))) die("%s <- %s", path, text);
}

// Memory that the root group is charged for, because the parent touches it first.
static void *shared(size_t length) {
    void *memory = mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    return memset(memory, 0, length);
}

static u64 value_of(const char *text, const char *key) { // of the line "key value"
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : 0)
        if (!strncmp(line, key, length) && line[length] == ' ') return strtoull(line + length + 1, 0, 10);
    return 0;
}

static char *report;
static size_t reported;
enum { REPORT = 1 << 20 };

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    reported += vsnprintf(report + reported, REPORT - reported, format, arguments);
    va_end(arguments);
    if (reported >= REPORT) die("the report is too long");
}

// ---- what the steps declared

struct group {
    char name[32], path[128];
    int parent;                    // -1: the root
    u64 max, high, low, min;       // pages of data; NONE: no limit (max, high)
    u64 own, extra;                // bytes and pages that are there besides the data, with those of the groups below
};
struct progress { volatile u64 done, first_touches, errors; };
struct task {
    char name[32];
    int group;
    u64 length, anon_pages, file_pages, extra;
    u64 *sequence;
    unsigned char *touched;
    struct progress *progress;
    int go[2], ready[2];
    pid_t pid;
    u64 next;
};
static struct group groups[MAX_GROUPS];
static struct task tasks[MAX_TASKS];
static int group_count, task_count;
// What kernel files say. Shared, as the report is, so that tasks do not lock copies of it.
static char *text;
// How accesses are made: TLB flushes and folds of statistics each after this number of accesses (0: never), hints, the
// file.
static u64 flush_every, fold_every, random_reads = 1;
// How many pages are left free before tasks begin, where the machine's memory is the limit (0: groups have limits).
static u64 ballast;
static char fold_file[64] = "memory.stat", data_file[128] = "/data/f";

// ---- a task's process

static char buffer[PAGE] __attribute__((aligned(4096)));

static void hear(int fd, void *what, size_t length) {
    if (read(fd, what, length) != (ssize_t)length) _exit(3);
}

static void access_page(struct task *t, u64 entry, char *anon, char *file, int fd) {
    u64 page = entry & ((1ull << 56) - 1), kind = entry >> 57 & 3, contents = mix(page + 1);
    int write_bit = entry >> 56 & 1;
    if (kind == 0) {
        u64 *words = (u64 *)(anon + page * PAGE);
        if (!t->touched[page]) {
            t->touched[page] = 1;
            t->progress->first_touches++;
            for (u64 n = 0; n < WORDS; n++) words[n] = contents;
        } else if (*(volatile u64 *)words != contents) t->progress->errors++;
        else if (write_bit) *(volatile u64 *)words = contents;
    } else if (kind == 1 && write_bit) {
        for (u64 n = 0; n < WORDS; n++) ((u64 *)buffer)[n] = contents + n;
        if (pwrite(fd, buffer, PAGE, page * PAGE) != PAGE) t->progress->errors++;
    } else if (kind == 1) {
        if (pread(fd, buffer, PAGE, page * PAGE) != PAGE || *(volatile u64 *)buffer != contents) t->progress->errors++;
    } else if (*(volatile u64 *)(file + page * PAGE) != contents) t->progress->errors++;
}

static void run_task(struct task *t) {
    char path[256];
    if (t->group >= 0) {
        snprintf(path, sizeof path, "%s/cgroup.procs", groups[t->group].path);
        if ((errno = tell(path, "0"))) die("%s", path);
    }
    if (ballast) tell("/proc/self/oom_score_adj", "0");
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    memset(buffer, 1, sizeof buffer);
    char *dummy = mmap(0, DUMMY_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (dummy == MAP_FAILED) die("mmap");
    memset(dummy, 1, DUMMY_PAGES * PAGE);
    if (mlockall(MCL_CURRENT)) die("mlockall");
    char *anon = 0, *file = 0;
    int fd = -1, fold = -1;
    if (t->anon_pages) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        anon = mmap(ANON_BASE, t->anon_pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (anon == MAP_FAILED) die("mmap of anonymous memory");
        madvise(anon, t->anon_pages * PAGE, MADV_NOHUGEPAGE);
    }
    if (t->file_pages) {
        if ((fd = open(data_file, O_RDWR)) < 0 && (fd = open(data_file, O_RDONLY)) < 0) die("%s", data_file);
        if (random_reads && (errno = posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM))) die("fadvise");
        file = mmap(FILE_BASE, t->file_pages * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
        if (file == MAP_FAILED) die("mmap of the file");
    }
    if (fold_every) {
        int top = t->group; // the limit above decides by its own sums, which folding a group below leaves as they are
        while (groups[top].parent >= 0) top = groups[top].parent;
        snprintf(path, sizeof path, "%s/%s", groups[top].path, fold_file);
        if ((fold = open(path, O_RDONLY)) < 0 || pread(fold, buffer, PAGE, 0) < 1) die("%s", path);
    }
    u64 until_fold = fold_every, until_flush = flush_every, done = 0;
    if (write(t->ready[1], "x", 1) != 1) _exit(3);
    for (;;) {
        u64 end;
        hear(t->go[0], &end, sizeof end);
        for (; done < end; done++) {
            if (fold_every && !--until_fold) {
                until_fold = fold_every;
                if (pread(fold, buffer, PAGE, 0) < 1) t->progress->errors++;
            }
            if (flush_every && !--until_flush) {
                until_flush = flush_every;
                if (mprotect(dummy, DUMMY_PAGES * PAGE, PROT_READ) ||
                    mprotect(dummy, DUMMY_PAGES * PAGE, PROT_READ | PROT_WRITE))
                    t->progress->errors++;
            }
            access_page(t, t->sequence[done], anon, file, fd);
            t->progress->done = done + 1;
        }
        if (write(t->ready[1], "x", 1) != 1) _exit(3);
    }
}

static void start_task(struct task *t) {
    if (pipe(t->go) || pipe(t->ready)) die("pipe");
    if ((t->pid = fork()) < 0) die("fork");
    if (!t->pid) run_task(t);
    close(t->go[0]), close(t->ready[1]); // so that its end can be heard
    char x;
    if (read(t->ready[0], &x, 1) != 1) die("task %s ended", t->name);
}

static void run(struct task *t, u64 count) {
    t->next = count > t->length - t->next ? t->length : t->next + count;
    char x;
    if (write(t->go[1], &t->next, sizeof t->next) == sizeof t->next && read(t->ready[0], &x, 1) == 1) return;
    if (!ballast) die("task %s ended", t->name);
    say("#task %s was killed after %llu accesses\n", t->name, (llu)t->progress->done); // for want of memory
}

// ---- the report

static void say_file(const char *what, const char *path) {
    if (slurp(path, text, TEXT) < 0) return;
    say("@%s\n%s\n", what, text);
}

static void say_generations(const char *name, const char *group) { // the group's block of the listing
    if (slurp("/sys/kernel/debug/lru_gen", text, TEXT) <= 0) return;
    say("@generations %s\n", name);
    int inside = !strcmp(group, "/"); // without groups the only block names none
    for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n")) {
        char *path = strchr(line, '/');
        if (!strncmp(line, "memcg", 5)) inside = path ? !strcmp(path, group) : inside;
        else if (inside) say("%s\n", line);
    }
}

static pid_t process_named(const char *name) {
    char path[64], comm[64] = "";
    for (pid_t pid = 1; pid < 1000; pid++) {
        snprintf(path, sizeof path, "/proc/%d/comm", pid);
        if (slurp(path, comm, sizeof comm) > 0 && !strncmp(comm, name, strlen(name))) return pid;
    }
    return 0;
}

static u64 cpu_time(pid_t pid) { // nanoseconds
    char path[64], words[128] = "";
    snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
    return slurp(path, words, sizeof words) > 0 ? strtoull(words, 0, 10) : 0;
}

static void say_lru_sort(void) { // what DAMON's module counts, if it is at work
    static const char *names[] = { "nr_lru_sort_tried_hot_regions", "bytes_lru_sort_tried_hot_regions",
        "nr_lru_sorted_hot_regions", "bytes_lru_sorted_hot_regions", "nr_hot_quota_exceeds",
        "nr_lru_sort_tried_cold_regions", "bytes_lru_sort_tried_cold_regions", "nr_lru_sorted_cold_regions",
        "bytes_lru_sorted_cold_regions", "nr_cold_quota_exceeds" };
    char path[128], value[64] = "";
    if (slurp("/sys/module/damon_lru_sort/parameters/enabled", value, sizeof value) < 1 || *value != 'Y') return;
    say("@lru_sort\n");
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++) {
        snprintf(path, sizeof path, "/sys/module/damon_lru_sort/parameters/%s", names[n]);
        if (slurp(path, value, sizeof value) > 0) say("%s %s", names[n], value);
    }
}

static void record(const char *label) {
    char path[256], what[160];
    for (int n = 0; n < group_count; n++) { // reading these has the kernel fold its statistics
        snprintf(path, sizeof path, "%s/cpu.stat", groups[n].path);
        slurp(path, text, TEXT);
        snprintf(path, sizeof path, "%s/memory.zswap.current", groups[n].path);
        slurp(path, text, TEXT);
    }
    slurp("/proc/sys/vm/stat_refresh", text, TEXT);
    say("#record %s\n", label);
    say_file("vmstat", "/proc/vmstat");
    if (ballast) say_file("zoneinfo", "/proc/zoneinfo");
    say_file("disk", "/sys/block/vda/stat");
    static const char *parts[] = { "memory.stat", "memory.events", "memory.current" };
    for (int n = 0; n < group_count; n++) {
        for (unsigned p = 0; p < sizeof parts / sizeof *parts; p++) {
            snprintf(path, sizeof path, "%s/%s", groups[n].path, parts[p]);
            snprintf(what, sizeof what, "%s %s", parts[p], groups[n].name);
            say_file(what, path);
        }
        say_generations(groups[n].name, groups[n].path + strlen(ROOT));
    }
    if (ballast) say_generations("-", "/");
    for (int n = 0; n < task_count; n++)
        say("@task %s\ndone %llu\nfirst_touches %llu\nerrors %llu\ncpu %llu\n", tasks[n].name,
            (llu)tasks[n].progress->done, (llu)tasks[n].progress->first_touches, (llu)tasks[n].progress->errors,
            (llu)cpu_time(tasks[n].pid));
    if (ballast) say("@kswapd\ncpu %llu\n", (llu)cpu_time(process_named("kswapd0")));
    say_lru_sort();
}

// ---- steps

static int group_named(const char *name) {
    for (int n = 0; n < group_count; n++) if (!strcmp(groups[n].name, name)) return n;
    errno = ENOENT;
    die("group %s", name);
    return -1;
}

static struct task *task_named(const char *name) {
    for (int n = 0; n < task_count; n++) if (!strcmp(tasks[n].name, name)) return &tasks[n];
    errno = ENOENT;
    die("task %s", name);
    return 0;
}

static u64 number(const char *text) { return strcmp(text, "max") ? strtoull(text, 0, 0) : NONE; }

static void declare_group(char **f) { // group NAME PARENT max high low min
    struct group *g = &groups[group_count];
    snprintf(g->name, sizeof g->name, "%s", f[1]);
    g->parent = strcmp(f[2], "-") ? group_named(f[2]) : -1;
    char path[128];
    snprintf(path, sizeof path, "%s", g->parent < 0 ? ROOT : groups[g->parent].path);
    snprintf(g->path, sizeof g->path, "%.90s/%s", path, g->name);
    g->max = number(f[3]), g->high = number(f[4]), g->low = number(f[5]), g->min = number(f[6]);
    if (g->parent >= 0) {
        char control[256];
        snprintf(control, sizeof control, "%s/cgroup.subtree_control", path);
        if ((errno = tell(control, "+memory"))) die("%s", control);
    }
    if (mkdir(g->path, 0755)) die("mkdir %s", g->path);
    group_count++;
}

static void declare_task(char **f) { // task NAME GROUP DEVICE OFFSET LENGTH ANON FILE EXTRA
    struct task *t = &tasks[task_count++];
    snprintf(t->name, sizeof t->name, "%s", f[1]);
    t->group = strcmp(f[2], "-") ? group_named(f[2]) : -1;
    t->length = number(f[5]), t->anon_pages = number(f[6]), t->file_pages = number(f[7]), t->extra = number(f[8]);
    u64 bytes = (t->length * 8 + PAGE - 1) / PAGE * PAGE;
    t->sequence = shared(bytes);
    t->touched = shared((t->anon_pages / PAGE + 1) * PAGE);
    t->progress = shared(PAGE);
    int fd = open(f[3], O_RDONLY | O_DIRECT);
    if (fd < 0) die("%s", f[3]);
    for (u64 got = 0; got < bytes;) {
        ssize_t now = pread(fd, (char *)t->sequence + got, bytes - got > 1 << 20 ? 1 << 20 : bytes - got, number(f[4]) + got);
        if (now <= 0) die("%s", f[3]);
        got += now;
    }
    close(fd);
}

static void set_limit(const struct group *g, const char *file, u64 pages, u64 none) {
    char path[256];
    if (pages == none) return;
    snprintf(path, sizeof path, "%s/%s", g->path, file);
    must_tell(path, pages == NONE ? NONE : (pages + g->extra) * PAGE + g->own);
}

// Takes and locks memory until only `pages` pages are free. What is free is counted exactly: in small steps at the end.
static void take_all_but(u64 pages) {
    for (;;) {
        slurp("/proc/sys/vm/stat_refresh", text, TEXT);
        slurp("/proc/vmstat", text, TEXT);
        u64 free_now = value_of(text, "nr_free_pages");
        if (free_now <= pages) return;
        u64 some = (free_now - pages + 1) / 2;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_LOCKED;
        if (mmap(0, some * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) die("%llu pages", (llu)some);
    }
}

// All tasks run: what the groups hold besides the data is known, and the limits can be set.
static void begin(void) {
    for (int n = 0; n < task_count; n++) start_task(&tasks[n]);
    for (int n = 0; n < task_count; n++)
        for (int g = tasks[n].group; g >= 0; g = groups[g].parent) groups[g].extra += tasks[n].extra;
    for (int n = 0; n < group_count; n++) {
        char path[256];
        snprintf(path, sizeof path, "%s/memory.stat", groups[n].path);
        slurp(path, text, TEXT);
        groups[n].own = value_of(text, "anon") + value_of(text, "file") + value_of(text, "kernel");
        set_limit(&groups[n], "memory.max", groups[n].max, NONE);
        set_limit(&groups[n], "memory.high", groups[n].high, NONE);
        set_limit(&groups[n], "memory.low", groups[n].low, 0);
        set_limit(&groups[n], "memory.min", groups[n].min, 0);
        say("#group %s own %llu extra %llu\n", groups[n].name, (llu)groups[n].own, (llu)groups[n].extra);
    }
    if (ballast) take_all_but(ballast);
    record("start");
}

// The number of the group in the listing of generations, and its oldest and youngest generation.
static int find_generations(const struct group *g, u64 *oldest, u64 *youngest) {
    if (slurp("/sys/kernel/debug/lru_gen", text, TEXT) <= 0) die("lru_gen");
    int id = -1, inside = 0, any = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n")) {
        char *path = strchr(line, '/');
        u64 seq, age;
        if (!strncmp(line, "memcg", 5)) {
            inside = path && !strcmp(path, g->path + strlen(ROOT));
            if (inside) id = atoi(line + 5);
        } else if (inside && !strstr(line, "node") && sscanf(line, "%lu %lu", &seq, &age) == 2) {
            if (!any++) *oldest = seq;
            *youngest = seq;
        }
    }
    if (id < 0 || !any) { errno = ENOENT; die("generations of %s", g->name); }
    return id;
}

static void do_step(char **f, int fields) {
    char path[256];
    if (!strcmp(f[0], "set")) {
        if (!strcmp(f[1], "flush_every")) flush_every = number(f[2]);
        else if (!strcmp(f[1], "fold_every")) fold_every = number(f[2]), snprintf(fold_file, sizeof fold_file, "%s", f[3]);
        else if (!strcmp(f[1], "ballast")) { // what this program has must not be reclaimed instead of the tasks' pages
            ballast = number(f[2]);
            if (mlockall(MCL_CURRENT | MCL_FUTURE)) die("mlockall");
            tell("/proc/self/oom_score_adj", "-1000"); // nor be killed instead of them
            signal(SIGPIPE, SIG_IGN);
        } else if (!strcmp(f[1], "random_reads")) random_reads = number(f[2]);
        else if (!strcmp(f[1], "data_file")) snprintf(data_file, sizeof data_file, "%s", f[2]);
        else { errno = EINVAL; die("set %s", f[1]); }
    } else if (!strcmp(f[0], "group")) declare_group(f);
    else if (!strcmp(f[0], "task")) declare_task(f);
    else if (!strcmp(f[0], "begin")) begin();
    else if (!strcmp(f[0], "run")) run(task_named(f[1]), number(f[2]));
    else if (!strcmp(f[0], "turns")) { // turns COUNT EACH TASK TASK…: each does EACH accesses in turn, COUNT times
        for (u64 turn = 0; turn < number(f[1]); turn++)
            for (int n = 3; n < fields; n++) run(task_named(f[n]), number(f[2]));
    } else if (!strcmp(f[0], "limit")) {
        struct group *g = &groups[group_named(f[1])];
        set_limit(g, "memory.max", number(f[2]), 0);
    } else if (!strcmp(f[0], "reclaim")) { // reclaim GROUP PAGES [SWAPPINESS]
        snprintf(path, sizeof path, "%s/memory.reclaim", groups[group_named(f[1])].path);
        char request[64];
        u64 bytes = number(f[2]) * PAGE;
        if (fields > 3) snprintf(request, sizeof request, "%llu swappiness=%s", (llu)bytes, f[3]);
        else snprintf(request, sizeof request, "%llu", (llu)bytes);
        say("#reclaim %s\n", strerror(tell(path, "%s", request)));
    } else if (!strcmp(f[0], "age") || !strcmp(f[0], "evict")) { // age GROUP; evict GROUP YOUNGER [SWAPPINESS]
        u64 oldest = 0, youngest = 0;
        int id = find_generations(&groups[group_named(f[1])], &oldest, &youngest), error;
        if (f[0][0] == 'a') error = tell("/sys/kernel/debug/lru_gen", "+ %d 0 %llu\n", id, (llu)youngest);
        else if (fields > 3)
            error = tell("/sys/kernel/debug/lru_gen", "- %d 0 %llu %s\n", id, (llu)(youngest - number(f[2])), f[3]);
        else error = tell("/sys/kernel/debug/lru_gen", "- %d 0 %llu\n", id, (llu)(youngest - number(f[2])));
        say("#%s %s\n", f[0], strerror(error));
    } else if (!strcmp(f[0], "write")) { // write FILE TEXT: any kernel file
        say("#write %s %s\n", f[1], strerror(tell(f[1], "%s", f[2])));
    } else if (!strcmp(f[0], "sleep")) usleep(number(f[1]) * 1000);
    else if (!strcmp(f[0], "record")) record(f[1]);
    else { errno = EINVAL; die("step %s", f[0]); }
}

// Straight to the device, so that nothing of the report enters the page cache.
static void deliver(const char *device, u64 offset, u64 room) {
    u64 length = (reported + PAGE) / PAGE * PAGE;
    if (length > room) { errno = ENOSPC; die("report of %zu bytes", reported); }
    char *copy = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, report, reported);
    int fd = open(device, O_WRONLY | O_DIRECT | O_SYNC);
    if (fd < 0 || pwrite(fd, copy, length, offset) != (ssize_t)length) die("%s", device);
    close(fd);
}

static int make_data_file(const char *path, u64 pages) {
    u64 words[WORDS];
    FILE *file = fopen(path, "wb");
    if (!file) die("%s", path);
    for (u64 page = 0; page < pages; page++) {
        for (u64 n = 0; n < WORDS; n++) words[n] = mix(page + 1) + n;
        if (fwrite(words, PAGE, 1, file) != 1) die("%s", path);
    }
    if (fclose(file)) die("%s", path);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "datafile")) return make_data_file(argv[2], number(argv[3]));
    if (argc != 5) return 2;
    char *steps = shared(TEXT);
    text = shared(TEXT);
    if (slurp(argv[1], steps, TEXT) < 0) die("%s", argv[1]);
    report = shared(REPORT);
    char *rest = 0;
    for (char *line = strtok_r(steps, "\n", &rest); line; line = strtok_r(0, "\n", &rest)) {
        char *f[MAX_FIELDS], *more = 0;
        int fields = 0;
        for (char *word = strtok_r(line, " ", &more); word && fields < MAX_FIELDS; word = strtok_r(0, " ", &more))
            f[fields++] = word;
        if (fields) do_step(f, fields);
    }
    say("#end\n");
    for (int n = 0; n < task_count; n++) kill(tasks[n].pid, SIGKILL), waitpid(tasks[n].pid, 0, 0);
    deliver(argv[2], number(argv[3]), number(argv[4]));
    for (int n = group_count - 1; n >= 0; n--) rmdir(groups[n].path);
    return 0;
}
