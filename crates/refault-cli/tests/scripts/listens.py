# Listens on the socket whose path is its first argument, serves nothing, and does what the second argument says.
import os
import socket
import sys
import time

if os.path.exists(sys.argv[1]):
    os.unlink(sys.argv[1])
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
exec(sys.argv[2])
