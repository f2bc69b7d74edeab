#!/usr/bin/env python3
"""`refault host` beside real programs: are its proposals right, and does `--apply` hold still while their load changes?

    scripts/dev/host_real.py [--refault target/release/refault] [--minutes 0] [--programs redis,postgres,…]

Redis, postgres, memcached, a loop of compilations, a Java service and a program that reads a file each get a memory cgroup
of version 1. First the command says what limits would do. Then each program's smallest limit is found by bisection, at which
it slows by at most 2 %. Slowing is time in which the group waited for memory or for the disk (`some` of its pressure), as a share
of the processor time that it ran, less the same without a limit in rounds between. Other programs of the machine do not
change that. A limit that the kernel refuses, or at which a process would be killed, is too small.

With --minutes the load changes every five minutes, first for twelve minutes without `refault host --apply`, then for this
long with it. Printed are, for each group, how far its limit and its charge swing in the last two minutes of a load (the first, on the way down, left out), what
is charged less than without, and by how much it slows. Run as root.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from host_programs import KINDS, MIB, Program, number

ALLOWED = 0.02
LOADS = [0.3, 0.6, 0.15, 0.45]


def slowed(program: Program, seconds: float) -> float | None:
    """Waiting as a share of running, over this time and at least two jobs; none if a process would have been killed."""
    group, jobs = program.group, program.jobs()
    waited, ran, until = group.stalled(), group.ran(), time.monotonic() + seconds
    while time.monotonic() < until or jobs is not None and program.jobs() < jobs + 2:
        if group.lacks():
            return None
        time.sleep(0.1)
    return (group.stalled() - waited) / max(group.ran() - ran, 1e-3)


def settled(program: Program) -> float | None:
    """Waits until what a new limit took and is needed is back, for a minute at most."""
    share = None
    for _ in range(12):
        share = slowed(program, 5)
        if share is None or share <= ALLOWED:
            break
    return share


def is_enough(program: Program, limit: int, rounds: list) -> bool:
    """Whether the program runs as it should at this limit."""
    group, errors = program.group, program.errors
    group.limit(-1)
    settled(program)
    without = slowed(program, 12) or 0.0
    try:
        group.limit(limit)
        share = settled(program)
        share = None if share is None else slowed(program, 15)
    except OSError:  # The kernel finds nothing to take.
        share = None
    finally:
        group.limit(-1)
    rounds.append((limit, without, share))
    # What an earlier limit had taken may still come back meanwhile.
    usual = statistics.median(without for _, without, _ in rounds)
    return share is not None and program.errors == errors and share - usual <= ALLOWED


def bisect(program: Program, found: dict) -> None:
    group, rounds = program.group, []
    (group.memory / "memory.oom_control").write_text("1")
    # What is charged at most is enough.
    peak = group.memory / "memory.max_usage_in_bytes"
    peak.write_text("0")
    slowed(program, 25)
    least, most = 0, number(peak)
    while most - least > max(most // 50, MIB):
        middle = (least + most) // 2
        if is_enough(program, middle, rounds):
            most = middle
        else:
            least = middle
    (group.memory / "memory.oom_control").write_text("0")
    found[group.name] = (most, rounds)


def proposals(refault: str, parent: str) -> dict:
    command = [refault, "host", "--group", f"/{parent}", "--once", "--ages", "10s,60s", "--json"]
    text = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return {row["path"].rsplit("/", 1)[1]: row for row in json.loads(text)["groups"]}


def truth(programs: list[Program], refault: str, parent: str) -> None:
    rows, found = proposals(refault, parent), {}
    threads = [threading.Thread(target=bisect, args=(program, found)) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("| program | charged | usage less inactive file | proposal (high) | (max) | smallest that will do | high is |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    mib = lambda size: f"{size / MIB:.1f}"
    for program in programs:
        name = program.group.name
        row, (least, rounds) = rows[name], found[name]
        high, limit = row["proposal"]["high_bytes"], row["proposal"]["max_bytes"]
        print(f"| {name} | {mib(row['usage_bytes'])} | {mib(row['kubelet_working_set_bytes'])} | {mib(high)} | {mib(limit)} "
              f"| {mib(least)} | {high / least - 1:+.1%} |", flush=True)
    for program in programs:
        for limit, without, share in found[program.group.name][1]:
            said = "too small" if share is None else f"{share - without:+.2%}"
            print(f"  {program.group.name}: {mib(limit)} MiB: {said}, without a limit {without:.2%}", flush=True)


def changing(programs: list[Program], seconds: float, each: float, rows: list, label: str, keep: str | None) -> None:
    """Changes the load, and notes each two seconds what is so; keeps that at each change."""
    began, load = time.monotonic(), -1
    while (passed := time.monotonic() - began) < seconds:
        if int(passed / each) != load:
            load = int(passed / each)
            if keep:
                Path(keep).write_text(json.dumps(rows))
            for program in programs:
                program.load(LOADS[load % len(LOADS)])
            for program in programs:
                threading.Thread(target=program.burst, daemon=True).start()
        for program in programs:
            group = program.group
            rows.append({"label": label, "at": passed, "load": load, "of": passed % each, "name": group.name, "usage": group.usage(),
                         "soft": group.soft(), "stalled": group.stalled(), "ran": group.ran(), "kills": group.kills(),
                         "refaults": group.refaults(), "errors": program.errors})
        time.sleep(2)


def swing(rows: list, field: str) -> float:
    """Half of what lies between the least and the most, as a share of the middle."""
    values = [row[field] for row in rows if row[field] < 1 << 60]
    return (max(values) - min(values)) / 2 / statistics.median(values) if values else 0.0


def held(names: list[str], rows: list, each: float) -> None:
    print("| program | charged without | with | saved | limit swings at most | charge swings at most | waits per running without | with | refaults/s | kills, errors |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    sums = [0.0, 0.0]
    for name in names:
        of = {label: [row for row in rows if row["name"] == name and row["label"] == label] for label in ("without", "with")}
        usage = {label: statistics.mean(row["usage"] for row in some) for label, some in of.items()}
        waits = {label: (some[-1]["stalled"] - some[0]["stalled"]) / (some[-1]["ran"] - some[0]["ran"]) for label, some in of.items()}
        ends = [[row for row in of["with"] if row["load"] == load and row["of"] > each - 120] for load in range(1, of["with"][-1]["load"] + 1)]
        ends = [some for some in ends if len(some) > 30]
        swings = [max((swing(some, field) for some in ends), default=0.0) for field in ("soft", "usage")]
        last, first = of["with"][-1], of["with"][0]
        sums = [sums[0] + usage["without"], sums[1] + usage["with"]]
        print(f"| {name} | {usage['without'] / MIB:.1f} | {usage['with'] / MIB:.1f} | {1 - usage['with'] / usage['without']:.1%} "
              f"| {swings[0]:.1%} | {swings[1]:.1%} | {waits['without']:.2%} | {waits['with']:.2%} "
              f"| {(last['refaults'] - first['refaults']) / (last['at'] - first['at']):.1f} | {last['kills']}, {last['errors'] - first['errors']} |")
    print(f"| all | {sums[0] / MIB:.1f} | {sums[1] / MIB:.1f} | {1 - sums[1] / max(sums[0], 1):.1%} | | | | | | |", flush=True)


def apply(programs: list[Program], args: argparse.Namespace, parent: str, scratch: Path) -> None:
    rows: list = []
    changing(programs, args.without * 60, args.without * 60 / len(LOADS), rows, "without", args.rows)
    command = [args.refault, "host", "--group", f"/{parent}", "--apply", "--yes", "--floor", "1m", "--journal", str(scratch / "limits.json")]
    log = open(args.log or scratch / "log", "w")
    host = subprocess.Popen(command, stderr=log)
    try:
        until = time.monotonic() + args.minutes * 60
        cycle = 5 * 60 * len(LOADS)
        changing(programs, until - time.monotonic(), cycle / len(LOADS), rows, "with", args.rows)
    finally:
        host.send_signal(signal.SIGINT)
        host.wait()
        if args.rows:
            Path(args.rows).write_text(json.dumps(rows))
    held(args.programs.split(","), rows, 300)
    print(Path(log.name).read_text().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refault", default="target/release/refault")
    parser.add_argument("--programs", default=",".join(KINDS))
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--without", type=float, default=12)
    parser.add_argument("--rows", help="keep what was noted in this file")
    parser.add_argument("--read", help="print the table of what was noted in a file, also while it is written")
    parser.add_argument("--log", help="what the command says goes here")
    args = parser.parse_args()
    if args.minutes and min(args.minutes, args.without) < 1:
        parser.error("--minutes and --without: a minute at least, of which the table is made")
    if args.read:
        held(args.programs.split(","), json.loads(Path(args.read).read_text()), 300)
        return
    parent = f"refault-real-{os.getpid()}"
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        os.chmod(scratch, 0o755)
        programs: list[Program] = []
        try:
            for name in args.programs.split(","):
                place = Path(scratch, name)
                place.mkdir()
                programs.append(KINDS[name](parent, name, place))
            for program in programs:
                program.run()
                program.burst()
            time.sleep(30)
            if args.minutes:
                apply(programs, args, parent, Path(scratch))
            else:
                truth(programs, args.refault, parent)
        finally:
            for program in programs:
                program.ends = True
                if isinstance(getattr(program, "bench", None), subprocess.Popen):
                    program.bench.kill()
                program.group.end()
            for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"):
                Path(root, parent).rmdir()


if __name__ == "__main__":
    main()
