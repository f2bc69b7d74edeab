#!/usr/bin/env python3
"""How far the advice of `refault run` is from the budget at which refaults end, of the gauntlet's programs.

Each program runs with ample memory, which tells its peak. Then it runs with parts of that, which gives advice. The budget at
which refaults end is found by bisection, with a run for each step: the smallest under which hardly any are left. A program that
cannot be managed, or whose refaults cannot be bisected, is named with the reason.

    scripts/dev/advice.py [--refault PATH] [--parts 0.5,0.75] [--csv FILE] [PROGRAM ...]
"""

import argparse
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "crates" / "refault-proof" / "programs"
MIB = 1 << 20
#: Fewer refaults are hardly any, for `refault run` too.
MIN_REFAULTS = 32
#: How close the bisection ends, as a part of the peak.
CLOSE = 0.02
#: The error that is promised.
PROMISED = 0.15
#: A run is ended after this multiple of the program's time with ample memory, and this number of seconds more.
PATIENCE = (60, 20)


def shell(command, directory, prefix=(), limit=None):
    """Runs a shell command; its status, or None if it took too long."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    child = subprocess.Popen(
        [*prefix, "bash", "-c", command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.wait()
        return None


class Program:
    """A program of the gauntlet, and the runs of it."""

    def __init__(self, row, refault, directory):
        self.row, self.refault, self.directory = row, refault, directory
        self.runs = {}
        self.limit = None

    def why_not(self):
        """What is missing to run it; None if nothing is."""
        path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/games"])
        for name in self.row.get("needs", []):
            if not shutil.which(name, path=path):
                return f"missing: {name}"
        if self.row.get("unmanaged"):
            return "cannot be managed"
        for step in ("check", "prepare"):
            if step in self.row and shell(self.row[step], self.directory) != 0:
                return f"{step} failed"
        return None

    def under(self, bytes_):
        """What a run under a budget came to; None if it took too long or failed."""
        if bytes_ not in self.runs:
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                begun = time.monotonic()
                options = ["run", "--memory", str(bytes_), "--quiet", "--summary", file.name, "--"]
                status = shell(self.row["command"], self.directory, [self.refault, *options], self.limit)
                summary = json.load(open(file.name)) if status == 0 else None
                if summary:
                    summary["took"] = time.monotonic() - begun
                self.runs[bytes_] = summary
        return self.runs[bytes_]

    def ends_at(self, low, high):
        """The smallest budget between two under which hardly any page comes back."""
        while high - low > CLOSE * self.peak:
            middle = round_to_64k((low + high) / 2)
            summary = self.under(middle)
            if summary and summary["refaults"] < MIN_REFAULTS:
                high = middle
            else:
                low = middle
        return high

    def measure(self, parts):
        """Rows of the table, or a reason."""
        ample = self.under(1 << 36)
        if not ample:
            return "fails with ample memory"
        self.peak = ample["peak_bytes"]
        self.limit = PATIENCE[0] * ample["took"] + PATIENCE[1]
        if ample["refaults"] >= MIN_REFAULTS:
            return "refaults with ample memory"
        rows = []
        reference = None
        for part in sorted(parts):
            budget = round_to_64k(part * self.peak)
            summary = self.under(budget)
            if not summary:
                print(f"{self.row['name']}: does not end under {part} of its peak", file=sys.stderr)
                continue
            reference = reference or (budget, summary["refaults"])
            rows.append((part, budget, summary))
        if not reference:
            return "ends under no part of its peak"
        low, refaults = reference
        if refaults < MIN_REFAULTS:
            return [self.line(part, budget, summary, None) for part, budget, summary in rows]
        high = round_to_64k(1.05 * self.peak)
        end = self.ends_at(low, high)
        return [self.line(part, budget, summary, end) for part, budget, summary in rows]

    def line(self, part, budget, summary, end):
        advised = summary["would_stop_refaulting_at_bytes"]
        return {
            "program": self.row["name"],
            "part": part,
            "budget": budget / MIB,
            "peak": self.peak / MIB,
            "refaults": summary["refaults"],
            "followed": summary["followed_refaults"],
            "advice": summary["advice"],
            "advised": advised and advised / MIB,
            "bisected": end and end / MIB,
            "ratio": advised and end and advised / end,
            "over peak": advised and advised / self.peak,
        }


def round_to_64k(bytes_):
    return max(2 * MIB, int(bytes_) >> 16 << 16)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refault", default="target/release/refault")
    parser.add_argument("--parts", default="0.5,0.75")
    parser.add_argument("--csv")
    parser.add_argument("--runs", help="a file for every run, as JSON")
    parser.add_argument("program", nargs="*")
    arguments = parser.parse_args()
    refault = os.path.abspath(arguments.refault)
    parts = [float(part) for part in arguments.parts.split(",")]
    table = tomllib.loads((PROGRAMS / "gauntlet.toml").read_text())["program"]
    writer = None
    outside = 0
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(PROGRAMS, directory, dirs_exist_ok=True)
        for row in table:
            if arguments.program and row["name"] not in arguments.program:
                continue
            program = Program(row, refault, directory)
            found = program.why_not() or program.measure(parts)
            if isinstance(found, str):
                print(f"{row['name']}: {found}", flush=True)
                continue
            if arguments.runs:
                with open(arguments.runs, "a") as file:
                    for budget, summary in sorted(program.runs.items()):
                        print(json.dumps({"name": row["name"], "budget": budget, "summary": summary}), file=file)
            for line in found:
                ratio = line["ratio"]
                is_outside = ratio is not None and (abs(ratio - 1) > PROMISED or line["over peak"] > 1.02)
                outside += is_outside
                cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in line.values()]
                print(" | ".join(cells), "OUTSIDE" if is_outside else "", flush=True)
                if arguments.csv:
                    if not writer:
                        writer = csv.DictWriter(open(arguments.csv, "w", newline=""), line)
                        writer.writeheader()
                    writer.writerow(line)
    print(f"{outside} outside")
    sys.exit(outside > 0)


if __name__ == "__main__":
    main()
