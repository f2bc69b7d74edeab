# Fills MIB MiB, prints "ready" and reads the first READ of them again and again, for SECONDS; then prints "done".
# Arguments: MIB READ SECONDS.
import sys
import time

held, read = (int(mib) << 20 for mib in sys.argv[1:3])
heap = bytearray(b'x' * held)
print('ready', flush=True)
begun = time.monotonic()
while time.monotonic() - begun < float(sys.argv[3]):
    heap[:read].count(b'y')
    time.sleep(0.02)
print('done')
