/* What threads wait on lies in memory that is pushed out while they wait. */
#include "probe.h"
#include <linux/futex.h>
#include <semaphore.h>

struct shared { pthread_mutex_t mutex; pthread_cond_t condition; int go; sem_t semaphore; pthread_rwlock_t lock; pthread_barrier_t barrier; int word; pid_t tid; };
static struct shared *s;
static const char *mode;
static volatile int handled;
static void handler(int number) { (void)number; handled++; }
static void *waits(void *x) {
    (void)x;
    MODE("condition") { pthread_mutex_lock(&s->mutex); while (!s->go) pthread_cond_wait(&s->condition, &s->mutex); pthread_mutex_unlock(&s->mutex); }
    MODE("timed") { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); t.tv_sec += 20; pthread_mutex_lock(&s->mutex); while (!s->go) pthread_cond_timedwait(&s->condition, &s->mutex, &t); pthread_mutex_unlock(&s->mutex); }
    MODE("semaphore") while (sem_wait(&s->semaphore)) ;
    MODE("lock") { pthread_rwlock_wrlock(&s->lock); pthread_rwlock_unlock(&s->lock); }
    MODE("mutex") { pthread_mutex_lock(&s->mutex); pthread_mutex_unlock(&s->mutex); }
    MODE("barrier") pthread_barrier_wait(&s->barrier);
    MODE("robust") { pthread_mutex_lock(&s->mutex); push_out(s, sizeof *s); syscall(SYS_exit, 0); }
    return 0;
}
static int thread_like(void *x) { (void)x; return 0; }
int main(int n, char **v) {
    mode = n > 1 ? v[1] : ""; setvbuf(stdout, 0, _IONBF, 0); s = (void *)map(MIB); alarm(170);
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART}; sigaction(SIGUSR1, &a, 0);
    pthread_mutexattr_t robust; pthread_mutexattr_init(&robust); MODE("robust") pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&s->mutex, &robust); pthread_cond_init(&s->condition, 0); sem_init(&s->semaphore, 0, 0); pthread_rwlock_init(&s->lock, 0); pthread_barrier_init(&s->barrier, 0, 2);
    MODE("cleared") {
        /* The kernel writes zero there and wakes when the thread ends. */
        unsigned char *stack = map(256 * KIB); s->tid = 1; push_out(s, sizeof *s);
        int t = clone(thread_like, stack + 256 * KIB, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID, 0, &s->tid, 0, &s->tid);
        for (int seen; t > 0 && (seen = __atomic_load_n(&s->tid, __ATOMIC_ACQUIRE)); ) { struct timespec w = {5, 0}; if (syscall(SYS_futex, &s->tid, FUTEX_WAIT, seen, &w, 0, 0) && errno == ETIMEDOUT) { puts("never woken"); return 1; } }
        printf("cleared %d\n", t > 0); return 0;
    }
    MODE("many") {
        /* Two threads hand a word to and fro while a third pushes it out. */
        pid_t p = fork(); if (!p) { s->word = 0; pthread_mutex_lock(&s->mutex); for (int i = 0; i < 3000; i++) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); t.tv_nsec += 20000; if (t.tv_nsec > 999999999) { t.tv_sec++; t.tv_nsec -= 1000000000; } pthread_cond_timedwait(&s->condition, &s->mutex, &t); if (i % 10 == 0) madvise(s, PAGE, MADV_PAGEOUT); } puts("3000 waits"); exit(0); }
        int status; waitpid(p, &status, 0); printf("status %d\n", status); return 0;
    }
    MODE("mutex") pthread_mutex_lock(&s->mutex);
    MODE("lock") pthread_rwlock_rdlock(&s->lock);
    pthread_t t; pthread_create(&t, 0, waits, 0); usleep(100000); push_out(s, sizeof *s);
    MODE("robust") { usleep(200000); printf("owner died: %d\n", pthread_mutex_lock(&s->mutex) == EOWNERDEAD); return 0; }
    /* Each is over before the next: two that wait are one. */
    for (int i = 0; i < 3; i++) { pthread_kill(t, SIGUSR1); while (handled == i) usleep(1000); madvise(s, PAGE, MADV_PAGEOUT); }
    usleep(50000); push_out(s, sizeof *s);
    MODE("condition") { pthread_mutex_lock(&s->mutex); s->go = 1; pthread_cond_signal(&s->condition); pthread_mutex_unlock(&s->mutex); }
    MODE("timed") { pthread_mutex_lock(&s->mutex); s->go = 1; pthread_cond_signal(&s->condition); pthread_mutex_unlock(&s->mutex); }
    MODE("semaphore") sem_post(&s->semaphore);
    MODE("lock") pthread_rwlock_unlock(&s->lock);
    MODE("mutex") pthread_mutex_unlock(&s->mutex);
    MODE("barrier") pthread_barrier_wait(&s->barrier);
    pthread_join(t, 0); printf("over, handled %d\n", handled);
    return 0;
}
