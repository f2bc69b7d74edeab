#!/usr/bin/env python3
"""SQLite through refault's VFS beside its default one: single commits, and look-ups in a database four times the memory.

    sudo bench/commits.py --extension FILE [--runs 5] [--seconds 3] [--memory 16] [ROW ...]

ROW is delete or wal with full, normal or off (`delete-full`), for commits of one changed row each; lookups of rows at random;
or skewed, three of four look-ups in a tenth of the rows. --extension is
what scripts/sqlite-extension builds. Each run is a process in a memory cgroup, both sides in the same: --memory MiB and what
refault's is charged beside that by look-ups, and 1 MiB for what differs from run to run. Prints medians of what is done in a second, the least and the most, and the median of the
ratios of runs that follow each other. Databases are made in the current directory, which must be on a disk with direct I/O.
"""

import argparse
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

from beside import Group, forget

SLACK = 1 << 20
PAYLOAD = 400
ROWS = [f"{journal}-{level}" for journal in ("delete", "wal") for level in ("full", "normal", "off")] + ["lookups", "skewed"]
SIDES = ("plain", "refault")


def make(path, size, journal):
    """A database of `size` bytes; how many rows it has."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB)")
    connection.execute("BEGIN")
    rows = size // PAYLOAD
    connection.executemany("INSERT INTO t VALUES(?, randomblob(?))", ((number, PAYLOAD) for number in range(rows)))
    connection.execute("COMMIT")
    connection.close()
    return rows


def child(row, side, path, rows, seconds, memory, extension):
    """One run: prints how often it did the work in a second."""
    if side == "refault":
        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        loader.execute("SELECT load_extension(?, 'sqlite3_refaultvfs_init')", (extension,))
        name = f"file:{path}?vfs=refault&refault_memory={memory}"
    else:
        name = f"file:{path}"
    connection = sqlite3.connect(name, uri=True, isolation_level=None)
    numbers = random.Random(1)
    reads = "-" not in row
    if not reads:
        connection.execute(f"PRAGMA synchronous = {row.split('-')[1]}")
    statement = "SELECT x FROM t WHERE id = ?" if reads else "UPDATE t SET x = randomblob(400) WHERE id = ?"
    done, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        within = rows // 10 if row == "skewed" and numbers.random() < 0.75 else rows
        connection.execute(statement, (numbers.randrange(within),)).fetchall()
        done += 1
    print(done / (time.perf_counter() - began))
    connection.close()


def run(row, side, path, rows, seconds, memory, extension, limit):
    """What a child prints, and what it was charged at most."""
    group = Group(limit)
    words = [sys.executable, os.path.abspath(__file__), "--child", row, side, path, str(rows), str(seconds), str(memory), extension]
    ran = subprocess.run(group.command(words), capture_output=True, text=True)
    peak = group.peak()
    group.close()
    if ran.returncode:
        sys.exit(f"{row}, {side}: status {ran.returncode}: {ran.stderr}")
    return ran.stdout, peak


def beside(memory, extension):
    """Bytes that a process is charged beside its cache: the interpreter, SQLite's own cache, and the records of the pages."""
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as directory:
        path = os.path.join(directory, "data.db")
        rows = make(path, 4 * memory, "delete")
        # Past the kernel's page cache, so that nothing else is charged.
        return run("lookups", "refault", path, rows, 3, memory, extension, 1 << 30)[1] - memory + SLACK


def main():
    if sys.argv[1:2] == ["--child"]:
        row, side, path, rows, seconds, memory, extension = sys.argv[2:]
        child(row, side, path, int(rows), float(seconds), int(memory), extension)
        return
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--extension", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--memory", type=int, default=16)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    asked = parser.parse_args()
    if not set(asked.rows) <= set(ROWS):
        parser.error(f"rows are {', '.join(ROWS)}")
    memory = asked.memory << 20
    extension = os.path.abspath(asked.extension)
    limit = memory + beside(memory, extension)
    print(f"{asked.memory} MiB of {limit / (1 << 20):.0f} in the cgroup, medians of {asked.runs} runs of {asked.seconds:g} s in turn, per second (least and most)")
    print("| row | plain | refault | refault / plain |\n|---|---|---|---|", flush=True)
    for row in asked.rows or ROWS:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as directory:
            path = os.path.join(directory, "data.db")
            # What is committed to fits; what is looked up does not.
            reads = "-" not in row
            rows = make(path, 4 * memory if reads else memory // 4, "delete" if reads else row.split("-")[0])
            found = {side: [] for side in SIDES}
            for turn in range(asked.runs):
                for side in SIDES[:: 1 - turn % 2 * 2]:
                    forget(path)
                    found[side].append(float(run(row, side, path, rows, asked.seconds, memory, extension, limit)[0]))
        ratio = statistics.median(ours / plain for plain, ours in zip(*(found[side] for side in SIDES)))
        cells = [f"{statistics.median(found[side]):.0f} ({min(found[side]):.0f}–{max(found[side]):.0f})" for side in SIDES]
        print(f"| {row} | {cells[0]} | {cells[1]} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
