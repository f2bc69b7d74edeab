# Changes the user to one that cannot open the statistics, and executes a program that prints the user and whether two
# copies of 24 MiB are the same.
import os

os.setgroups([])
os.setgid(65534)
os.setuid(65534)
script = 'import os; b = bytearray(os.urandom(24 << 20)); c = bytes(b); print(os.getuid(), b == c)'
os.execv('/usr/bin/python3', ['python3', '-c', script])
