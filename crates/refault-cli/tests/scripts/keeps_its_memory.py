# Holds 7000 strings of bytes while it starts a program, forks a child that changes all of them, changes them itself
# and runs three threads that do the like. Prints "whole".
import os
import subprocess
import threading

pages = [bytes([i % 251]) * 3000 + str(i).encode() for i in range(7000)]


def whole(tail=b''):
    return all(page.endswith(str(i).encode() + tail) for i, page in enumerate(pages))


assert whole()
assert subprocess.check_output(['echo', 'hi']) == b'hi\n'
pid = os.fork()
if pid == 0:
    good = whole()
    pages = [page + b'!' for page in pages]
    os._exit(0 if good and whole(b'!') else 1)
pages = [page + b'?' for page in pages]
assert os.waitpid(pid, 0)[1] == 0, 'child'
assert whole(b'?'), 'parent'

bad = []


def work(number):
    mine = [str(number * k).encode() * 300 for k in range(4000)]
    bad.extend(k for k, words in enumerate(mine) if words != str(number * k).encode() * 300)


threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not bad
print('whole')
