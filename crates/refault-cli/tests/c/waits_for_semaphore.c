/* A thread waits for a semaphore in memory that is evicted meanwhile, and gets signals that restart its call. It must
 * not pass before the semaphore is posted. Prints "done". */
#include "program.h"
#include <semaphore.h>

static sem_t *semaphore;
static volatile int handled, passed;

static void count(int number) {
    handled++;
}

static void *waits(void *argument) {
    CHECK(!sem_wait(semaphore));
    passed = 1;
    return 0;
}

int main(void) {
    semaphore = (sem_t *)map(MIB);
    CHECK(!sem_init(semaphore, 0, 0));
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    pthread_t thread;
    CHECK(!pthread_create(&thread, 0, waits, 0));
    unsigned char *memory = map(16 * MIB);
    for (int round = 0; round < 3; round++) {
        usleep(30000);
        fill(memory, 16 * MIB);
        int before = handled;
        pthread_kill(thread, SIGUSR1);
        for (int tries = 0; tries < 1000 && handled == before; tries++) usleep(1000);
        CHECK(handled == before + 1);
    }
    CHECK(!passed);
    CHECK(!sem_post(semaphore));
    CHECK(!pthread_join(thread, 0));
    CHECK(passed);
    CHECK(whole(memory, 16 * MIB));
    puts("done");
    return 0;
}
