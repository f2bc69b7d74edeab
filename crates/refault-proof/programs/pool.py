"""Dictionaries in the processes of a pool, a thread pool, and a subprocess."""
import hashlib
import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def digest(number):
    table = {j: bytes([j % 256, number]) * 30 for j in range(60000)}
    return hashlib.md5(b"".join(table[j * 7919 % 60000] for j in range(60000))).hexdigest()


if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        print(hashlib.md5("".join(pool.map(digest, range(6))).encode()).hexdigest())
    with ThreadPoolExecutor(4) as threads:
        print(hashlib.md5("".join(threads.map(digest, range(4))).encode()).hexdigest())
    print(subprocess.run([sys.executable, "-c", "x = list(range(300000)); print(sum(x))"], capture_output=True, text=True).stdout.strip())
