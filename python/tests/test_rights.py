"""What is opened for reading is a reader below: on an overlay, a read-only mount, with a lease, or as a program that runs."""

import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
import refault

#: Makes a file system of the directory `lower` of a directory, and runs a command there.
MOUNTED = pathlib.Path(__file__).parents[2] / "crates/refault-c/tests/scripts/mounted.sh"

#: Reads a file by each door that Python has, and says how many descriptors may write to it meanwhile.
READS = """
import os, sys
import fsspec, refault

def writers():
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.path.samestat(os.stat(f"/proc/self/fd/{number}"), os.stat(sys.argv[1])):
                with open(f"/proc/self/fdinfo/{number}") as lines:
                    flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
                count += flags & os.O_ACCMODE != os.O_RDONLY
        except FileNotFoundError:
            pass
    return count

with refault.open(sys.argv[1], memory="1M") as file:
    file.fileno()
    print(len(file.read(4)), writers())
with fsspec.open(f"refault::file://{os.path.abspath(sys.argv[1])}", refault={"memory": "1M"}) as file:
    print(len(file.read(4)), writers())
"""
READ = "4 0\n4 0\n"

#: Opens it for writing, and changes nothing.
WRITES = """
import sys, refault
try:
    refault.open(sys.argv[1], "r+b", memory="1M").close()
    print("opened")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def data(tmp_path):
    pytest.importorskip("fsspec")
    path = tmp_path / "lower" / "data"
    path.parent.mkdir()
    path.write_bytes(bytes(100_000))
    try:
        refault.open(path, memory="1M").close()
    except OSError as error:
        if os.environ.get("REFAULT_REQUIRE"):
            raise
        pytest.skip(str(error))
    return path


def mounted(kind, home, script):
    """What a script prints in a file system that is `overlay`, `full` or `readonly`, and what it had copied up."""
    command = [MOUNTED, kind, home, sys.executable, "-c", script, "data"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode == 77 or done.stderr.startswith("unshare: "):
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("overlay", "opened\ncopied up: ./data\n"),
        ("full", "No space left on device\n"),
        ("readonly", "Read-only file system\n"),
    ],
)
def test_what_is_read_is_not_opened_for_writing(data, kind, written):
    assert mounted(kind, data.parents[1], READS) == READ
    assert mounted(kind, data.parents[1], WRITES) == written


def test_a_program_is_read_while_it_runs(tmp_path, data):
    program = tmp_path / "sleep"
    shutil.copy(shutil.which("sleep"), program)
    with refault.open(program, memory="1M") as file:
        assert file.read(4) == b"\x7fELF"
        # It can be begun while it is read.
        with subprocess.Popen([program, "60"]) as running:
            try:
                done = subprocess.run([sys.executable, "-c", READS, program], capture_output=True, text=True)
                assert done.stdout == READ, done.stderr
                with pytest.raises(OSError, match="Text file busy"):
                    refault.open(program, "r+b", memory="1M")
            finally:
                running.kill()


def test_a_lease_stays(data):
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with open(data, "rb") as holder:
            try:
                fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError as error:
                pytest.skip(f"no leases here: {error}")
            done = subprocess.run([sys.executable, "-c", READS, data], capture_output=True, text=True)
            assert done.stdout == READ, done.stderr
            assert fcntl.fcntl(holder, fcntl.F_GETLEASE) == fcntl.F_RDLCK
    finally:
        signal.signal(signal.SIGIO, before)
