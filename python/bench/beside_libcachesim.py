"""LRU of libcachesim and of refault over one trace, in one run: misses must be equal, times are printed.

    pip install libcachesim ./python
    python python/bench/beside_libcachesim.py [accesses] [pages]

Both read the same oracleGeneral file from the page cache, with as much memory as a tenth of the pages. Five runs each,
interleaved; medians and the spread. Each side decodes the file itself, and uses one thread.
"""

import statistics
import struct
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import refault

import libcachesim

RUNS = 5
PAIRS = [("LRU", "lru"), ("FIFO", "fifo"), ("ARC", "arc"), ("S3FIFO", "s3fifo"), ("Sieve", "sieve"), ("LIRS", "lirs")]


def write(path: Path, accesses: int, pages: int) -> int:
    """An oracleGeneral file; its distinct objects."""
    trace = refault.Trace.workload(f"zipf:theta=1,pages={pages},accesses={accesses}")
    numbers = trace.pages()
    record = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
    assert record.itemsize == struct.calcsize("<IQIq")
    rows = np.zeros(len(numbers), record)
    rows["object"], rows["size"], rows["next"] = numbers + 1, 4096, -1
    rows.tofile(path)
    return len(np.unique(numbers))


def theirs(path: Path, name: str, memory_pages: int) -> tuple[float, float]:
    reader = libcachesim.TraceReader(
        str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE, libcachesim.ReaderInitParam(ignore_obj_size=True)
    )
    cache = getattr(libcachesim, name)(cache_size=memory_pages)
    began = time.perf_counter()
    ratio, _ = cache.process_trace(reader)
    return ratio, time.perf_counter() - began


def ours(path: Path, name: str, memory_pages: int) -> tuple[float, float]:
    began = time.perf_counter()
    row = refault.compare(refault.Trace(path), name, f"{memory_pages}p", jobs=1, progress=False).rows[0]
    return row["miss_ratio"], time.perf_counter() - began


def main() -> None:
    accesses, pages = (int(text) for text in (sys.argv[1:] + ["5000000", "500000"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.oracleGeneral.bin"
        memory_pages = write(path, accesses, pages) // 10
        versions = f"libcachesim {version('libcachesim')}, refault {refault.__version__}"
        print(f"{versions}: {accesses} accesses, memory for {memory_pages} pages")
        print(f"{'policy':8} {'their misses':>13} {'our misses':>11} {'theirs, M/s':>18} {'ours, M/s':>18}")
        for their_name, our_name in PAIRS:
            times: dict[str, list[float]] = {"theirs": [], "ours": []}
            ratios = {}
            for _ in range(RUNS):
                ratios["theirs"], seconds = theirs(path, their_name, memory_pages)
                times["theirs"].append(seconds)
                ratios["ours"], seconds = ours(path, our_name, memory_pages)
                times["ours"].append(seconds)
            rate = {}
            for side, seconds in times.items():
                median, least, most = (accesses / of(seconds) / 1e6 for of in (statistics.median, max, min))
                rate[side] = f"{median:.1f} ({least:.1f}–{most:.1f})"
            print(
                f"{our_name:8} {ratios['theirs']:13.5f} {ratios['ours']:11.5f} {rate['theirs']:>18} {rate['ours']:>18}"
            )


if __name__ == "__main__":
    main()
