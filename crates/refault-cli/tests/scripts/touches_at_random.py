# Touches pages of 24 MiB, which do not compress, 40,000 times at random. Prints nothing.
import random

chosen = random.Random(1)
memory = bytearray(chosen.randbytes(1 << 20) * 24)
for _ in range(40_000):
    at = chosen.randrange(len(memory))
    memory[at] = (memory[at] + 1) & 255
