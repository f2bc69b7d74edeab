#!/usr/bin/env python3
"""PHP's own tests under `refault run`: what ends differently from alone.

usage: scripts/dev/php_suite.py REFAULT [--memory 16M] [--source DIR] [--work DIR] [--php /usr/bin/php] [DIRECTORY...]

The tests of the source's directories (Zend/tests, tests and ext/standard/tests, unless others are named) run by its
run-tests.php, which is not managed itself: each PHP that it starts is, under the tool. Without --source, Debian's source
package is fetched into --work. A test that ends otherwise is tried again, alone and under the tool, nothing beside it. Exit status: 0
nothing differs, 1 something does, 2 wrong usage.
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile

import bounded
import debian_source

DIRECTORIES = ["Zend/tests", "tests", "ext/standard/tests"]
# Of the whole, so that one that hangs does not end it: run-tests.php gives each test a minute.
SECONDS = 3600


def run(source, work, executable, tests, at_once):
    """Each test's result ("PASSED", "FAILED", …) by its name."""
    results = os.path.join(work, "results")
    if os.path.exists(results):
        os.remove(results)
    command = ["php", "-n", "run-tests.php", "-q", "-x", "--offline", f"-j{at_once}", "-p", executable, "-W", results, *tests]
    bounded.run(command, SECONDS, source)
    found = {}
    with open(results) as file:
        for line in file:
            result, name = line.rstrip("\n").split("\t", 1)
            found[os.path.relpath(name, source) if os.path.isabs(name) else name] = result
    return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("refault")
    parser.add_argument("--memory", default="16M")
    parser.add_argument("--source")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "php-suite"))
    parser.add_argument("--php", default="/usr/bin/php")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("directory", nargs="*", default=DIRECTORIES)
    arguments = parser.parse_intermixed_args()
    os.makedirs(arguments.work, exist_ok=True)
    version = subprocess.run([arguments.php, "-n", "-r", "echo PHP_MAJOR_VERSION,'.',PHP_MINOR_VERSION;"], capture_output=True, text=True)
    source = arguments.source or debian_source.fetch(f"php{version.stdout}", "php", arguments.work)
    managed = os.path.join(arguments.work, "managed-php")
    with open(managed, "w") as file:
        tool = f"{os.path.abspath(arguments.refault)} run --memory {arguments.memory} --quiet"
        # What a managed PHP starts is managed with it; there is no tool within the tool.
        file.write(f'#!/bin/sh\n[ -z "$REFAULT_AGENT" ] || exec {arguments.php} "$@"\nexec {tool} -- {arguments.php} "$@"\n')
    os.chmod(managed, 0o755)

    alone = run(source, arguments.work, arguments.php, arguments.directory, arguments.at_once)
    under = run(source, arguments.work, managed, arguments.directory, arguments.at_once)
    changed = sorted(name for name, result in alone.items() if under.get(name) != result)
    counts = ", ".join(f"{number} {result}" for result, number in collections.Counter(alone.values()).most_common())
    print(f"{len(alone)} tests, alone {counts}; {len(alone) - len(changed)} the same under the tool", flush=True)
    differ = 0
    for name in changed:
        again = [run(source, arguments.work, php, [name], 1).get(name) for php in (arguments.php, managed)]
        differ += again[0] != again[1]
        print(f"  {name}: {alone[name]} alone, {under.get(name)} under the tool; again {again[0]}, {again[1]}", flush=True)
    print(f"{differ} end otherwise twice")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
