"""Cached files beside fsspec's blockcache and plain files: equal memory, on this disk.

    sudo python python/bench/files.py [--memory 64] [--runs 3] [ROW …]

Each run is a process in a memory cgroup: the page cache counts there, and so do our frames. The limit is `memory` MiB beyond
what the same work takes at most that caches nothing (each read drops the page cache again), and 8 MiB for what differs from run to
run. Files are four times as large as the memory and not in the page cache when a run begins. Times are those of reading,
processor time in parentheses; every side must find the same.
"""

import argparse
import importlib
import io
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from arrays import UNLIMITED, Killed, cgroup, run_child

ROWS = ("scan", "groups", "slices", "reads", "whole")
SIDES = ("refault", "blockcache", "plain")
SLACK = 8 << 20


def make(row, path, size):
    """The file of a row."""
    random = np.random.default_rng(1)
    if row == "slices":
        import h5py

        side = int((size / 8) ** (1 / 3)) // 32 * 32
        with h5py.File(path, "w") as file:
            cube = file.create_dataset("cube", (side, side, side), np.float64, chunks=(32, 32, 32))
            for at in range(0, side, 32):
                cube[at : at + 32] = random.random((32, side, side))
        return
    import pyarrow
    import pyarrow.parquet

    rows = 1 << 15
    schema = pyarrow.schema([(name, pyarrow.float64()) for name in "abcd"])
    with pyarrow.parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for _ in range(size // (rows * 8 * 4)):
            writer.write_table(pyarrow.table({name: random.random(rows) for name in "abcd"}, schema=schema))


def scan(file):
    """All of two columns of a Parquet file, three times."""
    import pyarrow.compute
    import pyarrow.parquet

    opened, total = pyarrow.parquet.ParquetFile(file), 0.0
    for _ in range(3):
        for batch in opened.iter_batches(columns=["a", "c"]):
            total += pyarrow.compute.sum(batch.column(0)).as_py()
    return total


def groups(file):
    """400 row groups of a Parquet file, some far more often than others, one column each."""
    import pyarrow.compute
    import pyarrow.parquet

    opened, random, total = pyarrow.parquet.ParquetFile(file), np.random.default_rng(2), 0.0
    for number in random.zipf(1.3, 400) * 7919 % opened.num_row_groups:
        total += pyarrow.compute.sum(opened.read_row_group(int(number), columns=["b"]).column(0)).as_py()
    return total


def slices(file):
    """Planes of a cube, across all chunks of one direction, near each other."""
    import h5py

    random, total = np.random.default_rng(3), 0.0
    with h5py.File(file, "r", rdcc_nbytes=0) as opened:
        cube = opened["cube"]
        side = cube.shape[0]
        for at in np.abs(random.normal(0, side / 12, 60)).astype(int) % side:
            total += float(cube[:, int(at), :].sum())
    return total


def reads(file):
    """20,000 reads of 16 KiB, three of four from a tenth of the file."""
    random, total = np.random.default_rng(4), 0
    blocks = file.seek(0, io.SEEK_END) // (16 << 10)
    for often, at in zip(random.random(20_000) < 0.75, random.random(20_000)):
        file.seek(int(at * blocks * (0.1 if often else 1)) * (16 << 10))
        total += file.read(16 << 10)[0]
    return total


def whole(file):
    """All bytes, three times, 256 KiB at once."""
    total = 0
    for _ in range(3):
        file.seek(0)
        while data := file.read(256 << 10):
            total += data[0]
    return total


def buffered(path, memory):
    """A file behind fsspec's block cache of `memory` bytes, as object stores' files have it."""
    from fsspec.spec import AbstractBufferedFile

    class Local(AbstractBufferedFile):
        def _fetch_range(self, start, end):
            return os.pread(descriptor, end - start, start)

    descriptor = os.open(path, os.O_RDONLY)
    block = 256 << 10
    size = os.fstat(descriptor).st_size
    options = {"maxblocks": memory // block}
    return Local(None, path, block_size=block, cache_type="blockcache", cache_options=options, size=size)


class Uncached(io.FileIO):
    """A plain file that leaves nothing in the page cache."""

    def readinto(self, buffer):
        at = self.tell()
        count = super().readinto(buffer)
        os.posix_fadvise(self.fileno(), at & -4096, count + 4096, os.POSIX_FADV_DONTNEED)
        return count

    def read(self, size=-1):
        buffer = bytearray(size if size >= 0 else os.fstat(self.fileno()).st_size - self.tell())
        return bytes(memoryview(buffer)[: self.readinto(buffer)])


def uncached(path):
    file = Uncached(path)
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
    return file


def child(row, side, path, memory):
    """One run: prints seconds and what was found."""
    work = globals()[row]
    for name in ("fsspec", "h5py", "pyarrow.compute", "pyarrow.parquet", "refault"):
        importlib.import_module(name)  # is not what is measured
    began, worked = time.perf_counter(), time.process_time()
    if side == "refault":
        import refault

        file = refault.open(path, memory=memory)
    elif side == "blockcache":
        file = buffered(path, memory)
    else:
        file = open(path, "rb") if side == "plain" else uncached(path)
    with file:
        found = work(file)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    print(json.dumps({"seconds": seconds, "worked": worked, "found": found}))


def main():
    if sys.argv[1:2] == ["--child"]:
        row, side, path, memory = sys.argv[2:]
        child(row, side, path, int(memory))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []])
    parser.add_argument("--memory", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    memory = asked.memory << 20
    print(f"{asked.memory} MiB of memory, files of {4 * asked.memory} MiB, medians of {asked.runs} interleaved runs, seconds (least–most; processor)")
    print("| row | refault | blockcache | plain file | best rival / refault | the same in processor time |")
    print("|---|---|---|---|---|---|")
    for row in asked.rows or ROWS:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
            path = Path(directory) / "data"
            make(row, path, 4 * memory)
            seconds, why, found = {side: [] for side in SIDES}, {}, set()
            worked = {side: [] for side in SIDES}
            with cgroup(UNLIMITED, 0) as (command, peak, _):
                run_child(command, __file__, row, "uncached", str(path), str(memory))
                base = peak()
            for turn in range(asked.runs):
                for side in SIDES[turn % 3 :] + SIDES[: turn % 3]:
                    with open(path, "rb") as file:
                        os.fsync(file.fileno())
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    with cgroup(base + memory + SLACK, 0) as (command, _, _):
                        try:
                            ran = run_child(command, __file__, row, side, str(path), str(memory))
                        except Killed as reason:
                            why[side] = str(reason)
                            continue
                    seconds[side].append(ran["seconds"])
                    worked[side].append(ran["worked"])
                    found.add(ran["found"])
        if len(found) > 1:
            raise SystemExit(f"{row}: the sides found different results: {sorted(found)}")
        medians = {side: statistics.median(times) for side, times in seconds.items() if times and side not in why}
        busy = {side: statistics.median(times) for side, times in worked.items() if side in medians}
        cells = [
            why[side]
            if side not in medians
            else f"{medians[side]:.2f} ({min(seconds[side]):.2f}–{max(seconds[side]):.2f}; {busy[side]:.2f})"
            for side in SIDES
        ]
        for figures in (medians, busy):
            rivals = [figures[side] for side in SIDES[1:] if side in figures]
            cells.append(f"{min(rivals) / figures['refault']:.2f}" if "refault" in figures and rivals else "–")
        print(f"| {row} | {' | '.join(cells)} |", flush=True)
    print(f"load average at the end {Path('/proc/loadavg').read_text().split()[0]} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
