/* Who reads the standard error of a daemon hears of its end as soon as the daemon has closed or replaced it. */
#include "program.h"

int main(int count, char **words) {
    unsigned char *memory = map(16 * MIB);
    fill(memory, 16 * MIB);
    if (count > 1) {
        int null = open("/dev/null", O_RDWR);
        if (!strcmp(words[1], "replaces")) CHECK(dup2(null, 2) == 2);
        if (!strcmp(words[1], "replaces at once")) CHECK(dup3(null, 2, O_CLOEXEC) == 2);
        if (!strcmp(words[1], "closes")) CHECK(close(2) == 0);
        if (!strcmp(words[1], "closes all")) CHECK(syscall(SYS_close_range, 2u, ~0u, 0) == 0);
        CHECK(whole(memory, 16 * MIB));
        for (;;) pause();
    }
    const char *ways[] = {"replaces", "replaces at once", "closes", "closes all"};
    for (int i = 0; i < 4; i++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        pid_t daemon = fork();
        if (daemon == 0) {
            CHECK(dup2(ends[1], 2) == 2 && close(ends[0]) == 0 && close(ends[1]) == 0);
            execl("/proc/self/exe", words[0], ways[i], (char *)0);
            _exit(1);
        }
        CHECK(close(ends[1]) == 0);
        char byte;
        long heard = read(ends[0], &byte, 1);
        if (heard) printf("%s: %ld\n", ways[i], heard);
        CHECK(heard == 0 && close(ends[0]) == 0 && whole(memory, 16 * MIB));
        int status;
        CHECK(waitpid(daemon, &status, WNOHANG) == 0 && kill(daemon, SIGKILL) == 0 && waitpid(daemon, &status, 0) == daemon);
    }
    puts("done");
}
