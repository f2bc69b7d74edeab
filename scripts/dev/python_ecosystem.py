#!/usr/bin/env python3
"""The test suites of libraries for arrays and files through refault's doors, beside plain: a table.

usage: scripts/dev/python_ecosystem.py [--work target/ecosystem] [--wheel WHEEL] [--seconds 900] [--logs DIR] [SUITE...]

All suites unless said otherwise (--list names them). An environment with the libraries is made in --work, which has to be on
a file system that does direct I/O; WHEEL is the newest in target/wheels, which scripts/dev/python-test builds. Each suite
runs by pytest, as it is and through a door (scripts/dev/python_doors.py), and each of its tests is compared; one that says
something else through the door is tried once more both ways, so that what depends on time or order is told apart. SECONDS
bound each run. Exit status: 0 nothing differs that is not refused by design, 1 something does, 2 wrong usage.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from xml.etree import ElementTree

import bounded

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARIES = ("pytest pytest-timeout pytest-asyncio hypothesis numpy pandas pyarrow h5py zarr[remote] dask[dataframe] fsspec "
             "aiohttp requests tables s3fs moto[server] universal_pathlib hatchling hatch-vcs").split()
#: Its wheel has none of its tests, its sources have.
FROM_SOURCES = "zarr"
#: What a library's own way to run its tests leaves out, too.
LEFT_OUT = {"numpy": "not slow"}
#: Name: door, and modules or, of sources, files.
SUITES = {
    "numpy core": ("budget", ["numpy._core"]),
    "numpy lib": ("budget", ["numpy.lib"]),
    "numpy ma, linalg, fft, polynomial": ("budget", ["numpy.ma", "numpy.linalg", "numpy.fft", "numpy.polynomial"]),
    "numpy random, matrixlib, testing, tests": ("budget", ["numpy.random", "numpy.matrixlib", "numpy.testing", "numpy.tests"]),
    "numpy files": ("files", ["numpy.lib.tests.test_format", "numpy.lib.tests.test_io", "numpy._core.tests.test_memmap"]),
    "pandas frames": ("budget", ["pandas.tests.frame"]),
    "pandas groupby, reshape": ("budget", ["pandas.tests.groupby", "pandas.tests.reshape"]),
    "pandas csv": ("files", ["pandas.tests.io.parser"]),
    "pandas files": ("files", [f"pandas.tests.io.{name}" for name in
                               "json test_pickle test_parquet test_common test_compression sas test_stata formats.test_to_csv".split()]),
    "pyarrow dataset": ("arrow", ["pyarrow.tests.test_dataset", "pyarrow.tests.parquet"]),
    "pyarrow files": ("files", ["pyarrow.tests.test_io", "pyarrow.tests.test_ipc", "pyarrow.tests.test_csv", "pyarrow.tests.test_feather"]),
    # Virtual datasets over file objects end the program, plain too.
    "h5py": ("hdf5", [f"h5py.tests.test_{name}" for name in
                      "file file2 file_alignment dataset dataset_getitem attrs group slicing dtype file_image h5d_direct_chunk".split()]),
    "zarr stores": ("files", ["tests/test_store/test_local.py", "tests/test_store/test_zip.py", "tests/test_store/test_core.py"]),
    "zarr arrays": ("files", ["tests/test_array.py", "tests/test_group.py", "tests/test_api.py", "tests/test_v2.py"]),
    "zarr fsspec": ("fsspec", ["tests/test_store/test_fsspec.py"]),
    "dask bytes": ("fsspec", ["dask.bytes", "dask.bag.tests.test_text"]),
    "dask dataframe": ("fsspec", ["dask.dataframe.io"]),
}
#: Tests that are refused by design, with the reason.
BY_DESIGN = {
    "test_open_dataset_from_fsspec": "pyarrow takes path objects with fsspec's own local file system only, known by its class's name",
    "test_split_row_groups_int_aggregate_files": "Dask takes fsspec's own local file system alone for local, and of others looks at each file "
                                                 "by itself",
}


def prepare(chosen):
    """The interpreter of the environment, and the sources whose tests no wheel has."""
    environment = os.path.join(chosen.work, "venv")
    python = os.path.join(environment, "bin/python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if not os.path.exists(os.path.join(environment, "complete")):
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([*pip, "install", *LIBRARIES], check=True)
        with open(os.path.join(environment, "complete"), "w", encoding="utf-8"):
            pass
    wheels = sorted(glob.glob(os.path.join(ROOT, "target/wheels/refault-*.whl")), key=os.path.getmtime)
    wheel = chosen.wheel or (wheels[-1] if wheels else None)
    if wheel is None:
        sys.exit("no wheel of refault: target/wheels: build one with scripts/dev/python-test, or name it by --wheel")
    subprocess.run([*pip, "install", "--force-reinstall", "--no-deps", wheel], check=True)
    said = [python, "-c", f"import {FROM_SOURCES}; print({FROM_SOURCES}.__version__)"]
    version = subprocess.run(said, check=True, capture_output=True, text=True).stdout.strip()
    sources = os.path.join(chosen.work, f"{FROM_SOURCES}-{version}")
    if not os.path.exists(sources):
        words = ["download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", chosen.work]
        subprocess.run([*pip, *words, f"{FROM_SOURCES}=={version}"], check=True)
        with tarfile.open(f"{sources}.tar.gz") as archive:
            archive.extractall(chosen.work, filter="data")
    return python, sources


def outcome(case):
    kinds = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
    return kinds[0] if kinds else "passed"


class Run:
    """One run of a suite: how it ended and what each of its tests said."""

    def __init__(self, chosen, door, is_plain, names, selected=()):
        with tempfile.TemporaryDirectory(prefix="suite-", dir=chosen.work, ignore_cleanup_errors=True) as home:
            report = os.path.join(home, "report.xml")
            of_sources = names[0].endswith(".py")
            settings = {"REFAULT_DOOR": door, "REFAULT_PLAIN": str(int(is_plain)), "TMPDIR": home, "PYTHONPATH": HERE,
                        "PATH": f"{os.path.dirname(chosen.python)}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1",
                        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            command = ["env", *(f"{name}={value}" for name, value in settings.items()), chosen.python, "-m", "pytest", "-q"]
            command += ["-p", "no:cacheprovider", "-p", "python_doors", "--basetemp", os.path.join(home, "t"), "--timeout", "120"]
            command += ["--junit-xml", report, "-o", "junit_family=xunit1", "-o", "addopts=", "-W", "ignore", "--tb=short"]
            if marks := LEFT_OUT.get(names[0].split(".")[0]):
                command += ["-m", marks]
            if selected:
                command += ["-k", " or ".join(sorted({name.rsplit("::", 1)[-1].split("[")[0] for name in selected}))]
            command += ["-o", "asyncio_mode=auto", *names] if of_sources else ["--pyargs", *names]
            self.text, self.end, self.seconds = bounded.run(command, chosen.seconds, chosen.sources if of_sources else home)
            self.tests = {}
            if os.path.exists(report):
                for case in ElementTree.parse(report).iter("testcase"):
                    self.tests[f"{case.get('classname')}::{case.get('name')}"] = outcome(case)

            self.through = next((int(said) for said in re.findall(r"^(\d+) through the door$", self.text, re.M)), 0)

    def passed(self):
        return sum(said == "passed" for said in self.tests.values()) if self.tests else self.end


def differing(plain, cached):
    return {name for name, said in plain.tests.items() if cached.tests.get(name) != said}


def reason(name):
    """Why a test is refused by design; None where it is not."""
    return next((why for part, why in BY_DESIGN.items() if part in name), None)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--work", default=os.path.join(ROOT, "target/ecosystem"))
    parser.add_argument("--wheel")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--logs", help="a directory for what the suites print")
    parser.add_argument("--list", action="store_true", help="name the suites")
    parser.add_argument("suite", nargs="*")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(SUITES))
        return 0
    if not set(chosen.suite) <= set(SUITES):
        parser.error(f"suites are {'; '.join(SUITES)}")
    chosen.work = os.path.abspath(chosen.work)
    os.makedirs(chosen.work, exist_ok=True)
    chosen.python, chosen.sources = prepare(chosen)
    differ = 0
    print("| suite | door | through it | tests | passed plain | passed | differ | by design | seconds, plain and refault |", flush=True)
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in chosen.suite or SUITES:
        door, names = SUITES[name]
        plain = Run(chosen, door, True, names)
        cached = Run(chosen, door, False, names)
        texts = [plain.text, cached.text]
        other = differing(plain, cached)
        if cached.tests and other and len(other) < 500:
            again = [Run(chosen, door, is_plain, names, other) for is_plain in (True, False)]
            texts += [run.text for run in again]
            # What is not run at all by itself stays.
            other = {test for test in other if again[0].tests.get(test) != again[1].tests.get(test) or test not in again[0].tests}
        if chosen.logs:
            os.makedirs(chosen.logs, exist_ok=True)
            with open(os.path.join(chosen.logs, name.replace(" ", "-")), "w", encoding="utf-8") as file:
                file.write("\n=====\n".join(texts))
        refused = {test for test in other if reason(test)}
        # One more where no test says it: it has ended before, or nothing has gone through the door.
        differ += len(other - refused) + (not cached.through)
        counts = f"{len(plain.tests)} | {plain.passed()} | {cached.passed()} | {len(other - refused)} | {len(refused)}"
        print(f"| {name} | {door} | {cached.through} | {counts} | {plain.seconds:.0f}, {cached.seconds:.0f} |", flush=True)
        for test in sorted(other):
            said = f"{plain.tests[test]}, refault {cached.tests.get(test)}"
            print(f"    {test}: {reason(test) or said}", file=sys.stderr, flush=True)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
