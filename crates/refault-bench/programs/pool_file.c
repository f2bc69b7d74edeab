/* The file that the compiler of `refault-bench pool` compiles again and again: some tens of MiB and about a second.
 * PARTS is replaced by functions, each made of pool_part.c. */
#include <stdlib.h>

PARTS
