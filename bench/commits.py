#!/usr/bin/env python3
"""SQLite through refault's VFS beside its default one: single commits, and look-ups in a database four times the memory.

    sudo bench/commits.py --extension FILE [--runs 5] [--seconds 3] [--memory 16] [ROW ...]

ROW is delete or wal with full, normal or off (`delete-full`), for commits of one changed row each; or lookups. --extension is
what scripts/sqlite-extension builds. Each run is a process in a memory cgroup, both sides in the same: --memory MiB and what
a process takes that does nothing. Prints medians of what is done in a second, the least and the most, and the median of the
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

#: For the interpreter, which takes some 20 MiB when it does nothing.
ALLOWANCE = 32 << 20
PAYLOAD = 400
ROWS = [f"{journal}-{level}" for journal in ("delete", "wal") for level in ("full", "normal", "off")] + ["lookups"]
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
    if row != "lookups":
        connection.execute(f"PRAGMA synchronous = {row.split('-')[1]}")
    statement = "SELECT x FROM t WHERE id = ?" if row == "lookups" else "UPDATE t SET x = randomblob(400) WHERE id = ?"
    done, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        connection.execute(statement, (numbers.randrange(rows),)).fetchall()
        done += 1
    print(done / (time.perf_counter() - began))
    connection.close()


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
    print(f"{asked.memory} MiB, medians of {asked.runs} runs of {asked.seconds:g} s in turn, per second (least and most)")
    print("| row | plain | refault | refault / plain |\n|---|---|---|---|", flush=True)
    for row in asked.rows or ROWS:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as directory:
            path = os.path.join(directory, "data.db")
            # What is committed to fits; what is looked up does not.
            size = 4 * memory if row == "lookups" else memory // 4
            rows = make(path, size, "delete" if row == "lookups" else row.split("-")[0])
            found = {side: [] for side in SIDES}
            for turn in range(asked.runs):
                for side in SIDES[:: 1 - turn % 2 * 2]:
                    forget(path)
                    group = Group(memory + ALLOWANCE)
                    words = [sys.executable, os.path.abspath(__file__), "--child", row, side, path, str(rows), str(asked.seconds),
                             str(memory), os.path.abspath(asked.extension)]
                    ran = subprocess.run(group.command(words), capture_output=True, text=True)
                    group.close()
                    if ran.returncode:
                        sys.exit(f"{row}, {side}: status {ran.returncode}: {ran.stderr}")
                    found[side].append(float(ran.stdout))
        ratio = statistics.median(ours / plain for plain, ours in zip(*(found[side] for side in SIDES)))
        cells = [f"{statistics.median(found[side]):.0f} ({min(found[side]):.0f}–{max(found[side]):.0f})" for side in SIDES]
        print(f"| {row} | {cells[0]} | {cells[1]} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
