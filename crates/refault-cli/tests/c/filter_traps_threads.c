/* A process of several threads sets a filter whose refusals are signals: its handler answers them in threads and
 * children that are made afterwards too, and other signals come as ever. */
#include "program.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>

static volatile int stop, alarms;
static void answers(int number, siginfo_t *info, void *context) {
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = info->si_syscall + 1000;
}
static void counts(int number) { alarms++; }
static void *idles(void *unused) {
    while (!stop) usleep(10000);
    return 0;
}
static void *asks(void *unused) {
    int before = alarms;
    pthread_kill(pthread_self(), SIGUSR1);
    return (void *)(alarms == before + 1 ? syscall(SYS_getpgid, 0) : -1);
}

int main(int count, char **words) {
    unsigned char *memory = map(16 * MIB);
    fill(memory, 16 * MIB);
    struct sigaction action = {.sa_sigaction = answers, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, 0);
    signal(SIGUSR1, counts);
    pthread_t idle, thread;
    CHECK(pthread_create(&idle, 0, idles, 0) == 0);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, count > 1 ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program) == 0);
    for (int round = 0; round < 20; round++) {
        CHECK(asks(0) == (void *)(SYS_getpgid + 1000));
        void *told;
        CHECK(pthread_create(&thread, 0, asks, 0) == 0 && pthread_join(thread, &told) == 0);
        CHECK(told == (void *)(SYS_getpgid + 1000));
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(asks(0) == (void *)(SYS_getpgid + 1000) && whole(memory, 16 * MIB) ? 0 : 1);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(whole(memory, 16 * MIB));
    stop = 1;
    pthread_join(idle, 0);
    puts("done");
}
