# Goes round 24 MiB, of which a part fits, for ever. Prints nothing.
import time

memory = bytearray(24 << 20)
while True:
    for at in range(0, len(memory), 4096):
        memory[at] = (memory[at] + 1) % 256
    time.sleep(0.2)
