# Goes four times through 16 MiB, which do not compress to nothing. Prints nothing.
import random

random.seed(1)
memory = bytearray(random.randbytes(1 << 20) * 16)
for n in range(4):
    for at in range(0, len(memory), 4096):
        memory[at] = (memory[at] + 1) & 255
