# Forks twelve generations, each of which is the child of the one before. Each prints how many descriptors it has.
import os

memory = bytearray(16 << 20)
for generation in range(12):
    if os.fork():
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    print(len(os.listdir('/proc/self/fd')), flush=True)
