#!/usr/bin/env python3
"""What proactive reclaim saves and what it costs: memcached, redis, postgres and a compiler, each four ways.

Alone; with `refault reclaim --pid` and `--cgroup` (the kernel's memory.reclaim, or on version 1 its limit, lowered and
put back) driven by the same pressure; and as a member of a pool that squeezes by that pressure. Memory is what the
program's memory cgroup is charged, and what zram takes, so it is measured from outside and alike. Programs that run only when
nothing else does keep the processors awake: on a virtual machine waking one takes longer than a read. Needs root, a memory
cgroup, zram, and refault in PATH or in REFAULT; what it makes it takes away.

    scripts/dev/proactive.py [--seconds 100] [--counted 20] [--pressure 0.1%] [--series FILE] [PROGRAM ...]

memcached runs without its crawler, memcached-crawls with it. --series appends a CSV line each quarter of a second from the
load's first on: program, way, seconds, bytes, what was done so far.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

REFAULT = os.environ.get("REFAULT", "refault")
VALUES, BYTES = 200_000, 1000
DEVIATION = 0.05
#: Values that are asked for at a time.
AT_ONCE = 32


def write(path, text):
    with open(path, "w") as file:
        file.write(str(text))


def read(path):
    with open(path) as file:
        return file.read()


class Zram:
    def __init__(self):
        self.id = read("/sys/class/zram-control/hot_add").strip()
        write(f"/sys/block/zram{self.id}/comp_algorithm", "lz4")
        write(f"/sys/block/zram{self.id}/disksize", 2 << 30)
        subprocess.run(["mkswap", f"/dev/zram{self.id}"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", "-p", "32000", f"/dev/zram{self.id}"], check=True)

    def bytes(self):
        return int(read(f"/sys/block/zram{self.id}/mm_stat").split()[2])

    def close(self):
        subprocess.run(["swapoff", f"/dev/zram{self.id}"])
        write(f"/sys/block/zram{self.id}/reset", 1)
        write("/sys/class/zram-control/hot_remove", self.id)


class Groups:
    """A memory cgroup, and on version 1 one of version 2 beside it, which pressure is kept of."""

    def __init__(self):
        self.places = []
        name = f"refault-proactive-{os.getpid()}"
        v1 = os.path.isdir("/sys/fs/cgroup/memory")
        self.memory = f"/sys/fs/cgroup/{'memory/' if v1 else ''}{name}"
        self.usage = self.memory + ("/memory.usage_in_bytes" if v1 else "/memory.current")
        for place in [self.memory] + (["/sys/fs/cgroup/unified/" + name] if v1 else []):
            os.mkdir(place)
            self.places.append(place)

    def bytes(self):
        return int(read(self.usage))

    def start(self, command, **options):
        enter = "".join(f"echo $$ > {place}/cgroup.procs; " for place in self.places)
        return subprocess.Popen(["sh", "-c", enter + 'exec "$@"', "sh", *command], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, start_new_session=True, **options)

    def close(self):
        for place in self.places:
            for _ in range(100):
                for pid in read(place + "/cgroup.procs").split():
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                try:
                    os.rmdir(place)
                    break
                except OSError:
                    time.sleep(0.1)


def value(key):
    made = random.Random(key)
    return made.randbytes(BYTES // 2) + b"x" * (BYTES - BYTES // 2)


def keys():
    made = random.Random(7)
    while True:
        key = int(made.gauss(VALUES / 2, VALUES * DEVIATION))
        if 0 <= key < VALUES:
            yield key


class Server:
    """memcached or redis: one client asks as fast as it is answered, for some values at a time, so that what is measured is not how
    fast this machine wakes two processes."""

    unit = "reads per second"

    def __init__(self, kind, directory):
        self.kind, _, crawls = kind.partition("-")
        self.crawls, self.path = bool(crawls), directory + "/socket"
        self.count = 0

    def command(self):
        if self.kind == "memcached":
            # Its crawler reads every item once a minute or so, and all that was saved comes back.
            crawler = [] if self.crawls else ["-o", "no_lru_crawler"]
            return ["memcached", "-u", "root", "-U", "0", "-p", "0", "-m", "512", "-t", "1", "-s", self.path, *crawler]
        return ["redis-server", "--save", "", "--port", "0", "--unixsocket", self.path]

    def connect(self):
        for _ in range(200):
            try:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(self.path)
                return connection
            except OSError:
                time.sleep(0.05)
        sys.exit(f"{self.kind} does not answer")

    def fill(self):
        connection = self.connect()
        for first in range(0, VALUES, 500):
            if self.kind == "memcached":
                parts = (b"set k%d 0 0 %d noreply\r\n%s\r\n" % (key, BYTES, value(key)) for key in range(first, first + 500))
                connection.sendall(b"".join(parts))
            else:
                sets = []
                for key in range(first, first + 500):
                    name = b"k%d" % key
                    sets.append(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(name), name, BYTES, value(key)))
                connection.sendall(b"".join(sets))
                answers = 0
                while answers < 500:
                    answers += connection.recv(1 << 16).count(b"+OK")
        connection.close()

    def load(self, stop):
        connection = self.connect()
        file = connection.makefile("rb")
        of = keys()
        while not stop.is_set():
            some = [next(of) for _ in range(AT_ONCE)]
            if self.kind == "memcached":
                connection.sendall(b"".join(b"get k%d\r\n" % key for key in some))
                rest = BYTES + 7
            else:
                names = [b"k%d" % key for key in some]
                connection.sendall(b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(name), name) for name in names))
                rest = BYTES + 2
            for key in some:
                head, body = file.readline(), file.read(rest)
                if not head.startswith((b"VALUE", b"$")) or (key % 64 == 0 and body[:BYTES] != value(key)):
                    sys.exit(f"{self.kind} gave a wrong value")
            self.count += AT_ONCE


class Postgres:
    unit = "queries per second"

    def __init__(self, directory):
        self.directory, self.count = directory + "/data", 0
        places = ["/usr/lib/postgresql/" + name + "/bin" for name in os.listdir("/usr/lib/postgresql")]
        self.bin = places[0]
        os.chmod(directory, 0o755)
        os.mkdir(self.directory)
        shutil.chown(self.directory, "postgres")
        self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        subprocess.run([*self.user, self.bin + "/initdb", "-D", self.directory], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        os.mkdir(self.directory + "/socket")
        shutil.chown(self.directory + "/socket", "postgres")

    def command(self):
        return [*self.user, self.bin + "/postgres", "-D", self.directory, "-k", self.directory + "/socket",
                "-c", "listen_addresses=", "-c", "shared_buffers=160MB", "-c", "fsync=off"]

    def bench(self, *options, **more):
        return [*self.user, self.bin + "/pgbench", "-h", self.directory + "/socket", *options, "postgres"]

    def fill(self):
        for _ in range(100):
            made = subprocess.run(self.bench("-i", "-s", "12", "-q"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if made.returncode == 0:
                return
            time.sleep(0.2)
        sys.exit("postgres does not answer")

    def load(self, stop):
        script = self.directory + "/script"
        write(script, "\\set aid random_gaussian(1, 1200000, 10)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n")
        os.chmod(script, 0o644)
        bench = subprocess.Popen(self.bench("-n", "-f", script, "-P", "1", "-T", "3600"), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        for line in bench.stderr:
            if stop.is_set():
                break
            if line.startswith("progress:"):
                self.count += float(line.split(" s, ")[1].split()[0])
        bench.kill()
        bench.wait()


class Compiler:
    unit = "files per minute"

    def __init__(self, directory):
        self.directory, self.count = directory, 0
        body = "".join(
            f"unsigned f{n}(unsigned a, unsigned *t) {{ unsigned i, s = a * {2 * n + 3}u; for (i = 1; i < 64; i++) "
            f"{{ t[i] ^= s >> (i % 7); if (t[i] % {n % 29 + 2}u < t[i - 1] % 11u) s += t[i] * a; else s ^= t[i - 1]; }} return s; }}\n"
            for n in range(400))
        write(directory + "/a.c", body)

    def command(self):
        script = 'while cc -O2 -c -o "$0/a.o" "$0/a.c"; do echo >> "$0/done"; done'
        return ["sh", "-c", script, self.directory]

    def fill(self):
        pass

    def load(self, stop):
        while not stop.is_set():
            done = self.directory + "/done"
            self.count = os.path.getsize(done) if os.path.exists(done) else 0
            time.sleep(0.1)


class Awake:
    """No processor sleeps meanwhile."""

    def __enter__(self):
        spin = [sys.executable, "-c", "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"]
        self.spinning = [subprocess.Popen(spin) for _ in range(os.cpu_count())]

    def __exit__(self, *_):
        for process in self.spinning:
            process.kill()
            process.wait()


def program(name, directory):
    return {"postgres": Postgres, "compiler": Compiler}[name](directory) if name in ("postgres", "compiler") \
        else Server(name, directory)


def run(name, way, args):
    """Rate, bytes and swing of the memory in the counted seconds."""
    zram, groups = Zram(), Groups()
    helpers, stop, started = [], threading.Event(), None
    with tempfile.TemporaryDirectory() as directory:
        try:
            subject = program(name, directory)
            environment = dict(os.environ, XDG_RUNTIME_DIR=directory)
            command = subject.command()
            if way == "pool":
                helpers.append(subprocess.Popen([REFAULT, "pool", "--memory", "1G", "--pressure", args.pressure],
                                                env=environment, stderr=subprocess.DEVNULL))
                time.sleep(0.5)
                command = [REFAULT, "run", "--quiet", "--pool", "default", "--", *command]
            started = groups.start(command, env=environment)
            subject.fill()
            thread = threading.Thread(target=subject.load, args=(stop,), daemon=True)
            thread.start()
            if way in ("pid", "cgroup"):
                target = ["--pid", str(started.pid)] if way == "pid" else ["--cgroup", groups.memory]
                helpers.append(subprocess.Popen([REFAULT, "reclaim", *target, "--pressure", args.pressure],
                                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            started_at = time.monotonic()

            def sample(seconds):
                """The memory each quarter of a second, for `seconds`."""
                begun, memory = time.monotonic(), []
                while time.monotonic() - begun < seconds:
                    memory.append(groups.bytes() + zram.bytes())
                    if args.series:
                        at = time.monotonic() - started_at
                        args.series.write(f"{name},{way},{at:.2f},{memory[-1]},{subject.count:.0f}\n")
                        args.series.flush()
                    time.sleep(0.25)
                return memory, time.monotonic() - begun

            sample(args.seconds if way != "alone" else min(args.seconds, 20))
            before = subject.count
            memory, seconds = sample(args.counted)
            rate = (subject.count - before) / seconds
            mean = sum(memory) / len(memory)
            return rate, mean, (max(memory) - min(memory)) / 2 / mean
        finally:
            stop.set()
            for helper in helpers:
                helper.send_signal(signal.SIGINT)
                helper.wait()
            groups.close()
            if started:
                started.wait()
            zram.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", nargs="*", default=["memcached", "redis", "postgres", "compiler"])
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--counted", type=float, default=20)
    parser.add_argument("--pressure", default="0.1%")
    parser.add_argument("--series", type=argparse.FileType("a"))
    args = parser.parse_args()
    with Awake():
        measure(args)
    return 0


def measure(args):
    print("program    way     rate                        memory       saved   slower   swing", flush=True)
    for name in args.programs:
        alone = None
        # Of a compiler the processes come and go, and of postgres memory is shared by several: a pid names neither.
        ways = ["alone", "pid", "cgroup", "pool"] if name not in ("postgres", "compiler") else ["alone", "cgroup", "pool"]
        for way in ways:
            rate, memory, swing = run(name, way, args)
            alone = alone or (rate, memory)
            if alone[0] == 0:
                sys.exit(f"{name} got nothing done alone: give it more time with --counted")
            minutes = 60 if name == "compiler" else 1
            unit = Compiler.unit if name == "compiler" else Postgres.unit if name == "postgres" else Server.unit
            print(f"{name:10} {way:7} {rate * minutes:9.1f} {unit:17} {memory / 2**20:6.0f} MiB  "
                  f"{100 * (1 - memory / alone[1]):6.1f} %  {100 * (1 - rate / alone[0]):6.1f} %  ±{100 * swing:.1f} %",
                  flush=True)


if __name__ == "__main__":
    sys.exit(main())
