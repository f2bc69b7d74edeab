#!/usr/bin/env python3
"""CPython's own tests under `refault run`: what ends differently from alone.

usage: scripts/dev/python_suite.py REFAULT [--memory 32M] [--python /usr/bin/python3] [--with=OPTION]... MODULE...

Each module (test_gc, test_socket, ...) runs by `python3 -m test`, alone and then under the tool; each of its tests is
compared. A test that says something else under the tool is tried once more there, without the others of its module, so that
what depends on time is told apart. Debian has the tests in libpython3.11-testsuite. Exit status: 0 nothing differs, 1
something does, 2 wrong usage.
"""

import argparse
import os
import sys
import tempfile
from xml.etree import ElementTree

import bounded

ALONE_SECONDS = 120


def outcome(case):
    for kind in ("failure", "error", "skipped"):
        if case.find(kind) is not None:
            return kind
    return "ok"


class Run:
    """One run of a module: how it ended and what each of its tests said."""

    def __init__(self, prefix, python, module, limit, match=()):
        with tempfile.TemporaryDirectory(prefix="suite-", ignore_cleanup_errors=True) as home:
            report = os.path.join(home, "report.xml")
            command = [*prefix, python, "-m", "test", "--junit-xml", report, "--tempdir", home]
            for name in match:
                command += ["-m", name]
            self.text, self.end, self.seconds = bounded.run([*command, module], limit, home)
            self.tests = {}
            if os.path.exists(report):
                for case in ElementTree.parse(report).iter("testcase"):
                    self.tests[case.get("name")] = outcome(case)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("refault")
    parser.add_argument("--memory", default="32M")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--with", dest="options", action="append", default=[], metavar="OPTION")
    parser.add_argument("--logs", help="a directory for what the modules that differ print")
    parser.add_argument("module", nargs="+")
    arguments = parser.parse_intermixed_args()
    prefix = [os.path.abspath(arguments.refault), "run", "--memory", arguments.memory, *arguments.options, "--"]
    modules = tests = differ = 0
    for module in arguments.module:
        alone = Run([], arguments.python, module, ALONE_SECONDS)
        if alone.end == "not ended" or not alone.tests:
            print(f"{module:28} does not run alone here (status {alone.end})", flush=True)
            continue
        limit = 60 + 5 * alone.seconds
        managed = Run(prefix, arguments.python, module, limit)
        changed = {name for name, said in alone.tests.items() if managed.tests.get(name) != said}
        again = {}
        if managed.tests and changed:
            again = Run(prefix, arguments.python, module, limit, [name.rsplit(".", 1)[-1] for name in changed]).tests
        modules += 1
        tests += len(alone.tests)
        status = "" if managed.end == alone.end else f"  status {alone.end}, managed {managed.end}"
        same = len(alone.tests) - len(changed)
        times = f"{alone.seconds:6.1f} s, {managed.seconds:6.1f} s"
        print(f"{module:28} {same:5} of {len(alone.tests):5} the same  {times}{status}", flush=True)
        for name in sorted(changed) if managed.tests else []:
            differ += 1
            said = f"{alone.tests[name]}, managed {managed.tests.get(name)}, again {again.get(name)}"
            print(f"    {name}: {said}", flush=True)
        # One more where no test says it: another exit status, or no report.
        differ += not managed.tests or bool(status and not changed)
        if arguments.logs and (changed or status):
            os.makedirs(arguments.logs, exist_ok=True)
            with open(os.path.join(arguments.logs, module), "w", encoding="utf-8") as file:
                file.write(managed.text)
    print(f"{modules} modules, {tests} tests, {differ} differ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
