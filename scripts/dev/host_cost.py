#!/usr/bin/env python3
"""What `refault host` itself takes: processor time, memory and history, for many groups of this machine; or time, for files.

    scripts/dev/host_cost.py [--refault target/release/refault] [--groups 200] [--processes 1] [--gib 0] [--minutes 10]
    scripts/dev/host_cost.py --files 1000000

Makes a memory cgroup with this many below it. Each has this many processes, which share the memory evenly, of small
pages, and access a tenth of it per second. Then the command looks at them, with a history and a report each minute, and
nothing else of the host. Printed are its processor time, as the kernel counts it, its most resident memory, the size of
the history, and what one walk of the page tables takes.

With --files it makes an ext4 of this many files of 100 bytes in an image, a thousand to a directory, and lets `refault host
--files` look at them: first as they are mounted, then again. Run as root.
"""

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOTS = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
MIB = 1 << 20
MADV_NOHUGEPAGE = 15


def program(share: int, number: int) -> None:
    """Holds `share` bytes in small pages, and accesses a tenth of them each second."""
    memory = mmap.mmap(-1, share) if share else None
    if memory is not None:
        memory.madvise(MADV_NOHUGEPAGE)
        for at in range(0, share, 4096):
            memory[at] = 1
    print("ready", flush=True)
    time.sleep(number % 10 / 10)
    while True:
        for at in range(0, share // 10, 4096):
            memory[at]
        time.sleep(1)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status_kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def walk_seconds(pids: list[int]) -> tuple[float, float]:
    """Processor time of clearing and of reading the accessed bits of these processes, once."""
    def timed(action) -> float:
        began = time.process_time()
        for pid in pids:
            action(pid)
        return time.process_time() - began

    clear = timed(lambda pid: Path(f"/proc/{pid}/clear_refs").write_text("1"))
    return clear, timed(lambda pid: Path(f"/proc/{pid}/smaps").read_bytes())


def start_all(parent: Path, args: argparse.Namespace) -> list[subprocess.Popen]:
    share = int(args.gib * 2**30) // (args.groups * args.processes) // 4096 * 4096
    programs = []
    for group in range(args.groups):
        directory = parent / f"kubepods-burstable-pod{group:032x}.slice"
        directory.mkdir()
        for _ in range(args.processes):
            command = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(directory / "cgroup.procs")]
            command += [sys.executable, __file__, "--program", str(share), str(len(programs))]
            programs.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            programs[-1].stdout.readline()
    return programs


def measure(parent: Path, args: argparse.Namespace, scratch: str) -> None:
    programs = start_all(parent, args)
    try:
        clear, look = walk_seconds([one.pid for one in programs])
        history = Path(scratch) / "history.sqlite"
        path = "/" + parent.name
        command = [args.refault, "host", "--group", path, "--history", str(history), "--json"]
        out = open(Path(scratch) / "out", "w+")
        host = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        began, peak, worst = time.monotonic(), 0, 0.0
        points = []
        while (passed := time.monotonic() - began) < args.minutes * 60:
            time.sleep(1)
            points.append((passed, processor_seconds(host.pid)))
            ago = next((point for point in reversed(points) if passed - point[0] >= 300), None)
            if ago:
                worst = max(worst, (points[-1][1] - ago[1]) / (passed - ago[0]))
        used, peak = processor_seconds(host.pid), status_kib(host.pid, "VmHWM")
        host.terminate()
        host.wait()
        out.seek(0)
        reports = [json.loads(line) for line in out]
        wal = Path(str(history) + "-wal")
        size = history.stat().st_size + (wal.stat().st_size if wal.exists() else 0)
        said = reports[-1]
        sets = sum(1 for row in said["groups"] for one in row["working_sets"] if one)
        print(f"{args.groups} groups, {args.groups * args.processes} processes, {args.gib:g} GiB, {args.minutes:g} minutes")
        print(f"processor: {used / passed:.2%} ({used:.2f} s of {passed:.0f} s), {worst:.2%} in the worst five minutes; "
              f"the command says {said['processor_share']:.2%}")
        print(f"resident: {peak / 1024:.1f} MiB at most")
        print(f"history: {size / MIB:.2f} MiB with {len(reports)} reports")
        print(f"a walk: {clear * 1e3:.0f} ms to clear, {look * 1e3:.0f} ms to look; {sets} working sets in the last report")
    finally:
        for one in programs:
            one.kill()
            one.wait()


def files(args: argparse.Namespace, scratch: Path) -> None:
    tree, image, mount = scratch / "tree", scratch / "image", scratch / "mount"
    for number in range(args.files):
        directory = tree / f"{number // 100_000}" / f"{number // 1000 % 100}"
        if number % 1000 == 0:
            directory.mkdir(parents=True)
        (directory / f"file-{number % 1000}").write_bytes(b"x" * 100)
    subprocess.run(["truncate", "-s", str(args.files * 9000 + 2**26), image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-N", str(args.files * 11 // 10 + 1000), "-d", tree, image], check=True)
    subprocess.run(["rm", "-r", tree], check=True)
    mount.mkdir()
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        for what in ("after it was mounted", "again"):
            began = time.monotonic()
            host = subprocess.Popen([args.refault, "host", "--files", mount, "--top", "1"], stdout=subprocess.PIPE)
            said = host.stdout.read().decode().splitlines()[-1]
            _, _, used = os.wait4(host.pid, 0)
            seconds = time.monotonic() - began
            print(f"{what}: {seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of a processor, "
                  f"{used.ru_maxrss / 1024:.1f} MiB resident; {said}")
    finally:
        subprocess.run(["umount", mount], check=True)


def main() -> None:
    if sys.argv[1:2] == ["--program"]:
        program(int(sys.argv[2]), int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refault", default="target/release/refault")
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--gib", type=float, default=0)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--files", type=int)
    args = parser.parse_args()
    if args.files:
        with tempfile.TemporaryDirectory() as scratch:
            files(args, Path(scratch))
        return
    root = next(Path(root) for root in ROOTS if Path(root, "memory.stat").exists())
    parent = root / f"refault-cost-{os.getpid()}"
    parent.mkdir()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            measure(parent, args, scratch)
    finally:
        for directory in [*parent.iterdir(), parent]:
            for _ in range(100):
                if not directory.is_dir():
                    break
                try:
                    directory.rmdir()
                except OSError:
                    time.sleep(0.05)


if __name__ == "__main__":
    main()
