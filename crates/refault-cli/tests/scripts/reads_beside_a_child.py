# Fills 40 MiB with what does not compress, forks, and reads all of it four times in both processes. Prints nothing.
import mmap
import os
import random

random.seed(1)
contents = random.randbytes(4096)
memory = mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(memory), 4096):
    memory[at:at + 4096] = contents
child = os.fork()
for n in range(4):
    for at in range(0, len(memory), 4096):
        memory[at]
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
