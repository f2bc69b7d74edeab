/* All addresses within a jump of libc are the program's own but for a hole in one range, when libc's frequent calls become
 * jumps to memory near it. That memory is not in the hole: the range can be unmapped, mapped over and moved over as a whole,
 * and calls go on. Argument: how it is taken. Prints "done". */
#include "program.h"

#define REACH (2304 * MIB)
#define HOLE (64 * MIB)

static struct { unsigned long start, end; } gaps[64];

/* What is free within reach of libc's code, in order: how many ranges. */
static int free_near(void) {
    static char text[256 << 10];
    int file = open("/proc/self/maps", O_RDONLY);
    CHECK(file >= 0);
    long length = 0, more;
    while ((more = read(file, text + length, sizeof text - 1 - length)) > 0) length += more;
    CHECK(!close(file) && length < sizeof text - 1);
    unsigned long near = (unsigned long)lseek & -PAGE, at = near - REACH;
    int count = 0;
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : 0) {
        unsigned long start, end;
        CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
        int is_stack = !!strstr(line, "[stack]") && (!strchr(line, '\n') || strstr(line, "[stack]") < strchr(line, '\n'));
        if (is_stack) start -= 64 * MIB;
        if (start > near + REACH) start = near + REACH;
        if (start > at && count < 64) {
            gaps[count].start = at;
            gaps[count++].end = start;
        }
        if (end > at) at = end;
        if (at >= near + REACH || is_stack) break;
    }
    return count;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    char how = *arguments[1];
    int gap_count = free_near(), largest = 0;
    for (int gap = 0; gap < gap_count; gap++) {
        unsigned long start = gaps[gap].start, bytes = gaps[gap].end - start;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        CHECK(mmap((void *)start, bytes, PROT_NONE, flags, -1, 0) == (void *)start);
        if (bytes > gaps[largest].end - gaps[largest].start) largest = gap;
    }
    unsigned char *range = (unsigned char *)gaps[largest].start;
    unsigned long bytes = gaps[largest].end - gaps[largest].start;
    CHECK(bytes > 2 * HOLE);
    /* At the end of it that is nearer to libc. */
    unsigned char *hole = (unsigned long)range > (unsigned long)lseek ? range + 4 * MIB : range + bytes - HOLE - 4 * MIB;
    CHECK(!munmap(hole, HOLE));
    /* Enough for jumps. */
    for (int call = 0; call < 2000; call++) CHECK(getppid() > 0 && lseek(-1, 0, SEEK_CUR) == -1);
    if (how == 'u') {
        CHECK(!munmap(range, bytes));
    } else if (how == 'm') {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        CHECK(mmap(range, bytes, PROT_NONE, flags, -1, 0) == range);
    } else {
        unsigned char *other = map(HOLE);
        CHECK(other != MAP_FAILED);
        memset(other, 7, 4 * PAGE);
        CHECK(mremap(other, HOLE, HOLE, MREMAP_MAYMOVE | MREMAP_FIXED, hole) == hole);
        CHECK(hole[PAGE] == 7 && hole[HOLE - 1] == 0);
    }
    for (int call = 0; call < 2000; call++) CHECK(getppid() > 0 && lseek(-1, 0, SEEK_CUR) == -1);
    unsigned char *more = map(8 * MIB);
    fill(more, 8 * MIB);
    CHECK(whole(more, 8 * MIB));
    puts("done");
}
