# Listens on the socket whose path is its argument, and answers each connection with a byte.
import os
import socket
import sys

if os.path.exists(sys.argv[1]):
    os.unlink(sys.argv[1])
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
memory = bytearray(4 << 20)
while True:
    connection = listening.accept()[0]
    connection.recv(1)
    connection.send(b'x')
    connection.close()
