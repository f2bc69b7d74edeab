/* The main file of the project that compilers are measured with: calls each of the others (project_file.c) and prints
 * what comes out. Words in capitals are replaced: the declarations of the files' functions, and their calls. */
#include <stdio.h>

DECLARATIONS
int main(void) {
    unsigned sum = 1;
CALLS
    printf("%u\n", sum);
    return 0;
}
