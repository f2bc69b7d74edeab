/* Under a budget of 3 MiB: calls by the page of calls that old programs jump to, arguments of a new program that lie at
 * odd addresses, a processor that is not to be asked or refuses addresses that are not aligned, a register that the agent
 * uses, and no room in the user's queue of signals. Prints "done". */
#include "program.h"
#include <sys/resource.h>

#define ARGUMENTS 3000
#define SET_CPUID 0x1012

static void push_out(void) {
    unsigned char *more = map(6 * MIB);
    fill(more, 6 * MIB);
    CHECK(!munmap(more, 6 * MIB));
}

static void *nothing(void *argument) { return argument; }

/* Whether the page is there and may be jumped to. */
static int has_page_of_calls(void) {
    char line[256];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, "[vsyscall]") && strstr(line, "x");
    if (maps) fclose(maps);
    return found;
}

/* Reads what is out, a word at a time, with the flag by which the processor refuses what is not aligned. */
static void reads_aligned(void) {
    unsigned char *memory = map(MIB);
    fill(memory, MIB);
    push_out();
    unsigned long sum = 0, expected = 0;
    for (unsigned long offset = 0; offset < MIB; offset += 8) expected += pattern(offset);
    asm volatile("pushfq; orl $0x40000, (%%rsp); popfq" ::: "memory", "cc");
    for (unsigned long offset = 0; offset < MIB; offset += 8) sum += *(volatile unsigned long *)(memory + offset);
    asm volatile("pushfq; andl $~0x40000, (%%rsp); popfq" ::: "memory", "cc");
    CHECK(sum == expected);
}

/* The register gets no base, or one of the program's. */
static void loads_register(void) {
    unsigned short nothing = 0;
    asm volatile("mov %0, %%gs" ::"r"(nothing));
    for (int turn = 0; turn < 1000; turn++) CHECK(syscall(SYS_getppid) > 0 && getppid() > 0);
}

static void forks_without_queue(void) {
    struct rlimit none = {0, 0};
    int status;
    unsigned char *memory = map(4 * MIB);
    fill(memory, 4 * MIB);
    CHECK(!setrlimit(RLIMIT_SIGPENDING, &none));
    pid_t child = fork();
    if (!child) _exit(!whole(memory, 4 * MIB));
    CHECK(whole(memory, 4 * MIB));
    CHECK(waitpid(child, &status, 0) == child && !status);
}

int main(int count, char **arguments) {
    if (count > 1) {
        CHECK(count == ARGUMENTS);
        puts("done");
        return 0;
    }
    if (has_page_of_calls()) {
        long (*time_of_day)(struct timeval *, struct timezone *) = (void *)0xffffffffff600000ul;
        long (*seconds)(time_t *) = (void *)0xffffffffff600400ul;
        long (*processor)(unsigned *, unsigned *) = (void *)0xffffffffff600800ul;
        unsigned char *memory = map(4 * PAGE);
        memset(memory, 1, 4 * PAGE);
        push_out();
        CHECK(!time_of_day((struct timeval *)memory, (struct timezone *)(memory + PAGE)));
        push_out();
        CHECK(seconds((time_t *)(memory + 2 * PAGE)) == *(time_t *)(memory + 2 * PAGE));
        push_out();
        CHECK(!processor((unsigned *)(memory + 3 * PAGE), (unsigned *)(memory + PAGE)));
    }
    /* Not every processor can refuse. */
    if (!syscall(SYS_arch_prctl, SET_CPUID, 0)) {
        pthread_t thread;
        int status;
        CHECK(!pthread_create(&thread, 0, nothing, 0) && !pthread_join(thread, 0));
        push_out();
        pid_t child = fork();
        if (!child) _exit(0);
        CHECK(waitpid(child, &status, 0) == child && !status);
        CHECK(!syscall(SYS_arch_prctl, SET_CPUID, 1));
    }
    reads_aligned();
    loads_register();
    forks_without_queue();
    unsigned char *vector = map((ARGUMENTS + 1) * 8 + PAGE) + 4, *text = map(PAGE);
    strcpy((char *)text, "x");
    for (int index = 0; index < ARGUMENTS; index++) memcpy(vector + 8 * index, &text, 8);
    push_out();
    execv(arguments[0], (char **)vector);
    CHECK(0);
}
