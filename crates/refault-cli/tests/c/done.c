/* Prints "done". */
#include <stdio.h>

int main(void) {
    puts("done");
    return 0;
}
