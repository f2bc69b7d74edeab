/* A call that fails in a thread, and another one that fails while the thread ends, in a destructor of the thread's own
 * data: both must return. Prints what they answer. */
#include <refault.h>

#include <pthread.h>
#include <stdio.h>

static pthread_key_t key;

static void fail(const char *when) {
    refault_status status = refault_file_close(12345);
    if (!refault_error_message()) puts("no message");
    printf("%s: %s\n", when, status == REFAULT_BAD_HANDLE ? "bad handle" : "another status");
    fflush(stdout);
}

static void destructor(void *value) {
    (void)value;
    fail("thread's end");
}

static void *run(void *argument) {
    fail("thread");
    pthread_setspecific(key, &key);
    return argument;
}

int main(void) {
    pthread_t thread;
    if (pthread_key_create(&key, destructor) || pthread_create(&thread, 0, run, 0) || pthread_join(thread, 0)) return 1;
    puts("joined");
    return 0;
}
