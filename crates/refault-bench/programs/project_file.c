/* A file of the project that compilers are measured with. Words in capitals are replaced: the functions, each made of
 * project_part.c, their calls, and the file's number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PARTS
unsigned file_NUMBER(unsigned sum) {
CALLS
    return sum;
}
