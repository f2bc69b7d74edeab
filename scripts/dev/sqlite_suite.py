#!/usr/bin/env python3
"""SQLite's own tests through refault's VFS: what they say otherwise than through SQLite's default one.

usage: scripts/dev/sqlite_suite.py [--memory 4M] [--named-unix] [--source DIR] [--archive FILE] [--work DIR] [TEST...]

TEST is a pattern of names in the source's folder `test`, such as "wal*"; some of the core unless said otherwise. Each runs
by SQLite's test program, as it is and with refault's VFS as the default one (sqlite_suite.c), and all that its checks say is
compared. Without --source, Debian's source package is fetched into --work, and its test program built (needs tcl-dev).
FILE is an archive of the C library that is built already. As root, the tests run as the user 65534, because many check what
permissions forbid. With --named-unix the VFS has the name of the default one, without which some files skip themselves.
What is written need not reach the device, as SQLite's test program has it: REFAULT_SUITE_SYNC=1 says otherwise. Exit
status: 0 nothing differs, 1 something does, 2 wrong usage.
"""

import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import bounded
import debian_source

CORE = ("select* insert* delete* update* index* trans* savepoint* rollback* journal* jrnlmode* pager* wal* lock* io ioerr* "
        "backup* vacuum* autovacuum* incrvacuum* memsubsys* mmap* tempdb* shared* busy* unixexcl exclusive* zerodamage "
        "crash* corrupt* tkt* fts3* fts4* attach* misc* e_*").split()
HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc".split()
ALONE_SECONDS = 120
# Most of a test is many small writes, which cost this VFS more.
SECONDS = 360


def build(arguments):
    """The test program and the VFS for it."""
    source = arguments.source or debian_source.fetch("sqlite3", "sqlite3", arguments.work)
    program = os.path.join(source, "testfixture")
    if not os.path.exists(program):
        subprocess.run(["./configure", "--enable-all"], check=True, cwd=source, stdout=subprocess.DEVNULL)
        flags = "-O1 -DSQLITE_EXTRA_INIT=refault_suite_init"
        libraries = f"-DSTARTS {HERE}/sqlite_suite.c -rdynamic -ltcl8.6 -lm -ldl -lz -lpthread"
        command = ["make", "testfixture", f"CFLAGS={flags}", f"LIBTCL={libraries}"]
        subprocess.run(command, check=True, cwd=source, stdout=subprocess.DEVNULL)
    root = os.path.dirname(os.path.dirname(HERE))
    archive = arguments.archive
    if not archive:
        subprocess.run(["cargo", "build", "--release", "-p", "refault-c"], check=True, cwd=root)
        archive = os.path.join(root, os.environ.get("CARGO_TARGET_DIR", "target"), "release/librefault_c.a")
    vfs = os.path.join(arguments.work, "suite.so")
    crate = os.path.join(root, "crates/refault-c")
    command = ["cc", "-shared", "-fPIC", "-O2", "-g", "-fvisibility=hidden", "-DSQLITE_CORE", "-o", vfs, "-I", source,
               "-I", f"{crate}/include", "-I", f"{crate}/sqlite", f"{HERE}/sqlite_suite.c", archive,
               "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", *LIBRARIES]
    subprocess.run(command, check=True)
    return source, vfs


class Run:
    """One run of a file of tests: how it ended, how many checks it had and which of them failed, with what they got."""

    def __init__(self, source, test, work, limit, variables):
        home = tempfile.mkdtemp(prefix="suite-", dir=work)
        command = ["nice", "-n", "10", "env", *variables, f"{source}/testfixture", f"{source}/test/{test}.test"]
        if os.geteuid() == 0:
            os.chown(home, 65534, 65534)
            command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
        self.text, self.end, self.seconds = bounded.run(command, limit, home)
        shutil.rmtree(home)
        summary = re.search(r"^(\d+) errors out of (\d+) tests", self.text, re.M)
        self.checks = int(summary.group(2)) if summary else 0
        self.failed = dict(re.findall(r"^! (\S+) got: +(.*)$", self.text, re.M))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--memory", default="4M")
    parser.add_argument("--named-unix", action="store_true")
    parser.add_argument("--source")
    parser.add_argument("--archive")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "sqlite-suite"))
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("test", nargs="*", default=CORE)
    arguments = parser.parse_intermixed_args()
    os.makedirs(arguments.work, exist_ok=True)
    source, vfs = build(arguments)
    source = os.path.abspath(source)
    variables = [f"REFAULT_SUITE_VFS={vfs}", f"REFAULT_MEMORY={arguments.memory}"]
    if arguments.named_unix:
        variables.append("REFAULT_SUITE_NAME=unix")
    paths = sorted({path for test in arguments.test for path in glob.glob(f"{source}/test/{test}.test")})
    tests = [os.path.basename(path).removesuffix(".test") for path in paths]

    def compare(test):
        alone = Run(source, test, arguments.work, ALONE_SECONDS, [])
        return test, alone, alone.checks and Run(source, test, arguments.work, SECONDS, variables)

    checks = same = left = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        for test, alone, ours in pool.map(compare, tests):
            if not alone.checks:
                left += 1
                print(f"{test:20} does not run alone here (status {alone.end})", flush=True)
                continue
            checks += alone.checks
            # How often a fault is tried depends on how many calls there are; then only the failures are compared.
            as_many = ours.checks == alone.checks or ("fault" in ours.text or "ioerr" in ours.text) and ours.checks
            if as_many and (ours.end, ours.failed) == (alone.end, alone.failed):
                same += 1
                continue
            said = ", ".join(f"{name} got {got[:60]}" for name, got in ours.failed.items() if alone.failed.get(name) != got)
            print(f"{test:20} {alone.checks} checks, {ours.checks or 'not all'} with the VFS in {ours.seconds:.0f} s, "
                  f"alone {alone.seconds:.0f} (status {alone.end}, {ours.end}): {said}", flush=True)
    ran = len(tests) - left
    print(f"{ran} files with {checks} checks, {same} the same, {ran - same} differ; {left} do not run alone")
    return 1 if ran != same else 0


if __name__ == "__main__":
    sys.exit(main())
