# A member of a pool that is killed or forks as a test says: member.py SOCKET WHAT [NUMBERS]
# It joins, says "joined" when it has a grant, reports once more and says "reported". WHAT is
#   stays    it names NUMBERS as its processes until it is killed
#   forks    it names itself and a child, or NUMBERS in place of both; after a line comes in, the child forks one and says its number,
#            and that one stays when the child ends after the next line
#   crowds   it opens NUMBERS more connections that say nothing, and says "crowded"
import json, os, resource, socket, sys, time


def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    return connection


def say(message):
    connection.sendall(json.dumps(message).encode() + b"\n")


def report(processes):
    figures = {"turn": turn, "limit": grant, "charge": grant, "processes": processes}
    say({"report": figures})


def tell(words):
    print(words, flush=True)


connection = connect()
what, numbers = sys.argv[2], [int(number) for number in sys.argv[3:]]
say({"join": {"program": "member", "wishes": {"min": 32 << 20}, "has": 0}})
answer = json.loads(connection.makefile().readline())["grant"]
grant, turn = answer["bytes"], answer["turn"]
tell("joined")
if what == "stays":
    report(numbers)
    tell("reported")
elif what == "forks":
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        connection.close()
        os.close(theirs)
        if not os.read(ours, 1):
            time.sleep(100)  # the first has ended
        grandchild = os.fork()
        if grandchild == 0:
            time.sleep(100)
            os._exit(0)
        tell(grandchild)
        time.sleep(100)
        os._exit(0)
    report(numbers or [os.getpid(), child])
    tell(child)
    sys.stdin.readline()
    os.write(theirs, b"x")
elif what == "crowds":
    report([os.getpid()])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = [connect() for _ in range(numbers[0])]
    tell("crowded")
time.sleep(100)
