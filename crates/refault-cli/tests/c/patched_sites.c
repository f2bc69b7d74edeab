/* Looks at the machine code of libc's lseek: it must hold a system call in a process that does little, and a jump
 * after many calls or once there was a thread. Then a file's offset is checked through such a jump. Prints "done". */
#include "program.h"

/* 1 if lseek jumps, 0 if it makes the call itself, -1 if neither is found. */
static int jumps(void) {
    unsigned char *code = (unsigned char *)lseek;
    for (int at = 0; at < 32; at++) {
        if (!memcmp(code + at, "\x0f\x05\x48\x3d", 4)) return 0;
        if (code[at] == 0xe9 && !memcmp(code + at + 5, "\xf0\xff\xff", 3)) return 1;
    }
    return -1;
}

static void *nothing(void *argument) {
    return argument;
}

int main(void) {
    CHECK(jumps() == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, 0, nothing, 0));
        CHECK(!pthread_join(thread, 0));
        _exit(jumps() != 1);
    }
    CHECK(ended_well(pid));

    CHECK(jumps() == 0);
    for (int call = 0; call < 2000; call++) CHECK(getppid() > 0);
    CHECK(jumps() == 1);
    long offset = 0;
    char path[] = "/tmp/sites.XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && !unlink(path));
    for (int round = 0; round < 1000; round++) {
        CHECK(write(file, path, 10) == 10);
        offset += 10;
        CHECK(lseek(file, 0, SEEK_CUR) == offset);
    }
    CHECK(lseek(-1, 0, SEEK_CUR) == -1 && errno == EBADF);
    puts("done");
    return 0;
}
