#!/usr/bin/env python3
"""fio through refault's page cache beside the kernel's: the same job, the same memory, one after the other in turn.

    sudo bench/beside.py --engine FILE [--runs 5] [--seconds 20] [--policy P ...] [JOB ...]

JOB is a job file of bench (by default all). --engine is what scripts/fio-engine builds; fio must be in PATH, of the version
that the engine was built for. The kernel's side runs in a memory cgroup of the memory that the job names and 16 MiB more,
of which fio itself takes half, with FADV_RANDOM. Prints medians, the least and the most, processor time per operation, and
the ratio of the medians. The file of 1 GiB is made in the current directory, which must be on a disk with direct I/O.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

MEMORY = 256 << 20
#: For fio itself, which is charged 8.2 MiB when its engine does nothing; what is more is the kernel's page cache's.
ALLOWANCE = 16 << 20
JOBS = Path(__file__).resolve().parent


class Group:
    """A memory cgroup with a limit."""

    def __init__(self, limit):
        version_1 = Path("/sys/fs/cgroup/memory").is_dir()
        self.path = Path("/sys/fs/cgroup", "memory" if version_1 else "", f"refault-fio-{os.getpid()}")
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(str(limit))

    def command(self, command):
        return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.path), *command]

    def peak(self):
        """Bytes that it was charged at most."""
        names = (self.path / name for name in ("memory.peak", "memory.max_usage_in_bytes"))
        return int(next(path for path in names if path.exists()).read_text())

    def close(self):
        self.path.rmdir()


def forget(path):
    with open(path, "rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(job, section, arguments, policy=None):
    text = (JOBS / job).read_text()
    text = "\n".join(f"runtime={arguments.seconds}" if line.startswith("runtime=") else line for line in text.splitlines())
    if policy:
        text = text.replace("refault_memory=", f"refault_policy={policy}\nrefault_memory=")
    command = ["fio", "--output-format=json", f"--section={section}", "-"]
    environment = dict(os.environ, ENGINE=os.path.abspath(arguments.engine))
    if os.path.exists("fio.data"):
        forget("fio.data")
    before = cpu_seconds()
    group = Group(MEMORY + ALLOWANCE) if section == "kernel" else None
    try:
        done = subprocess.run(group.command(command) if group else command, input=text, env=environment, text=True,
                              stdout=subprocess.PIPE)
    finally:
        if group:
            group.close()
    if done.returncode != 0:
        sys.exit(f"fio ended with status {done.returncode}: {done.stdout[-500:]}")
    kinds = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    parts = [kinds[kind] for kind in ("read", "write") if kinds[kind]["total_ios"]]
    operations = sum(part["total_ios"] for part in parts)
    milliseconds = max(part["runtime"] for part in parts)
    # The whole process: what runs in threads of the cache's own is none of fio's jobs'.
    cpu = (cpu_seconds() - before) * 1e6 / operations
    p99 = {kind: kinds[kind]["clat_ns"]["percentile"]["99.000000"] / 1000 for kind in ("read", "write") if kinds[kind]["total_ios"]}
    return {"rate": operations / milliseconds * 1000, "cpu": cpu, "p99": p99}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("jobs", nargs="*", default=sorted(path.name for path in JOBS.glob("*.fio")))
    parser.add_argument("--engine", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--policy", action="append", help="policies beside the default one")
    arguments = parser.parse_args()
    version = subprocess.run(["fio", "--version"], text=True, stdout=subprocess.PIPE).stdout.strip()
    print(f"{version}, Linux {os.uname().release}, {arguments.runs} runs of {arguments.seconds} s, {MEMORY >> 20} MiB", flush=True)
    sides = [("kernel", None), ("refault", None), *(("refault", policy) for policy in arguments.policy or [])]
    for job in arguments.jobs:
        results = {side: [] for side in sides}
        for number in range(arguments.runs):
            for side in sides if number % 2 == 0 else reversed(sides):
                results[side].append(run(job, *side[:1], arguments, side[1]))
        print(f"\n{job}\n{'side':28} {'operations/s':>12} {'least–most':>19} {'by kernel’s':>11} {'CPU, µs':>8}  p99, µs")
        kernel = statistics.median(result["rate"] for result in results[sides[0]])
        for side, runs in results.items():
            rates = [result["rate"] for result in runs]
            middle = statistics.median(rates)
            p99 = ", ".join(f"{kind} {statistics.median(r['p99'][kind] for r in runs):.0f}" for kind in runs[0]["p99"])
            print(f"{side[1] or side[0]:28} {middle:12.0f} {f'{min(rates):.0f}–{max(rates):.0f}':>19} {middle / kernel:11.2f} "
                  f"{statistics.median(r['cpu'] for r in runs):8.2f}  {p99}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
