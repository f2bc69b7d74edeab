/* Loads a locale, has it evicted by a larger block, starts a thread, which reads the locale's tables, and forks. The
 * child must end with the code 7 that says that it saw the block. Prints "done". */
#include "program.h"
#include <locale.h>

static void *nothing(void *argument) {
    return argument;
}

int main(void) {
    CHECK(setlocale(LC_ALL, "C.UTF-8"));
    for (int round = 0; round < 3; round++) {
        unsigned long bytes = 16 * MIB;
        unsigned char *block = malloc(bytes);
        fill(block, bytes);
        pthread_t thread;
        CHECK(!pthread_create(&thread, 0, nothing, 0));
        pthread_join(thread, 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) _exit(whole(block, bytes) ? 7 : 8);
        int status;
        waitpid(pid, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
            printf("the child ended with %x\n", status);
            return 1;
        }
        free(block);
    }
    puts("done");
    return 0;
}
