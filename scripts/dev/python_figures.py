"""What the Python package finds, as lines to compare: machines of every kind must print the same.

    python scripts/dev/python_figures.py            figures of the lab, one line each
    python scripts/dev/python_figures.py refusals   what is said where there is no userfaultfd, and that nothing is left behind

Times and speeds are left out; all else is printed to the last digit. scripts/dev/python-aarch64-test compares.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import refault

TIMES = ("wall_seconds", "accesses_per_second")
WORKLOADS = (
    "zipf:theta=1,pages=2000,accesses=40000",
    "zipf:theta=0.7,pages=3000,accesses=30000,kind=fd,writes=0.25",
    "mixed:apages=1000,fpages=500,accesses=20000,writes=0.25",
)
MACHINE = Path(__file__).parents[2].joinpath("python", "tests", "small_machine.toml").read_text(encoding="utf-8")


def say(name, what):
    print(name, json.dumps(what, default=lambda value: value.item()), flush=True)


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def without_times(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


class PythonFifo(refault.PythonPolicy):
    """First in, first out."""

    name = "python-fifo"

    def start(self, memory_pages):
        self.order = []

    def hit(self, page):
        pass

    def admit(self, page):
        self.order.append(page)

    def evict(self):
        return self.order.pop(0)


def figures():
    say("policies", refault.policies())
    for spec in WORKLOADS:
        trace = refault.Trace.workload(spec)
        arrays = trace.to_arrays()
        say(f"pages of {spec}", {name: digest(array) for name, array in arrays.items() if array is not None})
        result = refault.compare(trace, "all", ["10%", "50%"])
        say(f"compare {spec}", without_times(result.rows))
        say(f"verdict {spec}", result.verdict)
        table = result.to_pandas().drop(columns=list(TIMES))
        say(f"to_pandas {spec}", table.to_csv(index=False))
        curves = refault.mrc(trace, ["lru", "mglru", "arc"], ["5%", "10%", "50%"])
        sizes = (1, 10, 100, 500, 1000)
        say(f"mrc {spec}", [[curves.at(size, policy) for size in sizes] for policy in ("lru", "mglru", "arc")])
        say(f"memory for {spec}", curves.memory_for(0.4))
    trace = refault.Trace.workload(WORKLOADS[0])
    say("python policy", without_times(refault.compare(trace, ["fifo", PythonFifo], ["10%", "25%"]).rows))
    array = refault.Trace(np.tile(np.arange(100, dtype=np.uint64), 20), name="loop")
    say("array", without_times(refault.compare(array, ["lru", "opt", "lirs"], "50%").rows))
    pages = trace.pages()[:20000]
    for entry in refault.policies():
        if entry["family"] == "bound":
            continue
        policy = refault.Policy(entry["name"], memory_pages=200, pages=2000)
        hits = np.array([policy.access(int(page)) for page in pages])
        found = [int(hits.sum()), digest(hits), digest(policy.resident()), policy.next_victims(), policy.counters()]
        say(f"step by step {entry['name']}", found)
    say("scenario", json.loads(refault.scenario(MACHINE, ["classic", "mglru"], ["4M", "50%"]).to_json()))
    say("experiment", json.loads(refault.reproduce("freepool", small=True).to_json()))


def refusals():
    """OSError with a sentence, for each way to have memory paged; the interpreter is none the worse for it."""
    ways = {
        "Budget": lambda: refault.Budget("1M"),
        "zeros": lambda: refault.zeros(10, budget="1M"),
        "empty": lambda: refault.empty((3, 4), budget="1M"),
        "full": lambda: refault.full(10, 7, budget="1M"),
        "array_like": lambda: refault.array_like(np.arange(3), budget="1M"),
        "budget": lambda: refault.budget("1M").__enter__(),
    }
    wrong = 0
    for name, way in ways.items():
        try:
            way()
        except OSError as error:
            sentence = error.strerror or str(error)
            print(f"{name}: OSError {error.errno}: {sentence}")
            wrong += "userfaultfd" not in sentence
        else:
            print(f"{name}: no error")
            wrong += 1
    # NumPy's own memory is what it was.
    wrong += int(np.arange(1_000_000).sum()) != 499999500000
    sys.exit(wrong != 0)


if __name__ == "__main__":
    refusals() if sys.argv[1:] == ["refusals"] else figures()
