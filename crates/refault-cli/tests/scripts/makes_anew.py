# Makes 12 MiB that do not compress eight times, goes twice through them, and frees them. Prints nothing.
import random

chosen = random.Random(1)
for _ in range(8):
    memory = bytearray(chosen.randbytes(1 << 20) * 12)
    for _ in range(2):
        for at in range(0, len(memory), 4096):
            memory[at] = (memory[at] + 1) & 255
    del memory
