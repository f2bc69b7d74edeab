/* Calls that something comes in between. */
#include "probe.h"

static const char *mode;
static volatile int handled;
static void handler(int number) { (void)number; handled++; }
int main(int n, char **v) {
    mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); alarm(50);
    MODE("signalled") {
        /* Another process sends this thread SIGSYS while it makes calls, each of which must be made. */
        struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART}; sigaction(SIGSYS, &a, 0);
        int ends[2]; if (pipe(ends)) return 1;
        pid_t self = getpid(), thread = syscall(SYS_gettid), sender = fork();
        if (!sender) for (;;) if (syscall(SYS_tgkill, self, thread, SIGSYS)) _exit(0);
        long wrong = 0;
        for (long i = 0; i < 30000 || (handled < 1000 && i < 3000000); i++) {
            long back = ~i;
            wrong += write(ends[1], &i, sizeof i) != sizeof i; wrong += read(ends[0], &back, sizeof back) != sizeof back; wrong += back != i;
        }
        kill(sender, SIGKILL); waitpid(sender, 0, 0);
        printf("signals came %d, calls went wrong %ld\n", handled >= 1000, wrong);
    }
    return 0;
}
