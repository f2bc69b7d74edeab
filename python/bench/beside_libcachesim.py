"""Each call of libcachesim beside ours over one trace, in one run: results must be equal where both define them, times are
printed.

    pip install libcachesim ./python
    python python/bench/beside_libcachesim.py [accesses] [pages]

Both read the same oracleGeneral file from the page cache, with as much memory as a tenth of the pages. Five runs each,
interleaved; medians and the spread. Each side decodes the file itself, and uses one thread. Policies of one name differ in
detail, so that only those of LRU and FIFO must miss alike.
"""

import collections
import os
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


class Fifo(refault.PythonPolicy):
    def start(self, memory_pages):
        self.order = collections.deque()

    def admit(self, page):
        self.order.append(page)

    def evict(self):
        return self.order.popleft()


def reader_of(path: Path) -> libcachesim.TraceReader:
    return libcachesim.TraceReader(
        str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE, libcachesim.ReaderInitParam(ignore_obj_size=True)
    )


def get_each(path: Path, memory_pages: int, limit: int) -> float:
    cache, reader = libcachesim.LRU(cache_size=memory_pages), reader_of(path)
    hits = 0
    for at, request in enumerate(reader):
        if at == limit:
            break
        hits += cache.get(request)
    return float(hits)


def access_each(path: Path, memory_pages: int, limit: int) -> float:
    # Page numbers up to 2^24 are a policy's own; objects are numbered in the order in which they come.
    pages = np.unique(refault.Trace(path).part(limit=limit).pages(), return_inverse=True)[1]
    policy = refault.Policy("lru", memory_pages=memory_pages, pages=int(pages.max()) + 1)
    access = policy.access
    return float(sum(access(page) for page in pages.tolist()))


def plugin(path: Path, memory_pages: int, limit: int) -> float:
    def admit(order, request):
        order.append(request.obj_id)

    cache = libcachesim.PluginCache(
        memory_pages,
        lambda _: collections.deque(),
        lambda order, request: None,
        admit,
        lambda order, request: order.popleft(),
        lambda order, object_id: None,
        lambda order: None,
    )
    return cache.process_trace(reader_of(path), 0, limit)[0]


def calls(path: Path, memory_pages: int, pages: int, accesses: int) -> list[tuple[str, object, str, object]]:
    """Their call and ours: in words, and what answers a number that must be equal, or None."""
    some = accesses // 20

    def compare(trace, policy="lru", size=f"{memory_pages}p"):
        return refault.compare(trace, policy, size, jobs=1, progress=False).rows[0]["miss_ratio"]

    trace = refault.Trace(path)
    return [
        (
            "get_num_of_req(), get_working_set_size()",
            lambda: reader_of(path).get_num_of_req() + reader_of(path).get_working_set_size()[0],
            "trace.counts()",
            lambda: (lambda found: found["accesses"] + found["distinct_pages"])(trace.counts()),
        ),
        (
            "obj_id of each request",
            lambda: sum(request.obj_id for request in reader_of(path)),
            "trace.pages()",
            lambda: int(trace.pages().sum()),
        ),
        (
            "SyntheticReader(num_of_req=…)",
            lambda: len(libcachesim.SyntheticReader(accesses, num_objects=pages, seed=1).obj_ids) and None,
            "Trace.workload(…).pages()",
            lambda: len(refault.Trace.workload(f"zipf:theta=1,pages={pages},accesses={accesses}").pages()) and None,
        ),
        (
            "LRU(n).process_trace(reader)",
            lambda: libcachesim.LRU(cache_size=memory_pages).process_trace(reader_of(path))[0],
            "compare(trace, 'lru', size)",
            lambda: compare(trace),
        ),
        (
            "…process_trace(reader, start, max)",
            lambda: libcachesim.LRU(cache_size=memory_pages).process_trace(reader_of(path), 0, accesses // 2)[0],
            "compare(trace.part(limit=max), …)",
            lambda: compare(trace.part(limit=accesses // 2)),
        ),
        (
            "LRU at 4 sizes",
            lambda: sum(
                libcachesim.LRU(cache_size=memory_pages * at).process_trace(reader_of(path))[0] for at in (1, 2, 3, 4)
            ),
            "compare(trace, 'lru', four sizes)",
            lambda: sum(
                row["miss_ratio"]
                for row in refault.compare(
                    trace, "lru", [f"{memory_pages * at}p" for at in (1, 2, 3, 4)], jobs=1, progress=False
                ).rows
            ),
        ),
        (
            f"cache.get(request), {some} times",
            lambda: get_each(path, memory_pages, some),
            "Policy('lru').access(page)",
            lambda: access_each(path, memory_pages, some),
        ),
        (
            f"PluginCache, {some} accesses",
            lambda: plugin(path, memory_pages, some),
            "compare with a PythonPolicy",
            lambda: compare(trace.part(limit=some), Fifo()),
        ),
    ]


def beside(path: Path, memory_pages: int, pages: int, accesses: int) -> None:
    """The table of calls."""
    print(f"\n| theirs | s | ours | s | ours is faster by |")
    print("|---|---|---|---|---|")
    for their_words, their_call, our_words, our_call in calls(path, memory_pages, pages, accesses):
        times: dict[str, list[float]] = {"theirs": [], "ours": []}
        for _ in range(3):
            found = []
            for side, call in (("theirs", their_call), ("ours", our_call)):
                began = time.perf_counter()
                found.append(call())
                times[side].append(time.perf_counter() - began)
            if None not in found and abs(found[0] - found[1]) > 1e-9 * abs(found[0]):
                raise SystemExit(f"{their_words}: {found[0]}, and {our_words}: {found[1]}")
        theirs_s, ours_s = (statistics.median(times[side]) for side in ("theirs", "ours"))
        print(f"| `{their_words}` | {theirs_s:.3f} | `{our_words}` | {ours_s:.3f} | {theirs_s / ours_s:.1f} |", flush=True)


def main() -> None:
    accesses, pages = (int(text) for text in (sys.argv[1:] + ["5000000", "500000"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.oracleGeneral.bin"
        distinct = write(path, accesses, pages)
        memory_pages = distinct // 10
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
            if our_name in ("lru", "fifo") and abs(ratios["theirs"] - ratios["ours"]) > 1e-9:
                raise SystemExit(f"{our_name}: {ratios['theirs']} and {ratios['ours']} of the accesses miss")
            print(
                f"{our_name:8} {ratios['theirs']:13.5f} {ratios['ours']:11.5f} {rate['theirs']:>18} {rate['ours']:>18}"
            )
        beside(path, memory_pages, distinct, accesses)
        print(f"load average at the end {Path('/proc/loadavg').read_text().split()[0]} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
