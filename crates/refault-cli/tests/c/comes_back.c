/* Fills 32 MiB with what does not compress, asks the kernel how much of the process is resident, and looks twice
 * whether the memory is whole. Prints how much is resident if that is more than 10 MiB, and else "done". */
#include "program.h"

static long resident_kib(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "RssAnon: %ld", &kib);
    fclose(status);
    return kib;
}

int main(void) {
    unsigned char *memory = map(32 * MIB);
    fill(memory, 32 * MIB);
    long kib = resident_kib();
    if (kib > 10 * 1024) {
        printf("%ld KiB are resident\n", kib);
        return 1;
    }
    CHECK(whole(memory, 32 * MIB));
    CHECK(whole(memory, 32 * MIB));
    puts("done");
    return 0;
}
