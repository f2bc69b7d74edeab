# A debugger that runs a program to a break point, and a tracer that counts its calls.
set -e
home=$(mktemp -d)
cd "$home"
printf '#include <stdio.h>\n#include <stdlib.h>\nint square(int x) { return x * x; }\nint main(void) { int *p = malloc(400000); for (int i = 0; i < 100000; i++) p[i] = square(i %% 100); printf("%%d\\n", p[99999]); free(p); return 7; }\n' >p.c
gcc -g -O0 -o p p.c
gdb -q -batch -nx -ex 'break square if x == 50' -ex run -ex 'print x * 2' -ex 'bt' -ex delete -ex continue ./p 2>/dev/null | grep -o '^\$1 = .*\|main ()\|exited with code .*'
strace -f -o trace ./p || echo "status $?"
grep -c '^[0-9]* *write(1' trace
rm -rf "$home"
