/* Pushes out what does not compress and dumps core. With `key`, it holds an AES key of its own, which a search must
 * find. */
#include "probe.h"
#include <sys/random.h>

static unsigned char box[256];
static unsigned char power(unsigned x, unsigned by) { unsigned r = 0; for (; by; by >>= 1) { if (by & 1) r ^= x; x = x << 1 ^ (x & 128 ? 0x11b : 0); } return r; }
static void make_box(void) {
    for (unsigned i = 0; i < 256; i++) { unsigned inverse = 0; for (unsigned k = 1; k < 256 && i; k++) if (power(i, k) == 1) { inverse = k; break; } unsigned r = inverse; for (int s = 1; s < 5; s++) r ^= (inverse << s | inverse >> (8 - s)) & 255; box[i] = r ^ 0x63; }
}
static unsigned char *schedule;
static void expand(const unsigned char *key) {
    memcpy(schedule, key, 32); unsigned char round = 1;
    for (int i = 32; i < 240; i += 4) { unsigned char t[4]; memcpy(t, schedule + i - 4, 4); if (i % 32 == 0) { unsigned char first = t[0]; t[0] = box[t[1]] ^ round; t[1] = box[t[2]]; t[2] = box[t[3]]; t[3] = box[first]; round = power(round, 2); } else if (i % 32 == 16) for (int k = 0; k < 4; k++) t[k] = box[t[k]]; for (int k = 0; k < 4; k++) schedule[i + k] = schedule[i + k - 32] ^ t[k]; }
}
int main(int n, char **v) {
    const char *mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}; if (setrlimit(RLIMIT_CORE, &all)) { perror("setrlimit"); return 1; }
    unsigned char *p = map(48 * MIB); for (unsigned long i = 0; i < 48 * MIB; i += 256) if (getrandom(p + i, 256, 0) != 256) return 1;
    for (int round = 0; round < 2; round++) for (unsigned long i = 0; i < 48 * MIB; i += PAGE) p[i]++;
    schedule = (unsigned char *)map(MIB); strcpy((char *)schedule + 1000, "a mark that is in every whole core");
    MODE("key") { unsigned char key[32]; if (getrandom(key, 32, 0) != 32) return 1; make_box(); expand(key); }
    puts("aborting"); abort();
}
