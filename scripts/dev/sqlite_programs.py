#!/usr/bin/env python3
"""SQLite's own programs for speed, threads and processes over refault's VFS, beside its default one: a table.

usage: scripts/dev/sqlite_programs.py [--memory 4M] [--quick] [--source DIR] [--archive FILE] [--work DIR] [PROGRAM...]

PROGRAM is speedtest1, kvtest, threadtest3 or mptester; all unless said otherwise. --quick takes those loads of each that end
within seconds, and SQLite optimised less. Each runs its loads over both, in new
directories, and has to say the same: a hash of all answers, an integrity check, no error of a thread or a process. Without
--source, Debian's source package is fetched into --work. FILE is an archive of the C library that is built already. Seconds
are of one run each: ratios of a quiet machine only. Exit status: 0 nothing differs, 1 something does, 2 wrong usage, 3 the
source cannot be fetched.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

import bounded
import debian_source

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc".split()
SECONDS = 300
#: Loads of --quick.
QUICK = {"main, delete", "main, wal", "orm, wal", "all kinds", "walthread5"}
KINDS = ("", "--random", "--rowid-scan", "--update", "--blob-api", "--desc", "--cache-size 10")


def loads(source):
    """Program: its file, and loads by name, each of commands that follow each other."""
    journals = ("delete", "wal")
    mptest = f"{source}/mptest"
    return {
        "speedtest1": ("test/speedtest1.c", {
            f"{test}, {journal}": [f"--verify --size 8 --testset {test} --journal {journal} db"]
            for test in ("main", "cte", "rtree", "orm") for journal in journals}),
        "kvtest": ("test/kvtest.c", {"all kinds": [
            "init db --count 4000 --size 8000 --variance 4000",
            *(f"run db --count 4000 --integrity-check {kind}" for kind in KINDS), "stat db"]}),
        "threadtest3": ("test/threadtest3.c", {
            name: [name] for name in ("walthread1", "walthread2", "walthread3", "walthread4", "walthread5", "stress1")}),
        "mptester": ("mptest/mptest.c", {
            f"{name}, {journal}": [f"db {mptest}/{name}.test --journalmode {journal} --timeout 60000"]
            for name in ("multiwrite01", "crash01") for journal in journals}),
    }


def build(arguments):
    """SQLite with the VFS in one object, which all programs are linked with."""
    try:
        source = os.path.abspath(arguments.source or debian_source.fetch("sqlite3", "sqlite3", arguments.work))
    except subprocess.CalledProcessError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    if not os.path.exists(f"{source}/sqlite3.c"):
        subprocess.run(["./configure", "--enable-all"], check=True, cwd=source, stdout=subprocess.DEVNULL)
        subprocess.run(["make", "sqlite3.c"], check=True, cwd=source, stdout=subprocess.DEVNULL)
    root = os.path.dirname(os.path.dirname(HERE))
    archive = arguments.archive
    if not archive:
        subprocess.run(["cargo", "build", "--release", "-p", "refault-c"], check=True, cwd=root)
        archive = os.path.join(root, os.environ.get("CARGO_TARGET_DIR", "target"), "release/librefault_c.a")
    crate = f"{root}/crates/refault-c"
    flags = ["-O0" if arguments.quick else "-O2", "-w", "-pthread", "-DSQLITE_CORE", "-DSQLITE_THREADSAFE=1", "-DSQLITE_ENABLE_RTREE",
             "-DSQLITE_EXTRA_INIT=refault_programs_init", "-I", source, "-I", f"{crate}/include", "-I", f"{crate}/sqlite"]
    parts = [f"{source}/sqlite3.c", f"{crate}/sqlite/refault_vfs.c", f"{HERE}/sqlite_programs.c"]
    objects = []
    for part in parts:
        objects.append(os.path.join(arguments.work, os.path.basename(part).replace(".c", ".o")))
        if not (part.startswith(source) and os.path.exists(objects[-1])):
            subprocess.run(["cc", *flags, "-c", part, "-o", objects[-1]], check=True)
    for program, (file, _) in loads(source).items():
        more = [f"{source}/src/test_multiplex.c"] if program == "threadtest3" else []
        command = ["cc", *flags, f"{source}/{file}", "-I", f"{source}/src", *more, *objects, archive, "-o", os.path.join(arguments.work, program)]
        if program in arguments.program:
            subprocess.run([*command, "-Wl,--gc-sections", *LIBRARIES], check=True)
    return source


def said(text):
    """What has to be the same: not times, addresses or the order of threads."""
    hashes = re.findall(r"^Verification Hash: (.*)$", text, re.M)
    errors = re.findall(r"(\d+) errors?\b", text)
    wrong = re.findall(r"^.*(?:malformed|corrupt|disk I/O error|integrity.check.*(?!ok)fail).*$", text, re.M | re.I)
    return hashes, [count for count in errors if count != "0"], wrong


def run(arguments, program, commands, variables):
    """How the loads ended, and how long they took."""
    home = tempfile.mkdtemp(prefix="programs-", dir=arguments.work)
    results, total = [], 0.0
    for command in commands:
        words = ["env", *variables, os.path.join(arguments.work, program), *command.split()]
        text, end, seconds = bounded.run(words, SECONDS, home)
        results.append((end, *said(text)))
        total += seconds
    shutil.rmtree(home)
    return results, total


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--memory", default="4M")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--source")
    parser.add_argument("--archive")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "sqlite-programs"))
    parser.add_argument("program", nargs="*", default=list(loads("")))
    arguments = parser.parse_intermixed_args()
    if not set(arguments.program) <= set(loads("")):
        parser.error(f"programs are {', '.join(loads(''))}")
    os.makedirs(arguments.work, exist_ok=True)
    arguments.work = os.path.abspath(arguments.work)
    source = build(arguments)
    ours = ["REFAULT_PROGRAMS=1", f"REFAULT_MEMORY={arguments.memory}"]
    differ = 0
    print("| program | load | same | seconds, plain and refault |\n|---|---|---|---|", flush=True)
    for program in arguments.program:
        for name, commands in loads(source)[program][1].items():
            if arguments.quick and name not in QUICK:
                continue
            plain, before = run(arguments, program, commands, [])
            cached, after = run(arguments, program, commands, ours)
            differ += plain != cached
            print(f"| {program} | {name} | {'yes' if plain == cached else 'no'} | {before:.1f}, {after:.1f} |", flush=True)
            for one, other in zip(plain, cached):
                if one != other:
                    print(f"    plain {one}\n    refault {other}", file=sys.stderr, flush=True)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
