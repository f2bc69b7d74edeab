# Prints "runs", then pages for ever, and forks children that page a little and end.
import os

memory = bytearray(24 << 20)
print('runs', flush=True)
while True:
    for at in range(0, len(memory), 4096):
        memory[at] = (memory[at] + 1) & 255
    child = os.fork()
    if child == 0:
        for at in range(0, len(memory), 4096):
            memory[at] = 0
        os._exit(0)
    os.waitpid(child, 0)
