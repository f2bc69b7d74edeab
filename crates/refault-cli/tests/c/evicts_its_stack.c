/* Three threads and a coroutine push out the stack on which they run, before and after calls that need the pager.
 * Prints "done". */
#include "program.h"
#include <ucontext.h>

static unsigned long stack_bytes = 1 << 18;

static void leave_and_come_back(unsigned char *stack) {
    for (int round = 0; round < 300; round++) {
        CHECK(!madvise(stack, stack_bytes, MADV_PAGEOUT));
        unsigned char *memory = map(MIB);
        memory[round * 1000] = round;
        CHECK(memory[round * 1000] == (unsigned char)round);
        munmap(memory, MIB);
        CHECK(!madvise(stack, stack_bytes, MADV_PAGEOUT));
        free(malloc(200 * round));
        FILE *file = fopen("/dev/null", "w");
        CHECK(file);
        fclose(file);
        CHECK(!madvise(stack, stack_bytes, MADV_PAGEOUT));
        unsigned char *moved = map(MIB);
        moved = mremap(moved, MIB, 3 * MIB, MREMAP_MAYMOVE);
        CHECK(moved != MAP_FAILED);
        munmap(moved, 3 * MIB);
    }
}

static void *thread(void *stack) {
    leave_and_come_back(stack);
    return stack;
}

static ucontext_t main_context, coroutine_context;
static unsigned char *coroutine_stack;
static int ended;

static void coroutine(void) {
    leave_and_come_back(coroutine_stack);
    ended = 1;
}

int main(void) {
    pthread_t threads[3];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    for (int at = 0; at < 3; at++) {
        unsigned char *stack = aligned_alloc(4096, stack_bytes);
        pthread_attr_setstack(&attributes, stack, stack_bytes);
        CHECK(!pthread_create(threads + at, &attributes, thread, stack));
    }
    getcontext(&coroutine_context);
    coroutine_stack = aligned_alloc(4096, stack_bytes);
    coroutine_context.uc_stack.ss_sp = coroutine_stack;
    coroutine_context.uc_stack.ss_size = stack_bytes;
    coroutine_context.uc_link = &main_context;
    makecontext(&coroutine_context, coroutine, 0);
    CHECK(!swapcontext(&main_context, &coroutine_context));
    CHECK(ended);
    for (int at = 0; at < 3; at++) pthread_join(threads[at], 0);
    puts("done");
    return 0;
}
