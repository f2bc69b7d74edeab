/* Prints "ready", then waits for the real-time signal SIGRTMIN + 2 and prints the value of each that comes. Another
 * signal ends it by its default action. */
#include <signal.h>
#include <stdio.h>

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    sigprocmask(SIG_BLOCK, &set, 0);
    puts("ready");
    fflush(stdout);
    for (siginfo_t info;;) {
        if (sigwaitinfo(&set, &info) > 0) {
            printf("%d ", info.si_value.sival_int);
            fflush(stdout);
        }
    }
}
