"""Has 32 MiB of shared memory, touched through three mappings of it; says so, and waits for the end of its input."""

import mmap
import os
import sys

SIZE = 32 << 20
memory = os.memfd_create("thrice")
os.ftruncate(memory, SIZE)
mappings = [mmap.mmap(memory, SIZE) for _ in range(3)]
for mapping in mappings:
    for page in range(0, SIZE, mmap.PAGESIZE):
        mapping[page] = 1
print("ready", flush=True)
sys.stdin.read()
