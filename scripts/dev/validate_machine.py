#!/usr/bin/env python3
"""Runs one access sequence for real, inside a memory cgroup (v1) with zram swap, and through the simulated machine, and
prints the counters and the memory pressure of both side by side.

Needs root, a kernel with cgroup v1 memory, zram and PSI, and the release build of refault. Adds a zram device of its own,
swaps to it only while it runs, and removes device and cgroup when it ends, also when it is interrupted.

    scripts/dev/validate_machine.py [--refault target/release/refault] [--workload SPEC] [--limit PAGES] [--runs N]
"""

import argparse
import array
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time

PAGE = 4096
GROUP = "/sys/fs/cgroup/memory/refault-validate"
WRITE = 1 << 56
PAGE_MASK = (1 << 56) - 1
COUNTERS = ["pgmajfault", "pswpin", "pswpout", "workingset_refault_anon", "workingset_activate_anon"]


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def read(path):
    with open(path) as file:
        return file.read()


def vmstat():
    return {name: int(value) for name, value in (line.split() for line in read("/proc/vmstat").splitlines())}


def pressure():
    try:
        lines = read("/proc/pressure/memory").splitlines()
    except OSError:
        return {"some": 0, "full": 0}
    return {line.split()[0]: int(line.rsplit("total=", 1)[1]) for line in lines}


class Swap:
    """A zram device of our own as swap, and a cgroup; both are gone when the block ends."""

    def __init__(self, size):
        self.size = size
        self.device = None
        self.swapped = False

    def __enter__(self):
        try:
            self.device = int(read("/sys/class/zram-control/hot_add"))
            base = f"/sys/block/zram{self.device}"
            write(f"{base}/comp_algorithm", "lz4")
            write(f"{base}/disksize", self.size)
            subprocess.run(["mkswap", f"/dev/zram{self.device}"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["swapon", "-p", "100", f"/dev/zram{self.device}"], check=True)
            self.swapped = True
            os.makedirs(GROUP, exist_ok=True)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        if self.swapped:
            subprocess.run(["swapoff", f"/dev/zram{self.device}"], check=False)
            self.swapped = False
        if self.device is not None:
            write("/sys/class/zram-control/hot_remove", self.device)
            self.device = None
        if os.path.isdir(GROUP):
            os.rmdir(GROUP)


def accesses_in_group(entries, pages, limit_pages, report):
    """The child: joins the group with nothing but fresh memory still to come, then does the accesses."""
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    # Page tables of the memory, the charges a CPU keeps in stock, and what the interpreter still allocates.
    extra = 4 + pages // 512 + 64
    write(f"{GROUP}/memory.limit_in_bytes", (limit_pages + extra) * PAGE)
    write(f"{GROUP}/memory.swappiness", 60)
    write(f"{GROUP}/cgroup.procs", os.getpid())
    before, stalled, start = vmstat(), pressure(), time.monotonic()
    fresh = bytearray(pages)
    whole = bytes(range(1, 256)) * 17
    whole = whole[:PAGE]
    for entry in entries:
        page = entry & PAGE_MASK
        at = page * PAGE
        if not fresh[page]:
            fresh[page] = 1
            memory[at : at + PAGE] = whole
        elif entry & WRITE:
            memory[at] = page & 255
        else:
            memory[at]
    seconds = time.monotonic() - start
    after, stalled_after = vmstat(), pressure()
    result = {name: after.get(name, 0) - before.get(name, 0) for name in COUNTERS}
    result["pgscan"] = sum(after[n] - before[n] for n in ("pgscan_anon", "pgscan_file"))
    result["pgsteal"] = sum(after[n] - before[n] for n in ("pgsteal_anon", "pgsteal_file"))
    result["pressure_some_us"] = stalled_after["some"] - stalled["some"]
    result["pressure_full_us"] = stalled_after["full"] - stalled["full"]
    result["elapsed_seconds"] = seconds
    write(report, json.dumps(result))


def run_real(entries, pages, limit, directory):
    report = os.path.join(directory, "real.json")
    with Swap(pages * PAGE * 2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                accesses_in_group(entries, pages, limit, report)
                code = 0
            finally:
                os._exit(code)
        try:
            _, status = os.waitpid(child, 0)
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        if status:
            sys.exit(f"validate_machine: the measured process failed with status {status}")
    return json.loads(read(report))


def run_simulated(refault, trace, pages, limit, cpu_ns, directory):
    scenario = os.path.join(directory, "scenario.toml")
    write(
        scenario,
        f"""
[machine]
cpus = {os.cpu_count()}
memory = "8G"
swap = "{pages * 2}p"
swap_device = "zram-lz4"
duration = "3000s"
[[group]]
name = "/validate"
max = "{limit}p"
[[task]]
name = "accesses"
group = "/validate"
memory = "{pages}p"
cpu = "{cpu_ns}ns"
[[task.workload]]
trace = "{trace}"
[[task.workload]]
spec = "cyclic:pages=1,accesses=1"
pause = "10000s"
""",
    )
    output = subprocess.run(
        [refault, "scenario", scenario, "--policy", "classic", "--format", "json"], check=True, capture_output=True
    )
    return json.loads(output.stdout)["runs"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refault", default="target/release/refault")
    parser.add_argument("--workload", default="zipf:theta=0.8,pages=32768,accesses=1000000,writes=0.25")
    parser.add_argument("--pages", type=int, default=32768, help="pages of the workload")
    parser.add_argument("--limit", type=int, default=16384, help="data pages that may be resident")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("validate_machine: needs root for the cgroup and the zram device: run it with sudo")
    for path in ("/sys/fs/cgroup/memory/memory.stat", "/sys/class/zram-control/hot_add"):
        if not os.path.exists(path):
            sys.exit(f"validate_machine: {path} is missing: needs cgroup v1 memory and zram")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as directory:
        trace = os.path.join(directory, "trace.u64")
        subprocess.run([arguments.refault, "trace", "generate", arguments.workload, trace], check=True)
        entries = array.array("Q")
        entries.frombytes(open(trace, "rb").read())
        real = [run_real(entries, arguments.pages, arguments.limit, directory) for _ in range(arguments.runs)]
        simulated = run_simulated(arguments.refault, trace, arguments.pages, arguments.limit, 100, directory)
    print(f"{arguments.workload}, {arguments.limit} pages, kernel {os.uname().release}, policy classic")
    print(f"{'counter':28}" + "".join(f"{f'real {i + 1}':>14}" for i in range(len(real))) + f"{'simulated':>14}{'error':>9}")
    # The simulated run goes on, idle, to the end of its duration: its elapsed time means nothing.
    for name in (name for name in real[0] if name != "elapsed_seconds"):
        values = [run[name] for run in real]
        middle = sorted(values)[len(values) // 2]
        ours = simulated.get(name, 0)
        error = f"{100 * (ours / middle - 1):+8.1f}%" if middle else "       –"
        print(f"{name:28}" + "".join(f"{v:14.6g}" for v in values) + f"{ours:14.6g}{error:>9}")


if __name__ == "__main__":
    main()
