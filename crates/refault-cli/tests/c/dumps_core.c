/* Marks each of 4096 pages with MARK and the page's number, and dumps core. Prints nothing. */
#include "program.h"
#include <sys/resource.h>

int main(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    CHECK(!setrlimit(RLIMIT_CORE, &all));
    unsigned char *memory = map(16 * MIB);
    for (unsigned long page = 0; page < 16 * MIB / PAGE; page++) {
        sprintf((char *)memory + page * PAGE, "MARK%08lu", page);
        memory[page * PAGE + 100 + page % 50] = page;
    }
    abort();
}
