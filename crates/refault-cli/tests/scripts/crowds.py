# Opens many connections to a port of this machine, from as many of its addresses, and asks halves of requests, until the
# standard input ends. Arguments: port, number. Prints how many were refused with 503 within the first seconds.
import select
import socket
import sys

port, number = int(sys.argv[1]), int(sys.argv[2])
held = []
for turn in range(number):
    one = socket.socket()
    one.bind((f"127.1.{turn // 250}.{turn % 250 + 1}", 0))
    one.connect(("127.0.0.1", port))
    one.sendall(b"GET / HT")
    held.append(one)
refused, waiting = 0, set(held)
while waiting:
    ready, _, _ = select.select(list(waiting), [], [], 1)
    if not ready:
        break
    for one in ready:
        refused += one.recv(4096).startswith(b"HTTP/1.1 503 ")
        waiting.discard(one)
print(refused, flush=True)
sys.stdin.read()
