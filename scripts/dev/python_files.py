#!/usr/bin/env python3
"""fsspec's abstract suite and CPython's own tests of files through refault, beside plain: a table.

usage: scripts/dev/python_files.py [--python target/python/bin/python] [SUITE...]

SUITE is fsspec, or a module of CPython's tests; all of python/tests/test_cpython.py unless said otherwise. The interpreter
has what `scripts/dev/python-test --build` installs. Refused by design is what that file lists, with its reasons. Exit status:
0 nothing else differs, 1 something does, 2 wrong usage.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TESTS = os.path.join(ROOT, "python/tests")
SECONDS = 900
LISTED = "import os; os.environ['REFAULT_SUITES'] = 'all'; import test_cpython; print({k: sorted(v) for k, v in test_cpython.SUITES.items()})"


def run(words, home, **variables):
    environment = {**os.environ, "TMPDIR": home, **variables}
    return subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=SECONDS)


def of_cpython(python, name, home):
    """Tests that ran, and those that did not pass, plain and through the cache; and how many files went through."""
    found = []
    for words in (["plain"], []):
        done = run([python, "-W", "ignore", os.path.join(TESTS, "cpython.py"), name, *words], home)
        if done.returncode:
            sys.exit(f"{name}: status {done.returncode}: {done.stderr}")
        *lines, last = done.stdout.splitlines()
        count, *_, opened = (int(word) for word in last.split() if word.isdigit())
        found.append((count, {line.split(" | ")[0] for line in lines if " | " in line}))
    return *found, opened


def of_fsspec(python, home):
    """The same by what lies below."""
    results = {}
    for plain in ("1", "0"):
        report = os.path.join(home, "report.xml")
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", report, os.path.join(TESTS, "test_fsspec_suite.py")]
        run([python, *words], home, REFAULT_PLAIN=plain)
        for case in ElementTree.parse(report).iter("testcase"):
            below = next(name for name in ("Local", "Memory", "Store") if case.get("classname").endswith(name))
            count, failed = results.setdefault(below, {}).get(plain, (0, set()))
            if any(case.find(kind) is not None for kind in ("failure", "error")):
                failed = failed | {case.get("name")}
            results[below][plain] = count + 1, failed
    return {below: (found["1"], found["0"]) for below, found in results.items()}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--python", default=os.path.join(ROOT, "target/python/bin/python"))
    parser.add_argument("suite", nargs="*")
    arguments = parser.parse_intermixed_args()
    # Not resolved: a virtual environment is known by its path.
    python = os.path.abspath(arguments.python)
    listed = subprocess.run([python, "-c", LISTED], cwd=TESTS, check=True, capture_output=True, text=True).stdout
    by_design = eval(listed)  # a dict that the line above prints
    suites = arguments.suite or ["fsspec", *by_design]
    if not set(suites) <= {"fsspec", *by_design}:
        parser.error(f"suites are fsspec, {', '.join(by_design)}")
    differ = 0
    print("| suite | tests | passed plain | passed | by design | differ | files |\n|---|---|---|---|---|---|---|", flush=True)
    for suite in suites:
        # On a file system that does direct I/O, as /tmp may not.
        with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "target")) as home:
            if suite == "fsspec":
                rows = {f"fsspec, {below.lower()}": (*found, "") for below, found in of_fsspec(python, home).items()}
            else:
                rows = {suite: of_cpython(python, suite, home)}
        for name, ((_, plain), (count, ours), opened) in rows.items():
            refused = ours & set(by_design.get(suite, ()))
            wrong = ours - plain - refused
            differ += len(wrong)
            print(f"| {name} | {count} | {count - len(plain)} | {count - len(ours)} | {len(refused - plain)} | {len(wrong)} | {opened} |", flush=True)
            for test in sorted(wrong):
                print(f"    {suite}: {test}", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
