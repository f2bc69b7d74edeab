#!/bin/sh
# libcachesim 0.3.5 (PyPI): the policy GDSF.
#
# Behaviour that a user would not guess: every other policy there evicts until a missing object fits and then admits it.
# GDSF admits it first, so that the new object may be the one that goes, and ages the cache by it. The paper (Cherkasova,
# HPL-98-69, section 3) keeps such an object out, evicts nothing and lets the cache's age stand. The sources that are
# published with the name evict first. So three numbers of misses are seen for one policy:
#
# Seen: "libcachesim 666, admit first 666, evict first 1188, paper 646" misses of 20,000.
# Exit 0: as described; 1: it has changed; 77: the package cannot be installed.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 77
python3 -m venv v && v/bin/pip -q install libcachesim==0.3.5 >/dev/null 2>&1 || exit 77
cat > gdsf.py <<'P'
import random
import sys

from libcachesim import GDSF, ReaderInitParam, TraceReader, TraceType

LIMIT = 1 << 20
random.seed(5)
count, objects = 20_000, 392
sizes = [min(int(random.paretovariate(1.1) * 800), 400_000) for _ in range(objects)]
sequence = random.choices(range(objects), [1 / (rank + 1) ** 0.9 for rank in range(objects)], k=count)
with open("t.csv", "w") as file:
    for time, asked in enumerate(sequence):
        file.write(f"{time},{asked + 1},{sizes[asked]}\n")


def misses(how):
    """Of Greedy-Dual-Size-Frequency in a dictionary of worth, accesses and last use."""
    held, age, used, missed = {}, 0.0, 0, 0
    rank = lambda each: (held[each][0], held[each][2])
    for now, asked in enumerate(sequence):
        size = sizes[asked]
        if asked in held:
            accesses = held[asked][1] + 1
            held[asked] = (age + accesses / size, accesses, now)
            continue
        missed += 1
        new = (age + 1 / size, 1, now)
        if how == "evict first":
            while used + size > LIMIT:
                least = min(held, key=rank)
                age, used = held.pop(least)[0], used - sizes[least]
            new = (age + 1 / size, 1, now)
        held[asked] = new
        used += size
        going, left = [], used
        for each in sorted(held, key=rank):
            if left <= LIMIT:
                break
            left -= sizes[each]
            going.append(each)
        if how == "paper" and asked in going:
            going, left = [asked], used - size
            held.pop(asked)
        else:
            for each in going:
                age = held.pop(each)[0]
        used = left
    return missed


params = ReaderInitParam(has_header=False, delimiter=",", obj_id_is_num=True)
params.time_field, params.obj_id_field, params.obj_size_field = 1, 2, 3
reader = TraceReader(trace="t.csv", trace_type=TraceType.CSV_TRACE, reader_init_params=params)
ratio, _ = GDSF(cache_size=LIMIT).process_trace(reader)
found = round(ratio * count)
first, late, paper = misses("admit first"), misses("evict first"), misses("paper")
print(f"libcachesim {found}, admit first {first}, evict first {late}, paper {paper}")
sys.exit(not (found == first and len({first, late, paper}) == 3))
P
v/bin/python gdsf.py 2>&1 | grep -a -v 'INFO'
v/bin/python gdsf.py >/dev/null 2>&1 || exit 1
