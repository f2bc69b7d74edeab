"""compare in Python beside the command refault over the same file: equal runs, and processor time of each.

    python python/bench/beside_the_command.py [refault] [accesses]

Processor time, because it says the same on a busy machine; the command's holds its start. Five runs each, interleaved.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import refault

POLICIES, SIZES = ["lru", "mglru"], ["10%", "50%"]
TIMES = ("wall_seconds", "accesses_per_second")


def seconds(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def measured(who, work):
    before = seconds(who)
    found = work()
    return seconds(who) - before, found


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parents[2] / "target/release/refault")
    accesses = int(sys.argv[2]) if len(sys.argv) > 2 else 5_000_000
    times = {"command": [], "python": []}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "zipf.u64"
        refault.Trace.workload(f"zipf:theta=1,pages={accesses // 10},accesses={accesses}").pages().tofile(path)
        words = [command, "compare", path, "--policy", ",".join(POLICIES), "--memory", ",".join(SIZES)]
        words += ["--jobs", "1", "--format", "json", "--no-timing"]
        for _ in range(5):
            spent, ran = measured(
                resource.RUSAGE_CHILDREN, lambda: subprocess.run(words, check=True, capture_output=True).stdout
            )
            times["command"].append(spent)
            spent, found = measured(
                resource.RUSAGE_SELF, lambda: refault.compare(path, POLICIES, SIZES, jobs=1, progress=False)
            )
            times["python"].append(spent)
            rows = [{name: value for name, value in row.items() if name not in TIMES} for row in found.rows]
            assert rows == json.loads(ran)["runs"], "the command found something else"
    medians = {side: statistics.median(spent) for side, spent in times.items()}
    for side, spent in times.items():
        print(f"{side:8} {medians[side]:.3f} s of processor time ({min(spent):.3f}–{max(spent):.3f})")
    print(f"python / command: {medians['python'] / medians['command']:.3f}")


if __name__ == "__main__":
    main()
