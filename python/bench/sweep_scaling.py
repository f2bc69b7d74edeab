"""One worker beside two, one thread each, on this machine: median of TURNS, and what a task costs beyond its work.

python python/bench/sweep_scaling.py [TURNS]
"""

import importlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import distributed
import refault

# The function of the same name hides the module.
_write = importlib.import_module("refault.sweep")._write

TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
TRACES = [f"zipf:theta=1,pages=200000,accesses=4000000,seed={seed}" for seed in range(8)]
POLICIES = ["lru", "mglru", "arc", "s3fifo"]
SIZES = ["10%", "50%"]


def idle(number):
    return number


def main():
    seconds = {1: [], 2: []}
    overheads = []
    rows = None
    for _ in range(TURNS):
        for workers in (1, 2):
            with (
                distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
                ) as cluster,
                distributed.Client(cluster) as client,
            ):
                client.run(lambda: __import__("refault"))  # what a worker does once is not a task's
                began = time.perf_counter()
                found = refault.sweep(TRACES, POLICIES, SIZES, client=client, policies_per_task=2).rows
                seconds[workers].append(time.perf_counter() - began)
                assert rows is None or found == rows
                rows = found
                if workers == 1:
                    began = time.perf_counter()
                    client.gather([client.submit(idle, number, pure=False) for number in range(1000)])
                    overheads.append((time.perf_counter() - began) / 1000)
    tasks = len(TRACES) * len(POLICIES) // 2
    medians = {workers: statistics.median(times) for workers, times in seconds.items()}
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    for workers, times in seconds.items():
        print(f"{workers} worker(s): median {medians[workers]:.2f} s, from {min(times):.2f} to {max(times):.2f}")
    print(f"2 workers are {statistics.median(ratios):.2f} times as fast, from {min(ratios):.2f} to {max(ratios):.2f}")
    replayed = 4_000_000 * len(TRACES) * len(POLICIES) * len(SIZES)
    print(f"{tasks} tasks of {medians[1] / tasks:.2f} s; {replayed / medians[1] / 1e6:.1f} M accesses/s and worker")
    print(f"{1e3 * statistics.median(overheads):.2f} ms per task that does nothing")
    busy = float(Path("/proc/loadavg").read_text().split()[0])
    print(f"load average at the end {busy:.1f} on {os.cpu_count()} cores: other work makes the ratio say nothing")
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        for number in range(100):
            _write(Path(directory) / f"{number}.parquet", rows[: len(SIZES) * 2])
        print(f"{10 * (time.perf_counter() - began):.2f} ms per task's Parquet file")


if __name__ == "__main__":
    main()
