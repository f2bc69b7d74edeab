"""Calls to the kernel that fail, under ``refault.open``: strace has one call of a kind fail, each in turn. What a flush has
acknowledged is in the file, and a failed one is told, with the file's name."""

import os
import shutil
import subprocess
import sys

import pytest

BYTES = 8 * 4096
WRITES = 6
SCRIPT = f"""
import sys
import refault

file = refault.open(sys.argv[1], "r+b")
for n in range({WRITES}):
    try:
        file.seek(n * {BYTES})
        file.write(bytes([n + 1]) * {BYTES})
    except OSError as error:
        print("refused", n, error)
        continue
    for again in range(2):
        try:
            file.flush()
        except OSError as error:
            print("failed", n, error)
        else:
            print("durable", n)
            break
try:
    file.close()
except OSError as error:
    print("failed", {WRITES - 1}, error)
"""


def can_inject():
    tried = [shutil.which("strace") or "false", "-o", "/dev/null", "-e", "trace=none", "true"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_inject(), reason="strace is not installed, or may not trace")
@pytest.mark.parametrize(
    ("call", "error"),
    [("pwritev", "EIO"), ("pwritev", "ENOSPC"), ("fdatasync", "EIO"), ("fsync", "EIO"), ("pread64", "EIO")],
)
def test_what_a_flush_has_acknowledged_is_there_whichever_call_fails(tmp_path, call, error):
    path = tmp_path / "data"
    told = 0
    for turn in range(1, 5):
        path.write_bytes(bytes(WRITES * BYTES))
        with open(path, "rb") as plain:
            os.fsync(plain.fileno())
        traced = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-P", path]
        traced += ["-e", f"inject={call}:error={error}:when={turn}", sys.executable, "-c", SCRIPT, path]
        run = subprocess.run(traced, capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, run.stderr
        durable, refused = -1, set()
        for line in run.stdout.splitlines():
            what, number, *why = line.split(" ")
            if what == "durable":
                durable = max(durable, int(number))
                continue
            told += 1
            assert "data" in " ".join(why), f"the file is not named: {line}"
            if what == "refused":
                refused.add(int(number))
        found = path.read_bytes()
        for n in set(range(durable + 1)) - refused:
            assert found[n * BYTES : (n + 1) * BYTES] == bytes([n + 1]) * BYTES, f"write {n} is lost: {run.stdout}"
    if call == "fdatasync":
        assert told, "no failed flush was told"
