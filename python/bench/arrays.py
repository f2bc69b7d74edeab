"""Arrays that page themselves beside numpy.memmap, plain NumPy in a cgroup with zram, and refault run: equal total memory.

    sudo python python/bench/arrays.py [--mebibytes 256] [--runs 3] [--patience 120] [--refault target/release/refault]
                                       [ROW …]

For each row the kernel's side runs first, with a limit of half the data resident; what it takes together with what zram
takes is the total that every other side gets. Arrays get it as a Budget that counts compressed pages, refault run as
--memory, memmap as the limit of its cgroup, so that the page cache counts. What a bare interpreter with its imports takes
comes on top, for every side. Processor time, all threads of the process in it, is told beside. Data are whole numbers to 1000 in 8 bytes each, as measured figures often are: they compress to
a half or less. Every side must find the same. A side that is killed, or that does not end in time, has no figure.
"""

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROWS = ("sort", "columns", "matmul", "gather", "groupby", "kdtree", "queries")
#: Rows whose data are made with all memory there is; the limit holds from then on. refault run has no such limit.
LIMITED_LATER = ("queries",)
SIDES = ("arrays", "memmap", "zram", "run")
PATIENCE = 120
#: More than any machine has: a cgroup that only counts.
UNLIMITED = 1 << 50


def numbers(make, shape, seed, dtype=np.float64):
    """An array of whole numbers to 1000, two in three of them 0, filled piece by piece so that no copy of it is ever there."""
    array = make(shape, dtype)
    flat, random = array.reshape(-1), np.random.default_rng(seed)
    for at in range(0, flat.size, 1 << 17):
        piece = random.integers(0, 1000, min(1 << 17, flat.size - at))
        flat[at : at + (1 << 17)] = piece * (random.random(piece.size) < 1 / 3)
    return array


def sort(make, size):
    array = numbers(make, size // 8, 1, np.int64)
    yield
    array.sort()
    yield float(array[:: max(array.size // 1000, 1)].sum())


def columns(make, size):
    matrix = numbers(make, (size // 8 // 4096, 4096), 2)
    yield
    yield float(sum(matrix.sum(axis=0).sum() for _ in range(4)))


def matmul(make, size):
    block = 256
    side = max(int(math.sqrt(size / 3 / 8)) // block, 2) * block
    left, right, out = (numbers(make, (side, side), 3), numbers(make, (side, side), 4), make((side, side), np.float64))
    yield
    for row in range(0, side, block):
        for column in range(0, side, block):
            total = np.zeros((block, block))
            for at in range(0, side, block):
                total += left[row : row + block, at : at + block] @ right[at : at + block, column : column + block]
            out[row : row + block, column : column + block] = total
    yield float(sum(out[row].sum() for row in range(side)))


def gather(make, size):
    table, random = numbers(make, size // 8, 5), np.random.default_rng(6)
    yield
    yield float(sum(table[random.integers(0, table.size, 1000)].sum() for _ in range(200)))


def groupby(make, size):
    import pandas

    rows = size // 16
    keys, values = numbers(make, rows, 7, np.int64), numbers(make, rows, 8)
    yield
    frame = pandas.DataFrame({"key": keys, "value": values}, copy=False)
    yield float((frame.groupby("key")["value"].sum() * np.arange(1000)).sum())


def kdtree(make, size):
    from sklearn.neighbors import KDTree

    # The tree has no copy of the points, but goes over them through an index, a third as large. Three in ten points are the
    # same.
    array = numbers(make, (size // 2 // 8 // 3, 3), 9)
    yield
    tree = KDTree(array, leaf_size=200)
    yield float(tree.query(array[:: max(len(array) // 1000, 1)][:1000], k=4)[0].sum())


def points(make, size):
    """Points of whole numbers below 1000 that make, with a tree's index of them, `size` bytes."""
    array, random = make((size // 32, 3), np.float64), np.random.default_rng(9)
    for at in range(0, len(array), 1 << 16):
        piece = array[at : at + (1 << 16)]
        piece[:] = random.integers(0, 1000, piece.shape)
    return array


def queries(make, size):
    from scipy.spatial import KDTree

    # It has no copy of the points, but goes over them through its index. With such leaves its nodes, which are no array, are
    # a fortieth of both.
    built, random = KDTree(points(make, size), leafsize=200), np.random.default_rng(10)
    asked = random.integers(0, 1000, (1000, 3)).astype(np.float64)
    yield
    yield float(built.query(asked, k=4)[0].sum())


def child(row, side, size, budget, directory):
    """One run: prints seconds and what was found."""
    before = None
    if side == "arrays":
        import refault

        shared = refault.Budget(4 * size if row in LIMITED_LATER else budget, count_stored=True)
        before = refault.budget(shared)
        before.__enter__()

        def make(shape, dtype):
            return refault.zeros(shape, dtype, budget=shared)

    elif side == "memmap":
        files = iter(range(10))

        def make(shape, dtype):
            return np.memmap(Path(directory) / str(next(files)), dtype, "w+", shape=shape)

    else:
        make = np.zeros
    work = globals()[row](make, size)
    next(work)
    if row in LIMITED_LATER and side == "arrays":
        shared.resize(budget)
    elif row in LIMITED_LATER:
        limit_this(budget)
    began, used = time.perf_counter(), time.process_time()
    found = next(work)
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"seconds": seconds, "processor": processor, "found": found}))
    sys.stdout.flush()
    os._exit(0)  # arrays that are given back one by one are not what is measured


def limit_this(limit):
    """Lowers the limit of the cgroup that this process is in, which may take the kernel some goes."""
    of_memory = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    at = {controllers: path.lstrip("/") for _, controllers, path in of_memory}
    old = Path("/sys/fs/cgroup/memory")
    file = old / at["memory"] / "memory.limit_in_bytes" if old.exists() else old.parent / at[""] / "memory.max"
    for _ in range(100):
        try:
            file.write_text(str(limit))
            return
        except OSError as busy:
            why = busy
            time.sleep(0.05)
    raise why


class Killed(Exception):
    """The run has no figure, and why."""


def run_child(command, script, *words, patience=PATIENCE):
    """Runs a script's child for `patience` seconds at most; what it printed."""
    try:
        whole = [*command, sys.executable, script, "--child", *words]
        ran = subprocess.run(whole, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        raise Killed(f"more than {patience} s") from None
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or [""])[-1]
        raise Killed("killed" if ran.returncode in (-9, 137) else f"exit code {ran.returncode}: {last}")
    return json.loads(ran.stdout)


def execute(command, row, side, size, budget, directory, patience=PATIENCE):
    return run_child(command, __file__, row, side, str(size), str(budget), directory, patience=patience)


@contextmanager
def cgroup(limit, swap):
    """A memory cgroup with a limit, and zram to swap to if `swap` bytes are given; gone afterwards."""
    root = Path("/sys/fs/cgroup/memory")
    names = ("memory.limit_in_bytes", "memory.max_usage_in_bytes") if root.exists() else ("memory.max", "memory.peak")
    root = root if root.exists() else Path("/sys/fs/cgroup")
    group, device = root / f"refault-arrays-{os.getpid()}", None
    try:
        if swap:
            device = int(Path("/sys/class/zram-control/hot_add").read_text())
            Path(f"/sys/block/zram{device}/comp_algorithm").write_text("lz4")
            Path(f"/sys/block/zram{device}/disksize").write_text(str(swap))
            subprocess.run(["mkswap", f"/dev/zram{device}"], check=True, capture_output=True)
            subprocess.run(["swapon", "-p", "32000", f"/dev/zram{device}"], check=True)
        group.mkdir()
        (group / names[0]).write_text(str(limit))
        yield (
            ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"],
            lambda: int((group / names[1]).read_text()),
            lambda: int(Path(f"/sys/block/zram{device}/mm_stat").read_text().split()[4]),
        )
    finally:
        for _ in range(100):
            for process in (group / "cgroup.procs").read_text().split() if group.exists() else ():
                try:
                    os.kill(int(process), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                group.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.1)
        if device is not None:
            subprocess.run(["swapoff", f"/dev/zram{device}"], check=False)
            Path(f"/sys/block/zram{device}/reset").write_text("1")
            Path("/sys/class/zram-control/hot_remove").write_text(str(device))


def measure(row, size, runs, refault, patience):
    """Runs per side, in seconds and of these on a processor, or why there are none, and the total memory."""
    times = {side: [] for side in SIDES}
    why, found = {}, set()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:

        def run(side, command, budget=0):
            directory = tempfile.mkdtemp(dir=scratch)
            try:
                ran = execute(command, row, side, size, budget, directory, patience)
            except Killed as reason:
                why[side] = str(reason)
                return
            finally:
                shutil.rmtree(directory)
            times[side].append((ran["seconds"], ran["processor"]))
            found.add(ran["found"])

        # What an interpreter takes that has imported everything and has next to no data: the second time, when its files
        # have been read.
        for _ in range(2):
            with cgroup(UNLIMITED, 0) as (command, peak, _):
                execute(command, row, "run", 1 << 20, UNLIMITED, scratch)
                base = peak()
        later, total = row in LIMITED_LATER, 0
        for turn in range(runs):
            limit = base + size // 2
            with cgroup(UNLIMITED if later else limit, 2 * size) as (command, _, compressed):
                run("zram", command, limit)
                if "zram" not in why and compressed() < size // 100:
                    raise SystemExit(f"{row}: all fits into half the memory, which says nothing: raise --mebibytes")
                total = total or limit + compressed()
            run("arrays", [], total - base)
            with cgroup(UNLIMITED if later else total, 0) as (command, _, _):
                run("memmap", command, total)
            if later:
                why["run"] = "–"
            else:
                run("run", [refault, "run", "--quiet", "--memory", str(total), "--"])
    if len(found) > 1:
        raise SystemExit(f"{row}: the sides found different results: {sorted(found)}")
    return times, why, (total - base) / size


def main():
    if sys.argv[1:2] == ["--child"]:
        row, side, size, budget, directory = sys.argv[2:]
        child(row, side, int(size), int(budget), directory)
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []])
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--patience", type=int, default=PATIENCE, help="seconds that a run may take")
    parser.add_argument("--refault", default=str(Path(__file__).parents[2] / "target/release/refault"))
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(f"{asked.mebibytes} MiB of data, medians of {asked.runs} interleaved runs, seconds (least–most; processor)")
    print("| row | memory / data | arrays | memmap | zram | refault run | best rival / arrays | the same in processor time |")
    print("|---|---|---|---|---|---|---|---|")
    ratios = []
    for row in asked.rows or ROWS:
        times, why, share = measure(row, asked.mebibytes << 20, asked.runs, asked.refault, asked.patience)
        cells, medians = [], {}
        for side in SIDES:
            if not times[side] or side in why:
                cells.append(why[side])
                continue
            seconds, processor = zip(*times[side], strict=True)
            medians[side] = (statistics.median(seconds), statistics.median(processor))
            cells.append(f"{medians[side][0]:.2f} ({min(seconds):.2f}–{max(seconds):.2f}; {medians[side][1]:.2f})")
        rivals = [medians[side] for side in ("memmap", "zram") if side in medians]
        if "arrays" in medians and rivals:
            by_clock, by_processor = (min(rival[kind] for rival in rivals) / medians["arrays"][kind] for kind in (0, 1))
            ratios.append(by_clock)
            cells += [f"{by_clock:.2f}", f"{by_processor:.2f}"]
        else:
            cells += ["–", "–"]
        print(f"| {row} | {share:.2f} | {' | '.join(cells)} |", flush=True)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean of {len(ratios)} rows: {mean:.2f} times as fast as the better of memmap and zram")
    print(f"load average at the end {Path('/proc/loadavg').read_text().split()[0]} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
