"""Six programs in memory cgroups of version 1, each with a load whose size can be changed, for host_real.py."""

import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/unified")
MIB = 1 << 20
READER = '''
import os, random, sys, threading, time
path, hot = sys.argv[1], float(sys.argv[2])
size = os.path.getsize(path)
file = os.open(path, os.O_RDONLY)
def listen():
    global hot
    for line in sys.stdin:
        word, value = line.split()
        if word == "hot":
            hot = float(value)
        else:
            for at in range(0, size, 1 << 18):
                os.pread(file, 1 << 18, at)
                time.sleep(0.004)
threading.Thread(target=listen, daemon=True).start()
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
while True:
    for _ in range(600):
        os.pread(file, 16384, random.randrange(int(size * hot)) & ~16383)
    time.sleep(0.1)
'''
SERVICE = '''
import java.util.*;
public class Service {
    static volatile double hot;
    public static void main(String[] args) throws Exception {
        hot = Double.parseDouble(args[0]);
        byte[][] all = new byte[90000][];
        for (int i = 0; i < all.length; i++) all[i] = new byte[1000];
        Thread listener = new Thread(() -> {
            Scanner in = new Scanner(System.in);
            while (in.hasNext()) if (in.next().equals("hot")) hot = Double.parseDouble(in.next());
        });
        listener.setDaemon(true);
        listener.start();
        Random random = new Random(7);
        long sum = 0;
        for (;;) {
            int most = (int) (all.length * hot);
            for (int i = 0; i < 20000; i++) sum += all[random.nextInt(most)][i % 1000];
            for (int i = 0; i < 40; i++) sum += new byte[10000].length;
            Thread.sleep(50);
            if (sum == 1) System.out.println(sum);
        }
    }
}
'''


def number(path: Path, field: str = "") -> int:
    for line in path.read_text().splitlines():
        if not field or line.startswith(field + " "):
            return int(line.split()[-1])
    return 0


class Group:
    """A memory cgroup of version 1, and one of version 2 that tells the pressure of the same processes."""

    def __init__(self, parent: str, name: str):
        self.name, self.path = name, f"/{parent}/{name}"
        self.memory, self.unified = V1 / parent / name, V2 / parent / name
        for directory in (self.memory, self.unified):
            directory.mkdir(parents=True)

    def start(self, *command: str, **options) -> subprocess.Popen:
        shell = f'echo $$ > {self.memory}/cgroup.procs; echo $$ > {self.unified}/cgroup.procs; exec "$@"'
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.DEVNULL)
        return subprocess.Popen(["sh", "-c", shell, "sh", *command], **options)

    def usage(self) -> int:
        return number(self.memory / "memory.usage_in_bytes")

    def limit(self, limit: int) -> None:
        (self.memory / "memory.limit_in_bytes").write_text(str(limit))

    def soft(self) -> int:
        return number(self.memory / "memory.soft_limit_in_bytes")

    def kills(self) -> int:
        return number(self.memory / "memory.oom_control", "oom_kill")

    def lacks(self) -> bool:
        return number(self.memory / "memory.oom_control", "under_oom") > 0

    def stalled(self) -> float:
        """Seconds in which something of the group waited for memory, or for the disk if that was longer."""
        def total(file: str) -> float:
            return int((self.unified / file).read_text().split("total=")[1].split()[0]) / 1e6
        return max(total("memory.pressure"), total("io.pressure"))

    def ran(self) -> float:
        return number(self.unified / "cpu.stat", "usage_usec") / 1e6

    def refaults(self) -> int:
        return number(self.memory / "memory.stat", "total_workingset_refault_file") + number(
            self.memory / "memory.stat", "total_workingset_refault_anon")

    def end(self) -> None:
        for _ in range(100):
            for pid in (self.memory / "cgroup.procs").read_text().split():
                try:
                    os.kill(int(pid), 9)
                except ProcessLookupError:
                    pass
            try:
                for directory in (self.memory, self.unified):
                    if directory.exists():
                        directory.rmdir()
                return
            except OSError:
                time.sleep(0.1)


class Program:
    """A program in its group; `hot` is the share of what it holds that its load asks for."""

    def __init__(self, parent: str, name: str, scratch: Path):
        self.group, self.scratch, self.hot, self.ends = Group(parent, name), scratch, 0.3, False
        self.errors = 0
        self.begin()

    def begin(self) -> None: ...
    def tick(self) -> None: ...

    def jobs(self) -> int | None:
        """How many it has done, of one that does one after the other."""

    def burst(self) -> None: ...

    def load(self, hot: float) -> None:
        self.hot = hot

    def drive(self) -> None:
        while not self.ends:
            try:
                self.tick()
            except OSError:
                self.errors += 1
            time.sleep(0.1)

    def run(self) -> None:
        threading.Thread(target=self.drive, daemon=True).start()


class Server(Program):
    """One that is asked by a Unix socket, many questions at once."""
    keys, asks = 0, 0

    def connect(self, path: Path) -> None:
        for _ in range(100):
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(str(path))
                self.socket.settimeout(120)
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{path}: nothing answers")

    def ask(self, text: bytes, answers: int, line_ends: int) -> None:
        sender = threading.Thread(target=self.socket.sendall, args=(text,))
        sender.start()
        left = answers * line_ends
        while left > 0:
            part = self.socket.recv(1 << 16)
            if not part:
                raise ConnectionError
            left -= part.count(b"\r\n")
        sender.join()

    def tick(self) -> None:
        most = max(1, int(self.keys * self.hot))
        self.ask(*self.question([random.randrange(most) for _ in range(self.asks)]))


class Redis(Server):
    keys, asks = 24_000, 1000

    def begin(self) -> None:
        path = self.scratch / "redis"
        self.group.start("redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no")
        self.connect(path)
        for first in range(0, self.keys, 500):
            one = b"*3\r\n$3\r\nSET\r\n$8\r\n%08d\r\n$3900\r\n" + b"v" * 3900 + b"\r\n"
            self.ask(b"".join(one % key for key in range(first, first + 500)), 500, 1)

    def question(self, keys):
        one = b"*4\r\n$8\r\nGETRANGE\r\n$8\r\n%08d\r\n$1\r\n0\r\n$1\r\n9\r\n"
        return b"".join(one % key for key in keys), len(keys), 2


class Memcached(Server):
    keys, asks = 36_000, 1000

    def begin(self) -> None:
        path = self.scratch / "memcached"
        self.group.start("memcached", "-u", "root", "-m", "128", "-s", str(path))
        self.connect(path)
        for first in range(0, self.keys, 500):
            self.ask(b"".join(b"set %08d 0 0 2000\r\n" % key + b"v" * 2000 + b"\r\n" for key in range(first, first + 500)), 500, 1)

    def question(self, keys):
        return b"".join(b"mg %08d t\r\n" % key for key in keys), len(keys), 1


class Postgres(Program):
    bench = None

    def begin(self) -> None:
        home = self.scratch / "postgres"
        home.mkdir()
        subprocess.run(["chown", "postgres", str(home)], check=True)
        self.as_user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        subprocess.run([*self.as_user, "initdb", "-D", str(home / "data"), "-A", "trust"], **quiet)
        settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={home}", "-c", "shared_buffers=32MB", "-c", "autovacuum=off"]
        self.group.start(*self.as_user, "postgres", "-D", str(home / "data"), *settings, cwd="/")
        self.to = ["-h", str(home), "-U", "postgres", "postgres"]
        for _ in range(100):
            if subprocess.run(["psql", *self.to, "-c", "select 1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.1)
        fill = ("create table t as select n as id, repeat(md5(n::text), 28) as pad from generate_series(1, 250000) n;"
                "alter table t add primary key (id); vacuum analyze t; checkpoint")
        for one in fill.split(";"):
            subprocess.run(["psql", *self.to, "-c", one], **quiet)
        self.file = self.scratch / "question.sql"
        self.file.write_text("\\set id random(1, :most)\nselect sum(length(pad)) from t where id between :id and :id + 20;\n")
        self.load(self.hot)

    def load(self, hot: float) -> None:
        self.hot = hot
        if self.bench:
            self.bench.kill()
            self.bench.wait()
        command = ["pgbench", "-n", "-M", "prepared", "-c", "2", "-R", "200", "-T", "90000", "-D", f"most={int(250000 * hot)}", "-f", str(self.file)]
        self.bench = subprocess.Popen([*command, *self.to], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def tick(self) -> None:
        if self.bench.poll() is not None and not self.ends:
            self.errors += 1
            self.load(self.hot)

    def burst(self) -> None:
        subprocess.run(["psql", *self.to, "-c", "select count(pad) from t"], stdout=subprocess.DEVNULL)


class Compile(Program):
    def begin(self) -> None:
        (self.scratch / "done").touch()
        loop = 'while :; do gcc -O1 -c "$0/now.c" -o "$0/now.o" || echo x >> "$0/failed"; echo x >> "$0/done"; sleep 1; done'
        self.load(self.hot)
        self.group.start("sh", "-c", loop, str(self.scratch))

    def load(self, hot: float) -> None:
        self.hot = hot
        body = "{ int s = a; for (int i = 0; i < b; i++) { s ^= s << (i & 7); if (s % 3 == i) s += a * i; else s -= b; } return s; }"
        text = "".join(f"int f{n}(int a, int b) {body}\n" for n in range(int(2500 * hot)))
        new = self.scratch / "new.c"
        new.write_text(text)
        new.rename(self.scratch / "now.c")

    def jobs(self) -> int:
        return (self.scratch / "done").stat().st_size // 2

    def tick(self) -> None:
        failed = self.scratch / "failed"
        if failed.exists():
            self.errors += 1
            failed.unlink()


class Told(Program):
    """One that reads its load from its input."""

    def load(self, hot: float) -> None:
        self.hot = hot
        self.tell(f"hot {hot}")

    def tell(self, text: str) -> None:
        self.child.stdin.write((text + "\n").encode())
        self.child.stdin.flush()


class Java(Told):
    def begin(self) -> None:
        (self.scratch / "Service.java").write_text(SERVICE)
        subprocess.run(["javac", "-d", str(self.scratch), str(self.scratch / "Service.java")], check=True)
        self.child = self.group.start("java", "-Xmx192m", "-XX:+UseSerialGC", "-cp", str(self.scratch), "Service", str(self.hot), stdin=subprocess.PIPE)


class Reader(Told):
    def begin(self) -> None:
        path = self.scratch / "read"
        with open(path, "wb") as file:
            for _ in range(320):
                file.write(os.urandom(MIB))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.child = self.group.start(sys.executable, "-c", READER, str(path), str(self.hot), stdin=subprocess.PIPE)

    def burst(self) -> None:
        self.tell("stream 1")


KINDS = {"redis": Redis, "postgres": Postgres, "memcached": Memcached, "compile": Compile, "java": Java, "reader": Reader}
