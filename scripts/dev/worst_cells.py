#!/usr/bin/env python3
"""Where a policy misses more than another: sequences made against it, and traces turned into others.

    cargo build --release
    python3 scripts/dev/worst_cells.py                          sequences only
    python3 scripts/dev/worst_cells.py a.u64.zst b.csv          the same, and what can be made of these traces
    python3 scripts/dev/worst_cells.py --seed 7                 with sequences of its own
    python3 scripts/dev/worst_cells.py --policy adaptive-mapped --against mglru TRACE…

Each trace is replayed backwards, in halves, with its halves exchanged, twice, there and back, and with a quarter of its
pages; each pair of traces of like length one after the other, in turns, and mixed at random. Memory is 5, 10, 25 and
50 % of the pages. Printed are the mean and the worst of the misses saved, and the worst cells. Pages count as anonymous
memory that is read. A trace of a million accesses takes some 100 MB and a few seconds for each form; --forms leaves some
out. Random numbers are seeded: a run gives the same figures each time.
"""

import argparse
import bisect
import csv
import itertools
import random
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE_BITS = (1 << 56) - 1
# From here on lie the pages of the second of two traces, and those of the second part of a sequence.
OTHER = 1 << 40
SIZES = "5%,10%,25%,50%"
MIN_MEMORY = 10
# Pairs of traces are made where neither is MAX_RATIO times as long as the other.
MAX_RATIO = 15
LENGTH = 120_000


def scattered(page):
    return (page * 0x9E3779B97F4A7C15 >> 13) % (1 << 36)


def zipf(pages, exponent, rng):
    """A function that draws ranks from 0 on."""
    sums = list(itertools.accumulate(rank**-exponent for rank in range(1, pages + 1)))
    return lambda: bisect.bisect_left(sums, rng.random() * sums[-1])


def popular(exponent, rng):
    """Popularity that changes in several ways."""
    draw = zipf(8000, exponent, rng)
    yield f"drift {exponent}", [scattered(draw() + at // 20) for at in range(LENGTH)]
    yield f"shuffled {exponent}", [scattered((draw() + at // 15_000 * 3919) % 8000) for at in range(LENGTH)]
    yield f"half once {exponent}", [OTHER + at if rng.random() < 0.5 else scattered(draw()) for at in range(LENGTH)]
    scans = []
    while len(scans) < LENGTH:
        scans += [scattered(draw()) for _ in range(10_000)]
        scans += [OTHER + (len(scans) + at) % 20_000 for at in range(3000)]
    yield f"scans beside {exponent}", scans


def turns(length, rng):
    """A loop, and popular pages that move a little, in turns of `length` accesses."""
    draw, looped, sequence = zipf(3000, 0.9, rng), itertools.count(), []
    for turn in range(LENGTH // length):
        if turn % 2 == 0:
            sequence += [OTHER + next(looped) % 4000 for _ in range(length)]
        else:
            sequence += [draw() + turn // 2 * 300 for _ in range(length)]
    return sequence


def sequences():
    """Names and pages of what is made against one way of choosing or another."""
    rng = random.Random(3)
    yield from popular(0.7, rng)
    yield from popular(1.0, rng)
    for length in (2000, 8000, 30_000):
        yield f"turns of {length}", turns(length, rng)
    draw = zipf(3000, 0.9, rng)
    for life in (2000, 20_000):
        drawn = ((draw(), at) for at in range(LENGTH))
        uses = ((slot, (at + scattered(slot) % life) // life) for slot, at in drawn)
        yield f"lives of {life}", [scattered(slot * 1_000_003 + tenant) for slot, tenant in uses]
    yield "up and down", [at if at < 3000 else 5999 - at for at in (at % 6000 for at in range(LENGTH))]
    yield "sliding loop", [at // 3000 * 100 + at % 3000 for at in range(LENGTH)]
    yield "read again once", [page for at in range(LENGTH // 3) for page in ((at, at - 3000) if at >= 3000 else (at,))]
    draw = zipf(2000, 0.5, rng)
    yield "new phases", [at // 10_000 * 2000 + draw() for at in range(LENGTH)]
    yield "old phases", [at // 10_000 % 4 * 1400 + draw() for at in range(LENGTH)]
    draw, faded = zipf(3000, 0.8, rng), []
    for phase in range(5):
        faded += [phase * OTHER + draw() for _ in range(25_000)]
        faded += [phase * OTHER + OTHER // 2 + at % 2000 for at in range(5000)]
    yield "popular, then gone", faded
    # Nothing of a scan is used again, until all that LRU would still hold is.
    yield "scan, then its end", [*range(20_000), *range(5000), *range(11_000, 20_000), *range(11_000, 20_000)]


def passes(length, pages, rng):
    """Loops of a few passes, then pages in use that have moved, again and again."""
    sequence, start = [], 0
    while len(sequence) < length:
        looped, used = rng.randrange(pages // 4, pages), rng.randrange(pages // 20, pages // 2)
        sequence += [OTHER + page for _ in range(rng.randrange(1, 7)) for page in range(looped)]
        sequence += [(start + page) % pages for _ in range(rng.randrange(2, 7)) for page in range(used)]
        start += used // rng.randrange(1, 3)
    return sequence


def scans_and_ends(length, pages, rng):
    """Scans, of which a part is read again, and then what LRU still has, once or more."""
    sequence, start = [], 0
    while len(sequence) < length:
        end = start + pages
        again, tail = start + rng.randrange(pages // 2), rng.randrange(pages // 10, pages * 3 // 5)
        sequence += [*range(start, end), *range(again, again + rng.randrange(pages // 4))]
        sequence += [page for _ in range(rng.randrange(1, 4)) for page in range(end - tail, end)]
        start = (start + rng.choice((pages // 2, pages))) % (4 * pages)
    return sequence


def there_and_back(length, pages, rng):
    sequence, at = [], pages // 2
    while len(sequence) < length:
        step = rng.choice((-1, 1))
        for _ in range(rng.randrange(1, pages // 2)):
            at = min(max(at + step, 0), pages - 1)
            sequence.append(at)
    return sequence


def read_again(length, pages, rng):
    """New pages, some of which are read again once, at a distance."""
    lag, share = rng.randrange(pages // 20, pages // 2), rng.random()
    sequence = []
    for at in range(length):
        page = at % (3 * pages)
        sequence.append(page)
        if page > 2 * lag and rng.random() < share:
            sequence.append(page - lag - rng.randrange(lag // 4 + 1))
    return sequence


def drawn(seed):
    """Sequences whose lengths are drawn at random, over some hundred to some hundred thousand pages."""
    rng = random.Random(seed)
    for scale in (100, 1000, 10_000, 100_000):
        for make in (passes, scans_and_ends, there_and_back, read_again):
            pages = scale * rng.randrange(70, 130) // 100
            yield f"{make.__name__.replace('_', ' ')} {pages:,}", make(min(80 * pages, 12 * LENGTH), pages, rng)


def run(command):
    """What a command prints. What it says of a failure is said here too, and ends the program."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stderr.strip()}\nworst_cells.py: failed: {' '.join(map(str, command))}")
    return done.stdout


def load(refault, trace, directory):
    """The pages of a trace in their order, numbered from 0 on."""
    converted = Path(directory) / "converted.u64"
    run([refault, "trace", "convert", "--force", trace, converted])
    entries = array("Q", converted.read_bytes())
    if sys.byteorder == "big":
        entries.byteswap()
    numbers = {page: number for number, page in enumerate(sorted({entry & PAGE_BITS for entry in entries}))}
    return [numbers[entry & PAGE_BITS] for entry in entries]


def short_name(trace, traces):
    """The file's name without endings, unless another trace has it too."""
    short = Path(trace).name.split(".")[0]
    return short if [Path(other).name.split(".")[0] for other in traces].count(short) == 1 else trace


def forms_of_one(name, pages):
    half = len(pages) // 2
    yield "backwards", f"{name} backwards", pages[::-1]
    yield "halves", f"first half of {name}", pages[:half]
    yield "halves", f"second half of {name}", pages[half:]
    yield "exchanged", f"halves of {name} exchanged", pages[half:] + pages[:half]
    yield "twice", f"{name} twice", pages + pages
    yield "back", f"{name} there and back", pages + pages[::-1]
    yield "quarter", f"a quarter of {name}'s pages", [page for page in pages if scattered(page) % 4 == 0]


def forms_of_two(name, pages, other_name, others):
    others = [OTHER + page for page in others]
    yield "after", f"{name} after {other_name}", others + pages
    yield "after", f"{other_name} after {name}", pages + others
    parts, in_turns = 4, []
    for part in range(parts):
        for whole in (pages, others):
            in_turns += whole[len(whole) * part // parts : len(whole) * (part + 1) // parts]
    yield "turns", f"{name} and {other_name} in turns", in_turns
    rng, mixed, at = random.Random(1), [], [0, 0]
    while at[0] < len(pages) or at[1] < len(others):
        left = (len(pages) - at[0], len(others) - at[1])
        which = 0 if rng.random() * sum(left) < left[0] else 1
        run = 1 + rng.randrange(60)
        mixed += (pages, others)[which][at[which] : at[which] + run]
        at[which] += run
    yield "mixed", f"{name} and {other_name} mixed", mixed


FORMS = ["backwards", "halves", "exchanged", "twice", "back", "quarter", "after", "turns", "mixed"]


def variants(traces, wanted):
    forms = [form for name, pages in traces.items() for form in forms_of_one(name, pages)]
    yield from ((name, pages) for form, name, pages in forms if form in wanted)
    for (name, pages), (other_name, others) in itertools.combinations(traces.items(), 2):
        lengths = sorted([len(pages), len(others)])
        if 0 < lengths[1] <= MAX_RATIO * lengths[0]:
            both = forms_of_two(name, pages, other_name, others)
            yield from ((name, pages) for form, name, pages in both if form in wanted)


def misses(refault, pages, policies, directory):
    """Misses by memory and policy."""
    file = Path(directory) / "variant.u64"
    entries = array("Q", pages)
    if sys.byteorder == "big":
        entries.byteswap()
    file.write_bytes(entries.tobytes())
    command = [refault, "compare", file, "--policy", ",".join(policies), "--memory", SIZES, "--format", "csv"]
    rows = run(command)
    cells = {}
    for row in csv.DictReader(rows.splitlines()):
        cells.setdefault(int(row["memory_pages"]), {})[row["policy"]] = int(row["misses"])
    return {memory: cell for memory, cell in cells.items() if memory >= MIN_MEMORY}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", metavar="TRACE", help="a trace in any format that refault reads")
    parser.add_argument("--refault", default=ROOT / "target/release/refault", metavar="FILE", help="the binary")
    parser.add_argument("--policy", default="adaptive", help="the policy that is examined")
    parser.add_argument("--against", default="lru", metavar="POLICY", help="what it is held against")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS, help="what is made of traces")
    parser.add_argument("--seed", type=int, metavar="N", help="sequences that are drawn at random too, from this seed")
    parser.add_argument("--cells", type=int, default=10, metavar="N", help="how many of the worst cells are printed")
    options = parser.parse_args()
    if not Path(options.refault).exists():
        sys.exit(f"worst_cells.py: no binary: {options.refault}: cargo build --release")
    if options.policy == options.against:
        sys.exit(f"worst_cells.py: {options.policy} against itself saves nothing: --against names another policy")

    saved, groups = [], {}
    with tempfile.TemporaryDirectory() as directory:
        names = [short_name(trace, options.traces) for trace in options.traces]
        traces = {name: load(options.refault, trace, directory) for name, trace in zip(names, options.traces)}
        made = [("sequences", *sequence) for sequence in sequences()]
        if options.seed is not None:
            made += [("drawn sequences", *sequence) for sequence in drawn(options.seed)]
        made = itertools.chain(made, (("traces", *variant) for variant in variants(traces, options.forms)))
        for group, name, pages in made:
            cells = misses(options.refault, pages, [options.against, options.policy], directory) if pages else {}
            for memory, cell in cells.items():
                other, own = cell[options.against], cell[options.policy]
                share = 100 * (other - own) / other
                saved.append((share, name, memory, own, other))
                groups.setdefault(group, []).append(share)

    print(f"{options.policy}: misses saved against {options.against}, %")
    for group, shares in groups.items():
        lost = sum(share < -2 for share in shares)
        mean = sum(shares) / len(shares)
        print(f"  {group}: {len(shares)} cells, mean {mean:.1f}, worst {min(shares):.1f}, {lost} below -2")
    for share, name, memory, own, other in sorted(saved)[: options.cells]:
        print(f"  {share:6.1f}  {name}, {memory:,} pages of memory: {own:,} misses, {options.against} {other:,}")


if __name__ == "__main__":
    main()
