/* Locks memory bit by bit until that is refused, and says how much was locked (in mebibytes), why no more was, and whether
 * the contents are whole: "one: ...", "again: ...", "all: ...". With "children" two children do so at the same
 * time: "children: ...". With "heirs" children lock 14 MiB beside the 14 that their parent has locked, after a fork, after an
 * exec that failed, and once another child that had locked 14 was killed: "heirs: ...". With "moves" locked memory grows, and
 * loses and gets its rights: "moves: ..." and "rights: ...", each an answer per call and the words that are wrong. With "reads" memory that was locked in three ways is unlocked while a thread
 * waits for a pipe to fill it: "reads: ...", bytes that came per way. With "hole" rights are given to 60 MiB by calls that end at what is not
 * mapped, and all is touched: "hole: ...", what the last call said and the mebibytes in memory. With "beside" most is locked and
 * much is touched beside it: "beside: ...", mebibytes that are locked and in memory. With "little" each of four processes locks a
 * quarter of a mebibyte: "little: ...", each answer, and the words that are wrong. With "mapped" memory is mapped locked, and
 * mapped and grown while all that is mapped later is locked; unlocked, it leaves memory: "mapped: ...", each answer, the mebibytes
 * that stay when all is unlocked and much else is touched, and the words that are wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define BYTES (40 * MIB)

static unsigned long *memory;

static void fill(unsigned long start, unsigned long bytes) {
    for (unsigned long i = start / 8; i < (start + bytes) / 8; i++) memory[i] = i * 0x9e3779b97f4a7c15;
}

static long changed(unsigned long bytes) {
    long bad = 0;
    for (unsigned long i = 0; i < bytes / 8; i++) bad += memory[i] != i * 0x9e3779b97f4a7c15;
    return bad;
}

/* Mebibytes from the start that can be locked, one after the other. */
static int lock_all_that_can_be(void) {
    int locked = 0;
    while (locked < 40 && !mlock((char *)memory + locked * MIB, MIB)) locked++;
    return locked;
}

/* Two children that have 20 each, and lock it as long as the other lives. */
static int lock_in_children(void) {
    int counts[2];
    for (int child = 0; child < 2; child++) {
        int said[2], ends[2];
        if (pipe(said) || pipe(ends)) return 1;
        if (fork() == 0) {
            close(ends[1]);
            memory = mmap(0, 20 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            fill(0, 20 * MIB);
            int locked = 0;
            while (locked < 20 && !mlock((char *)memory + locked * MIB, MIB)) locked++;
            write(said[1], &locked, sizeof locked);
            /* Until the parent ends. */
            read(ends[0], &locked, 1);
            _exit(changed(20 * MIB) != 0);
        }
        read(said[0], &counts[child], sizeof(int));
    }
    printf("children: %d and %d\n", counts[0], counts[1]);
    return 0;
}

/* Whether 14 MiB can be locked, by a child or by this process. */
static int lock_14(int by_child, int then_die) {
    if (!by_child) return mlock(mmap(0, 14 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 14 * MIB);
    int said[2], error = -2;
    if (pipe(said)) return -3;
    pid_t child = fork();
    if (child == 0) {
        error = lock_14(0, 0);
        write(said[1], &error, sizeof error);
        if (then_die) kill(getpid(), SIGKILL);
        _exit(0);
    }
    read(said[0], &error, sizeof error);
    waitpid(child, 0, 0);
    return error;
}

static int lock_beside_others(void) {
    int killed = lock_14(1, 1), first = lock_14(0, 0), forked = lock_14(1, 0);
    execl("/nowhere/x", "x", (char *)0);
    printf("heirs: %d %d %d %d\n", killed, first, forked, lock_14(1, 0));
    return 0;
}

static void *map(unsigned long bytes, int rights) {
    return mmap(0, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void move_what_is_locked(void) {
    memory = map(8 * MIB, PROT_READ | PROT_WRITE);
    fill(0, 8 * MIB);
    int locked = mlock(memory, 8 * MIB);
    /* Something lies behind it as a rule, so that it moves. */
    memory = mremap(memory, 8 * MIB, 12 * MIB, MREMAP_MAYMOVE);
    long wrong = changed(8 * MIB);
    for (unsigned long i = MIB; i < 12 * MIB / 8; i++) wrong += memory[i] != 0;
    fill(8 * MIB, 4 * MIB);
    int beyond = mremap(memory, 12 * MIB, 60 * MIB, MREMAP_MAYMOVE) == MAP_FAILED ? errno : 0;
    /* The 12 MiB count: 14 MiB more do not fit, 2 MiB do. */
    unsigned long *other = map(14 * MIB, PROT_READ | PROT_WRITE);
    int too_much = mlock(other, 14 * MIB), fits = mlock(other, 2 * MIB);
    printf("moves: %d %s %d %d, wrong %ld\n", locked, strerror(beyond), too_much, fits, wrong + changed(12 * MIB));
    munmap(other, 14 * MIB);
    munmap(memory, 12 * MIB);
}

static void take_and_give_rights(void) {
    memory = map(14 * MIB, PROT_READ | PROT_WRITE);
    fill(0, 14 * MIB);
    int locked = mlock(memory, 14 * MIB), taken = mprotect(memory, 14 * MIB, PROT_NONE);
    unsigned long *other = map(14 * MIB, PROT_READ | PROT_WRITE);
    int beyond = mlock(other, 14 * MIB), given = mprotect(memory, 14 * MIB, PROT_READ | PROT_WRITE);
    long wrong = changed(14 * MIB);
    munmap(memory, 14 * MIB);
    /* Locked without rights: nothing can be brought in, but the mapping is locked. */
    char *reserved = map(60 * MIB, PROT_NONE);
    int empty = mlock(reserved, 60 * MIB), whole = mprotect(reserved, 60 * MIB, PROT_READ | PROT_WRITE);
    int part = mprotect(reserved, 4 * MIB, PROT_READ | PROT_WRITE);
    memset(reserved, 1, 4 * MIB);
    printf("rights: %d %d %d %d, %d %d %d, wrong %ld\n", locked, taken, beyond, given, empty, whole, part, wrong);
}

static int ends[2];
static char *target;

static void *read_all(void *argument) {
    (void)argument;
    return (void *)read(ends[0], target, 8 * 4096);
}

/* Bytes that a read gets which waits while its memory is unlocked and much else is touched. */
static long read_into_locked(int how) {
    static char message[8 * 4096];
    pipe(ends);
    target = map(MIB, how == 0 ? PROT_NONE : PROT_READ | PROT_WRITE);
    mlock(target, MIB);
    if (how == 0) mprotect(target, MIB, PROT_READ | PROT_WRITE);
    if (how == 1) target = mremap(target, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, map(MIB, PROT_NONE));
    if (how == 2) madvise(target, MIB, 24 /* MADV_DONTNEED_LOCKED */);
    memset(target, 1, MIB);
    pthread_t reader;
    pthread_create(&reader, 0, read_all, 0);
    usleep(200000);
    munlock(target, MIB);
    memory = map(60 * MIB, PROT_READ | PROT_WRITE);
    fill(0, 60 * MIB);
    fill(0, 60 * MIB);
    munmap(memory, 60 * MIB);
    memset(message, 'x', sizeof message);
    write(ends[1], message, sizeof message);
    close(ends[1]);
    void *got;
    pthread_join(reader, &got);
    close(ends[0]);
    return target[5] == 'x' ? (long)got : -2;
}

/* Mebibytes of anonymous memory that are resident. */
static long resident(void) {
    char line[200];
    long kib = -1;
    FILE *sums = fopen("/proc/self/smaps_rollup", "r");
    while (fgets(line, sizeof line, sums)) sscanf(line, "Anonymous: %ld", &kib);
    fclose(sums);
    return kib >> 10;
}

/* Most of the budget locked, and much that compresses well beside it. */
static void fill_beside_locks(void) {
    int locked = 0;
    for (int piece = 0; piece < 20; piece++) {
        memory = map(3 * MIB, PROT_READ | PROT_WRITE);
        for (unsigned long i = 0; i < 3 * MIB / 8; i += 8) memory[i] = i * 0x9e3779b97f4a7c15;
        locked += 3 * !mlock(memory, 3 * MIB);
    }
    printf("beside: %d %ld\n", locked, resident());
}

static void give_rights_up_to_a_hole(void) {
    int answer = 0;
    for (int piece = 0; piece < 15; piece++) {
        char *at = map(4 * MIB + 4096, PROT_NONE);
        munmap(at + 4 * MIB, 4096);
        answer = mprotect(at, 4 * MIB + 4096, PROT_READ | PROT_WRITE);
        memory = (unsigned long *)at;
        fill(0, 4 * MIB);
    }
    printf("hole: %d %ld\n", answer, resident());
}

/* 0, or why memory cannot be mapped locked. */
static int map_locked(unsigned long bytes, int flags) {
    unsigned long *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED) return errno;
    memory = at;
    return 0;
}

static void map_what_is_locked(void) {
    int fits = map_locked(14 * MIB, MAP_LOCKED);
    fill(0, 14 * MIB);
    int beyond = map_locked(14 * MIB, MAP_LOCKED), whole = munlock(memory, 14 * MIB);
    unsigned long *first = memory;
    int later = mlockall(MCL_FUTURE), mapped = map_locked(2 * MIB, 0), too_much = map_locked(24 * MIB, 0);
    char *heap = sbrk(MIB);
    int refused = sbrk(60 * MIB) == (void *)-1 ? errno : 0;
    memset(heap, 1, MIB);
    printf("mapped: %s, %s, %d %d, %s, %s, %s, ", strerror(fits), strerror(beyond), whole, later, strerror(mapped),
           strerror(too_much), strerror(refused));
    munlockall();
    memory = map(60 * MIB, PROT_READ | PROT_WRITE);
    fill(0, 60 * MIB);
    long wrong = changed(60 * MIB), stays = resident();
    memory = first;
    printf("%ld, wrong %ld\n", stays, wrong + changed(14 * MIB));
}

/* In a line of four processes, each the child of the one before, all of which have more than fits. */
static void lock_a_little(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(0, BYTES);
    printf("little:");
    for (int process = 0; process < 4; process++) {
        if (process > 0 && fork()) {
            wait(0);
            return;
        }
        printf(" %d", mlock(memory, 256 << 10));
    }
    printf(", changed %ld\n", changed(BYTES));
}

int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IONBF, 0);
    if (count > 1 && !strcmp(arguments[1], "little")) {
        lock_a_little();
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "heirs")) return lock_beside_others();
    if (count > 1 && !strcmp(arguments[1], "moves")) {
        move_what_is_locked();
        take_and_give_rights();
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "reads")) {
        long rights = read_into_locked(0), moved = read_into_locked(1);
        printf("reads: %ld %ld %ld\n", rights, moved, read_into_locked(2));
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "beside")) {
        fill_beside_locks();
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "mapped")) {
        map_what_is_locked();
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "hole")) {
        give_rights_up_to_a_hole();
        return 0;
    }
    if (count > 1) return lock_in_children();
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(0, BYTES);
    int locked = lock_all_that_can_be(), why = errno;
    printf("one: %d, %s, changed %ld\n", locked, strerror(why), changed(BYTES));
    /* What is locked already takes nothing; what is given back can be had again, unlocked or unmapped. */
    int twice = mlock(memory, 4 * MIB), beyond = mlock((char *)memory + 30 * MIB, 4 * MIB);
    munlock(memory, 4 * MIB);
    int instead = mlock((char *)memory + 30 * MIB, 3 * MIB);
    munmap((char *)memory + 30 * MIB, 4 * MIB);
    int freed = mlock(memory, 3 * MIB);
    /* A length that wraps is none, to the kernel: nothing is locked or unlocked by it. */
    int wraps = mlock(memory, -1) || munlock(memory, -1) || mlock((char *)memory + 20 * MIB, 4 * MIB) == 0;
    printf("again: %d %d %d %d %d\n", twice, beyond, instead, freed, wraps);
    munlockall();
    int all = mlockall(MCL_CURRENT);
    why = errno;
    munmap((char *)memory + 4 * MIB, BYTES - 4 * MIB);
    printf("all: %d %s, then %d\n", all, strerror(why), mlockall(MCL_CURRENT));
    munlockall();
    return 0;
}
