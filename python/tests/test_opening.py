"""A file that is open is that file, whatever becomes of its name, and to open it costs the process nothing that it has."""

import fcntl
import os
import shutil
import subprocess
import sys

import pytest
import refault


def test_what_is_appended_goes_to_the_file_that_was_opened_also_after_it_was_renamed(path):
    moved = path.with_name("log.1")
    with refault.open(path, "ab", memory="1M") as log:
        log.write(b"before\n")
        path.rename(moved)
        path.write_bytes(b"")
        log.write(b"after\n")
        assert moved.read_bytes().endswith(b"before\nafter\n") and path.read_bytes() == b""
        moved.unlink()
        assert log.write(b"to a file without a name\n") == 25


@pytest.mark.parametrize("mode", ["wb", "ab", "w+b"])
def test_a_link_to_a_name_that_is_free_makes_the_file_there(path, mode):
    link, target = path.with_name("link"), path.with_name("target")
    link.symlink_to(target.name)
    with pytest.raises(FileExistsError):
        refault.open(link, "xb", memory="1M")
    with refault.open(link, mode, memory="1M") as file:
        file.write(b"there")
    assert link.is_symlink() and target.read_bytes() == b"there"


#: Asks for a lock of a file that another process may have.
LOCKS = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("free")
    except OSError:
        print("locked")
"""


@pytest.mark.parametrize("mode", ["rb", "r+b", "ab", "a+b", "wb"])
def test_to_open_a_file_again_ends_no_lock_of_this_process(path, mode):
    def state():
        return subprocess.run([sys.executable, "-c", LOCKS, path], capture_output=True, text=True, check=True).stdout.strip()

    with refault.open(path, "r+b", memory="1M") as holder:
        fcntl.lockf(holder, fcntl.LOCK_EX)
        again = refault.open(path, mode, memory="1M")
        if again.writable():
            again.write(b"written")
            again.truncate(100)
            again.flush()
        if again.readable():
            again.seek(0)
            assert len(again.read(4)) == 4
        again.seek(0, os.SEEK_DATA)
        with pytest.raises(FileExistsError):
            refault.open(path, "xb", memory="1M")
        assert state() == "locked"
        again.close()
    assert state() == "free"


def test_a_file_that_was_not_written_is_not_made_durable_when_it_is_closed(path):
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not there")
    script = "import refault, sys\nwith refault.open(sys.argv[1], 'r+b', memory='1M') as file:\n    exec(sys.argv[2])"

    def syncs(work):
        command = [strace, "-f", "-e", "trace=fsync,fdatasync", sys.executable, "-c", script, path, work]
        done = subprocess.run(command, capture_output=True, text=True)
        if "ptrace" in done.stderr and done.returncode:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        return done.stderr.count("fdatasync(")

    assert [syncs(work) for work in ("file.read(9)", "file.write(b'x')", "file.truncate(5)", "file.write(b'x'); file.flush()")] == [
        0,
        1,
        1,
        1,
    ]
