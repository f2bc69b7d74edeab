# Values set and read back over a socket, a third of them twice.
set -e
home=$(mktemp -d)
memcached -u "$(id -un)" -m 200 -s "$home/s" -t 2 &
server=$!
for _ in $(seq 100); do [ -S "$home/s" ] && break; sleep 0.1; done
python3 - "$home/s" <<'P'
import hashlib, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
lines = link.makefile("rb")
count = 30000
value = lambda i: (b"%d " % i) * (1000 // (len(str(i)) + 1))
for start in range(0, count, 500):
    link.sendall(b"".join(b"set k%d 0 0 %d noreply\r\n%s\r\n" % (i, len(value(i)), value(i)) for i in range(start, start + 500)))
digest = hashlib.md5()
for i in range(count):
    key = i * 7919 % count
    link.sendall(b"get k%d\r\n" % key)
    head = lines.readline().split()
    body = lines.read(int(head[3]) + 2)
    assert body[:-2] == value(key), key
    digest.update(body)
    lines.readline()
print(digest.hexdigest())
P
kill $server
wait $server || true
rm -rf "$home"
