# Goes twice over 24 MiB and prints 1; then a child that was given no descriptors does the same.
import subprocess
import sys

memory = bytearray(24 << 20)
for n in range(2):
    for at in range(0, len(memory), 4096):
        memory[at] = n
print(memory[0], flush=True)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, '-c', open('program.py').read(), 'child'], close_fds=True)
