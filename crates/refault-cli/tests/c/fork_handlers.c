/* A library, opened by fork_after_dlclose.c, that counts how often its fork handlers are called. Prints nothing. */
#include <pthread.h>

int called;

static void handler(void) {
    called++;
}

__attribute__((constructor)) static void start(void) {
    pthread_atfork(handler, handler, handler);
}
