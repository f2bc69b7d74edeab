/* Fills 32 MiB and forks a child that sleeps for three seconds. After the fork neither process touches the 32 MiB,
 * and while they are shared they cannot be set aside. Prints nothing. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    size_t bytes = 32 << 20;
    char *memory = malloc(bytes);
    memset(memory, 1, bytes);
    if (!fork()) {
        sleep(3);
        _exit(0);
    }
    wait(0);
    return memory[0] != 1;
}
