"""CPython's own test suites over files in a page cache: what does not pass is listed here, with the reason.

With REFAULT_SUITES=all those are run, too, that take longer. `test_mailbox` is not among them: it cuts a file off through
another descriptor while it is open, and writes in a child what was opened before the fork, which is refused in words.
"""

import os
import pathlib
import subprocess
import sys

import pytest
import refault

pytest.importorskip("test.test_io")

#: They close the descriptor behind the file's back, and want the file to fail. Its descriptor is one beside the cache's own.
CLOSED_BEHIND = {
    "testErrnoOnClose", "testErrnoOnClosedRead", "testErrnoOnClosedReadall", "testErrnoOnClosedReadinto",
    "testErrnoOnClosedSeek", "testErrnoOnClosedTell", "testErrnoOnClosedTruncate", "testErrnoOnClosedWrite",
    "testErrnoOnClosedFileno", "testErrnoOnClosedFlush", "testErrnoOnClosedIsatty", "testErrnoOnClosedReadable",
    "testErrnoOnClosedSeekable", "testErrnoOnClosedWritable",
}  # fmt: skip
#: They look at how CPython's class is made: its text, and an attribute that its own `open` asks for.
OF_THE_CLASS = {"testRepr", "testReprNoCloseFD", "testBlksize", "testUnclosedFDOnException", "test___all__"}

#: Suites, with what is refused by design.
SUITES = {
    "test_fileio": CLOSED_BEHIND | OF_THE_CLASS,
    "test_io": {"test___all__"},
    "test_tempfile": set(),
    "test_zipfile": set(),
    "test_fileinput": set(),
    "test_gzip": set(),
    "test_shutil": set(),
    "test_mmap": set(),
}
LONGER = {
    name: set()
    for name in ("test_tarfile", "test_bufio", "test_array", "test_bz2", "test_lzma", "test_shelve", "test_dbm_dumb", "test_wave", "test_tokenize", "test_largefile")
}  # fmt: skip


if os.environ.get("REFAULT_SUITES") == "all":
    SUITES |= LONGER


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_passes(name, tmp_path):
    try:
        refault.open(tmp_path / "tried", "wb").close()
    except OSError as error:
        if os.environ.get("REFAULT_REQUIRE"):
            raise
        pytest.skip(str(error))
    script = pathlib.Path(__file__).with_name("cpython.py")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    def failing(*words):
        command = [sys.executable, "-W", "ignore", script, name, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        *lines, last = done.stdout.splitlines()
        return {line.split(" | ")[0] for line in lines if " | " in line}, [int(word) for word in last.split() if word.isdigit()]

    failed, (run, *_, opened) = failing()
    if failed - SUITES[name]:
        failed -= failing("plain")[0]  # what does not pass here without us, either
    assert failed <= SUITES[name]
    assert run > 3 and opened > 0
