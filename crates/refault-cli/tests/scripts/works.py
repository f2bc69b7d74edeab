# Goes through 16 MiB, a pass each tenth of a second, for the number of seconds that its argument says. Prints nothing.
import sys
import time

end = time.monotonic() + float(sys.argv[1])
memory = bytearray(16 << 20)
while (now := time.monotonic()) < end:
    for at in range(0, len(memory), 4096):
        memory[at] = (memory[at] + 1) & 255
    time.sleep(min(0.1, max(0, end - now)))
