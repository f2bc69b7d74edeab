"""What a cached file does beside what Python's own files do, operation by operation."""

import copy
import errno
import gc
import io
import mmap
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tarfile
import threading
import time
import warnings
import zipfile

import numpy as np
import pytest
import refault

MODES = ["rb", "r+b", "wb", "w+b", "ab", "a+b", "xb", "x+b"]


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def said(work):
    """What a call answers, or the kind of error and its number."""
    try:
        answer = work()
    except Exception as error:
        kind = next(kind for kind in (io.UnsupportedOperation, *type(error).__mro__) if isinstance(error, kind))
        return kind.__name__, getattr(error, "errno", None)
    return bytes(answer) if isinstance(answer, (bytes, bytearray)) else answer


def filled(file, length, method="readinto"):
    buffer = bytearray(length)
    return getattr(file, method)(buffer), bytes(buffer)


#: Each is done to both files with the same arguments.
OPERATIONS = {
    "read": lambda file, n, data: file.read(n),
    "read all": lambda file, n, data: file.read(),
    "read none": lambda file, n, data: file.read(None),
    "read less than nothing": lambda file, n, data: file.read(-n - 1),
    "readall": lambda file, n, data: file.readall(),
    "readinto": lambda file, n, data: filled(file, n),
    "readline": lambda file, n, data: file.readline(),
    "readline of nothing": lambda file, n, data: file.readline(0),
    "readline of a size": lambda file, n, data: file.readline(1 + n % 9),
    "readlines": lambda file, n, data: file.readlines(n),
    "next": lambda file, n, data: next(file, None),
    "write": lambda file, n, data: file.write(data),
    "writelines": lambda file, n, data: file.writelines([data, bytearray(b"x\n")]),
    "write what is no bytes": lambda file, n, data: file.write("text"),
    "seek": lambda file, n, data: file.seek(n),
    "seek on": lambda file, n, data: file.seek(n - 5000, 1),
    "seek to the end": lambda file, n, data: file.seek(-n, 2),
    "seek beyond": lambda file, n, data: file.seek(n, os.SEEK_END),
    "seek nowhere": lambda file, n, data: file.seek(n, 9),
    "seek to a half": lambda file, n, data: file.seek(0.5),
    "seek too far": lambda file, n, data: file.seek(1 << 64),
    "seek data": lambda file, n, data: file.seek(n, os.SEEK_DATA),
    "seek a hole": lambda file, n, data: file.seek(n, os.SEEK_HOLE),
    "tell": lambda file, n, data: file.tell(),
    "truncate": lambda file, n, data: file.truncate(),
    "truncate to a size": lambda file, n, data: file.truncate(n),
    "truncate below nothing": lambda file, n, data: file.truncate(-1),
    "truncate to a half": lambda file, n, data: file.truncate(0.5),
    "flush": lambda file, n, data: file.flush(),
    "readable": lambda file, n, data: file.readable(),
    "writable": lambda file, n, data: file.writable(),
    "seekable": lambda file, n, data: file.seekable(),
    "isatty": lambda file, n, data: file.isatty(),
    "mode": lambda file, n, data: file.mode,
    "closed": lambda file, n, data: file.closed,
    "size by descriptor": lambda file, n, data: os.fstat(file.fileno()).st_size,
    "read by descriptor": lambda file, n, data: os.pread(file.fileno(), n, 100) if file.readable() else None,
}
#: What Python's buffered files have and the unbuffered ones have not.
BUFFERED = {
    "read1": lambda file, n, data: file.read1(n),
    "readinto1": lambda file, n, data: filled(file, n, "readinto1"),
    "peek": lambda file, n, data: file.peek(n)[: min(n, 100)],
}


def pair(path, mode, buffering=0):
    """A plain file and a cached one with the same contents."""
    ours = path.with_name("ours")
    if "x" in mode:
        path.unlink()
        ours.unlink(missing_ok=True)
    else:
        ours.write_bytes(path.read_bytes())
    return open(path, mode, buffering=buffering), refault.open(ours, mode, memory="1M"), ours


@pytest.mark.parametrize("mode", MODES)
def test_it_does_what_an_unbuffered_file_does(path, mode):
    seed = random.SystemRandom().randrange(1 << 32)
    choose = random.Random(seed)
    plain, ours, its_path = pair(path, mode)
    # A first seek that fails makes a plain one say for good that it cannot seek; readall() does not look at the mode.
    assert plain.seekable() and ours.seekable()
    names = [name for name in OPERATIONS if name != "readall" or plain.readable()]
    with plain, ours:
        for step in range(400):
            name = choose.choice(names)
            n, data = choose.choice([0, 1, 10, 4096, choose.randrange(40_000)]), choose.randbytes(choose.randrange(6000))
            expected, seen = (said(lambda: OPERATIONS[name](file, n, data)) for file in (plain, ours))
            assert seen == expected, f"{name}({n}), step {step} of seed {seed}"
            assert ours.tell() == plain.tell(), f"after {name}({n}), step {step} of seed {seed}"
    assert its_path.read_bytes() == path.read_bytes(), seed
    # Python's own do not look whether they are closed where there is nothing to be read.
    for name, work in OPERATIONS.items():
        if name not in ("mode", "closed", "readline of nothing"):
            expected, seen = (said(lambda: work(file, 1, b"x")) for file in (plain, ours))
            assert seen == expected, f"{name} of a closed file"


def test_it_does_what_a_buffered_file_does(path):
    seed = random.SystemRandom().randrange(1 << 32)
    choose = random.Random(seed)
    plain, ours, _ = pair(path, "rb", buffering=-1)
    names = {**BUFFERED, **{name: OPERATIONS[name] for name in ("read", "readinto", "readline", "seek", "tell", "next")}}
    with plain, ours:
        for step in range(600):
            name, n = choose.choice(list(names)), choose.choice([0, 1, 10, choose.randrange(40_000)])
            work = names[name]
            # A plain one answers what its buffer has: how much that is, is its own affair.
            if name in ("read1", "readinto1"):
                n = min(n, 1)
            if name == "peek":
                n = min(n, 1)
                expected, seen = (file.peek(n)[:1] for file in (plain, ours))
            else:
                expected, seen = (said(lambda: work(file, n, b"")) for file in (plain, ours))
            assert seen == expected, f"{name}({n}), step {step} of seed {seed}"
            assert ours.tell() == plain.tell(), f"after {name}({n}), step {step} of seed {seed}"
        ours.seek(0)
        assert len(ours.peek(20_000)) == 20_000 and ours.tell() == 0
        assert len(ours.read1()) == len(ours.read1(-1)) == io.DEFAULT_BUFFER_SIZE


@pytest.mark.parametrize(
    "mode", ["", "b", "+", "rw", "rr", "r++", "rt", "U", "wa", "xr", "z", "rb\0", "r b", "R"] + ["r", "w", "a", "x", "br", "+rb", "rb+"]
)
def test_modes_are_those_of_fileio(path, mode):
    seen = []
    for opens in (io.FileIO, refault.open):
        where = path.with_name("new") if "x" in mode else path
        where.unlink(missing_ok="x" in mode) if "x" in mode else None
        seen.append(said(lambda: opens(where, mode).mode))
    gc.collect()
    assert seen[0] == seen[1]


def test_what_cannot_be_opened_leaves_things_as_they_are(path, tmp_path):
    with pytest.raises(FileExistsError):
        refault.open(path, "xb")
    for mode in ("wb", "ab", "xb", "r+b"):
        with pytest.raises(IsADirectoryError if mode != "xb" else FileExistsError):
            refault.open(tmp_path, mode)
        with pytest.raises(FileNotFoundError):
            refault.open(tmp_path / "no" / "file", mode)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="too little"):
        refault.open(path, "wb", memory="64K")
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["data"]
    # A file system without direct I/O, if there is one: what was made for nothing is gone again.
    proc = pathlib.Path("/proc/self/comm")
    with pytest.raises(OSError):
        refault.open(proc, "r+b")


@pytest.mark.parametrize("kind", [str, os.fsencode, pathlib.Path])
@pytest.mark.parametrize(("name", "mode"), [("none", "rb"), ("none", "r+b"), (".", "rb"), ("data", "xb"), ("none/data", "wb")])
def test_an_error_names_the_path_as_it_was_given(path, monkeypatch, kind, name, mode):
    monkeypatch.chdir(path.parent)
    told = []
    for opens in (lambda *given: open(*given, buffering=0), refault.open):
        with pytest.raises(OSError) as error:
            opens(kind(name), mode)
        told.append((type(error.value), error.value.errno, error.value.filename))
    assert told[0] == told[1]


def test_an_offset_beyond_any_file_is_an_error_with_a_number(path):
    with refault.open(path, "r+b", memory="1M") as file:
        for offset in ((1 << 63) - 2, (1 << 62) + 4097):
            for work in (lambda: file.write_at(offset, b"x"), lambda: file.seek(offset) and file.write(b"xy")):
                with pytest.raises(OSError) as told:
                    work()
                assert told.value.errno in (errno.EFBIG, errno.EINVAL) and told.value.filename == str(path)
            assert file.read_at(offset, 10) == b""
        with pytest.raises(OSError) as told:
            file.truncate(1 << 62)
        assert told.value.errno == errno.EFBIG


def test_a_limit_of_the_process_is_said_as_it_is(path):
    code = """
import errno, os, resource, sys, refault
path = sys.argv[1]
for limit in (6_000_000, 1 << 20, 4097):
    for over in (1, 3000, 4096, 20_000, 300_000):
        os.truncate(path, 0)
        at = max(limit - over // 2, 0)
        with refault.open(path, "r+b", memory="1M") as file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            file.write_at(0, b"a" * min(limit, 5000))
            file.write_at(limit - 3, b"end")
            assert file.size() == limit
            try:
                file.write_at(at, b"b" * over)
                raise SystemExit(f"{over} around {limit} is taken")
            except OSError as error:
                assert error.errno == errno.EFBIG, (limit, over, error)
            assert file.size() == os.path.getsize(path) == limit
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            file.write_at(at, b"c" * over)
            assert file.read_at(at, over) == b"c" * over
        with open(path, "rb") as plain:
            data = plain.read()
        assert data[at : at + over] == b"c" * over and len(data) == max(at + over, limit)
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_appended_to_a_block_device_is_not_written_to_its_beginning(path):
    contents = os.urandom(1 << 20)
    path.write_bytes(contents)
    try:
        made = subprocess.run(["losetup", "--find", "--show", path], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no losetup")
    if made.returncode != 0:
        pytest.skip(f"losetup makes no device: {made.stderr}")
    device = made.stdout.strip()
    try:
        for opens in (lambda mode: open(device, mode, buffering=0), lambda mode: refault.open(device, mode, memory="1M")):
            for mode in ("ab", "a+b"):
                with opens(mode) as file:
                    assert file.tell() == len(contents)
                    assert said(lambda: file.write(b"over")) == ("OSError", errno.ENOSPC)
            with opens("rb") as file:
                assert file.read() == contents
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_a_copy_is_refused(path):
    with refault.open(path) as file:
        for work in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot pickle or copy 'CachedFile' object"):
                work(file)
        assert file.read(4) == b"line"


def test_paths_of_any_kind(path):
    for name in (str(path), os.fsencode(path), path):
        with refault.open(name) as file, open(name, "rb", buffering=0) as plain:
            assert file.name == plain.name and file.read(4) == b"line"
    odd = os.fsencode(path) + b"\xff"
    with refault.open(odd, "wb") as file:
        file.write(b"odd")
    assert open(odd, "rb").read() == b"odd"
    with refault.open(os.fsdecode(odd)) as file:
        assert file.read() == b"odd"
    with pytest.raises(ValueError, match="null"):
        refault.open(str(path) + "\0x")
    for wrong in (7, None, 1.5, ["x"]):
        with pytest.raises(TypeError):
            refault.open(wrong)


THREADS, EACH = 4, 3000


def together(work):
    failed = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # a thread's error would be printed and forgotten
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not failed


@pytest.mark.parametrize("mode", ["r+b", "wb", "ab"])
def test_threads_write_each_record_once(path, mode, quick_switches):
    path.write_bytes(b"")
    with refault.open(path, mode, memory="1M") as file:
        together(lambda k: [file.write(b"%08d" % (k * EACH + i)) for i in range(EACH)])
        assert file.tell() == 8 * THREADS * EACH
    data = path.read_bytes()
    assert sorted(data[i : i + 8] for i in range(0, len(data), 8)) == [b"%08d" % n for n in range(THREADS * EACH)]


def test_all_who_append_find_the_end(path, quick_switches):
    path.write_bytes(b"")
    shared = refault.Cache("1M")
    code = "import sys; [open(sys.argv[1], 'ab', buffering=0).write(b'p%07d' % n) for n in range(500)]"
    other = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, path])
    handles = [refault.open(path, "ab", cache=shared), refault.open(path, "a+b", cache=shared), refault.open(path, "ab")]
    handles.append(open(path, "ab", buffering=0))
    together(lambda k: [handles[k].write(b"%d%07d" % (k, n)) for n in range(500)])
    assert other.wait() == 0
    for handle in handles:
        handle.close()
    data = path.read_bytes()
    records = [b"%d%07d" % (k, n) for k in range(4) for n in range(500)] + [b"p%07d" % n for n in range(500)]
    assert sorted(data[i : i + 8] for i in range(0, len(data), 8)) == sorted(records)
    with refault.open(path, "a+b") as file:
        assert file.write(b"the end") == 7 and file.tell() == len(data) + 7 == file.size()
        assert file.read_at(0, 1 << 20) == data + b"the end"


READS = {
    "read": lambda file: file.read(8),
    "read1": lambda file: file.read1(8),
    "readinto": lambda file: (lambda answer: answer[1][: answer[0]])(filled(file, 8)),
    "readline": lambda file: file.readline(),
    "next": lambda file: next(file, b""),
    "of a store": lambda file: file.read(8),
}


@pytest.mark.parametrize("name", READS)
def test_threads_read_each_record_once(path, name, quick_switches):
    contents = b"".join(b"%07d\n" % number for number in range(THREADS * EACH))
    path.write_bytes(contents)
    got = []

    def reads(_):
        while record := READS[name](file):
            got.append(record)

    if name == "of a store":
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").pipe_file("/records", contents)
        file = fsspec.open("refault::memory://records", refault={"memory": "1M"}).open()
    else:
        file = refault.open(path, memory="256K")
    with file:
        together(reads)
    assert sorted(got) == [b"%07d\n" % number for number in range(THREADS * EACH)]


def test_a_thread_in_a_signal_s_handler_is_told_and_others_go_on(tmp_path):
    code = """
import faulthandler, signal, threading, fsspec, refault
faulthandler.dump_traceback_later(60, exit=True)
memory = fsspec.filesystem('memory')
memory.pipe('/slow', bytes(1 << 20))
go, cat_file = threading.Event(), memory.cat_file
entered = threading.Event()
def slow(*words, **names):
    entered.set()
    go.wait()
    return cat_file(*words, **names)
memory.cat_file = slow
file = fsspec.open('refault::memory://slow', refault={'memory': '1M'}).open()
said = []
def handler(*_):
    try:
        file.read(1)
    except RuntimeError as error:
        said.append('reentrant' in str(error))
    go.set()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
assert len(file.read(100)) == 100 and said == [True] and file.tell() == 100
# Ctrl-C ends the wait for another thread's turn, too.
go.clear()
entered.clear()
signal.signal(signal.SIGALRM, signal.default_int_handler)
other = fsspec.open('refault::memory://slow', refault={'memory': '2M'}).open()
thread = threading.Thread(target=other.read)
thread.start()
entered.wait()
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    other.read(1)
except KeyboardInterrupt:
    print('heard')
go.set()
thread.join()
assert other.tell() == 1 << 20
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("heard\n", "")


def test_a_child_of_a_fork_reads_on_while_a_thread_of_the_parent_reads(path):
    code = """
import faulthandler, os, sys, threading
faulthandler.dump_traceback_later(60, exit=True)
import refault
sys.setswitchinterval(1e-5)
file = refault.open(sys.argv[1], memory='256K')
contents = open(sys.argv[1], 'rb').read()
def reads():
    while True:
        file.read(5000) or file.seek(0)
for _ in range(3):
    threading.Thread(target=reads, daemon=True).start()
for number in range(60):
    child = os.fork()
    if child == 0:
        at = file.tell()
        right = file.read(10) == contents[at:at + 10] and file.readline() is not None
        file.seek(7)
        os._exit(0 if right and file.read(3) == contents[7:10] else 3)
    assert os.waitpid(child, 0)[1] == 0, number
os._exit(0)
"""
    words = [sys.executable, "-W", "ignore", "-c", code, path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("wrap", ["raw", "BufferedReader", "BufferedRandom", "TextIOWrapper"])
def test_a_file_that_is_dropped_open_warns_once_and_keeps_what_was_written(path, wrap):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        file = refault.open(path, "r+b", memory="1M")
        file.write(b"kept")
        if wrap == "TextIOWrapper":
            file = io.TextIOWrapper(io.BufferedReader(file))
        elif wrap != "raw":
            file = getattr(io, wrap)(file)
        del file
        gc.collect()
        with refault.open(path):
            pass
        with pytest.raises(FileNotFoundError):
            refault.open(path / "none" if path.is_dir() else path.with_name("none"))
        gc.collect()
    assert [(each.category, "unclosed file" in str(each.message)) for each in caught] == [(ResourceWarning, True)]
    assert path.read_bytes().startswith(b"kept")


def test_a_program_ends_with_files_open(path):
    code = """
import sys, threading, refault
class Node: pass
node = Node()
node.self, node.file = node, refault.open(sys.argv[1], 'r+b', memory='1M')
node.file.write(b'at the end')
reader = refault.open(sys.argv[1], memory='1M')
def reads():
    while True:
        reader.read(3000) or reader.seek(0)
for _ in range(3):
    threading.Thread(target=reads, daemon=True).start()
reader.read_at(0, 5)
"""
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
    assert path.read_bytes().startswith(b"at the end")


def test_a_descriptor_sees_what_was_written_and_what_is_written_by_it_is_found(path):
    with refault.open(path, "r+b", memory="1M") as file:
        file.write(b"written")
        number = file.fileno()
        assert number == file.fileno() and os.get_inheritable(number) is False
        assert os.pread(number, 7, 0) == b"written" and os.lseek(number, 0, os.SEEK_CUR) == 7
        with mmap.mmap(number, 0, access=mmap.ACCESS_READ) as mapping:
            assert mapping[:7] == b"written"
        size = file.size()
        os.pwrite(number, b"beyond", size)
        os.pwrite(number, b"past the cache", 100)
        assert file.size() == size + 6 and file.read_at(size, 6) == b"beyond"
        assert file.read_at(100, 14) == b"past the cache"
        file.seek(0)
        assert np.fromfile(file, np.uint8, 7).tobytes() == b"written" and file.tell() == 7
        assert subprocess.run(["cat"], stdin=file, capture_output=True).stdout == path.read_bytes()[7:]
        file.flush()
    with pytest.raises(OSError):
        os.fstat(number)
    with refault.open(path) as file:
        os.replace(path, path.with_name("moved"))
        path.write_bytes(b"another")
        assert os.pread(file.fileno(), 7, 0) == b"written", "the file that was opened, whatever has its name"


def test_what_a_child_process_writes_by_the_descriptor_is_not_written_over(path):
    seen = []
    for opens in (lambda mode: open(path, mode, buffering=0), lambda mode: refault.open(path, mode, memory="1M")):
        for mode in ("wb", "ab", "w+b"):
            with opens(mode) as file:
                file.write(b"before\n")
                subprocess.run(["echo", "a child's"], stdout=file, check=True)
                where = file.tell()
                file.write(b"after\n")
                subprocess.run(["echo", "again"], stdout=file, check=True)
            seen.append((mode, where, path.read_bytes()))
        with opens("rb") as file:
            file.seek(3)
            first = os.read(file.fileno(), 4)
            seen.append((first, file.read(3), file.tell(), os.lseek(file.fileno(), 1, os.SEEK_SET), file.read(2), file.seek(-1, 1)))
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_what_is_written_by_a_descriptor_is_found_where_times_are_whole_seconds(whole_seconds):
    path = whole_seconds / "data"
    path.write_bytes(b"at first" * 1000)
    cache = refault.Cache("1M")
    with cache.open(path, "r+b") as file:
        for turn in range(30):
            os.pwrite(file.fileno(), b"%04d" % turn, 0)
            assert file.read_at(0, 4) == b"%04d" % turn
            with open(path, "r+b") as other:
                other.write(b"%05d" % turn)
            with cache.open(path) as again:
                assert again.read(5) == b"%05d" % turn


def test_a_descriptor_that_others_closed_is_not_closed_again(path):
    file = refault.open(path, "r+b", memory="1M")
    number = file.fileno()
    os.close(number)
    with open(path.with_name("other"), "wb") as other:
        if other.fileno() != number:
            os.dup2(other.fileno(), number)
        file.write(b"written")
        file.close()
        assert os.path.samestat(os.fstat(number), os.fstat(other.fileno()))
        if other.fileno() != number:
            os.close(number)
    file = refault.open(path)
    os.close(file.fileno())
    file.close()
    assert path.read_bytes().startswith(b"written")


def test_who_reads_opens_for_reading_only(path):
    with refault.open(path) as file:
        file.read(1)
        numbers = []
        for number in os.listdir("/proc/self/fd"):
            if os.path.realpath(f"/proc/self/fd/{number}") == str(path):
                numbers.append(number)
        flags = [int(pathlib.Path(f"/proc/self/fdinfo/{n}").read_text().split("flags:")[1].split()[0], 8) for n in numbers]
        assert len(flags) == 1 and flags[0] & os.O_ACCMODE == os.O_RDONLY
    path.write_bytes(pathlib.Path("/bin/true").read_bytes())
    path.chmod(0o500)
    with refault.open(path) as file:
        file.read(1)
        assert subprocess.run([path]).returncode == 0


def test_a_store_s_object_has_no_descriptor(path):
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/plain", b"0123456789")
    with fsspec.open("refault::memory://plain", refault={"memory": "1M"}) as file:
        for work in (file.fileno, lambda: file.write(b"x"), lambda: file.truncate(1)):
            with pytest.raises(io.UnsupportedOperation):
                work()
        assert file.seek(3, os.SEEK_DATA) == 3 and file.seek(3, os.SEEK_HOLE) == 10
        assert said(lambda: file.seek(10, os.SEEK_DATA)) == ("OSError", 6)


def test_a_growing_file_is_followed(path):
    with refault.open(path, memory="1M") as file:
        whole = file.read()
        for turn in range(20):
            with open(path, "ab") as log:
                log.write(b"turn %d\n" % turn)
            assert file.read() == b""
            file.reload()
            assert file.readline() == b"turn %d\n" % turn
        os.truncate(path, 10)
        file.reload()
        assert file.size() == 10 and file.read() == b"" and file.read_at(0, 100) == whole[:10]


def test_reads_at_and_beyond_the_end_are_empty_and_at_once(path):
    with refault.open(path, memory="1M") as file:
        for at in (file.size(), file.size() + 1, 1 << 40, (1 << 63) - 1):
            file.seek(at)
            before = time.process_time()
            for work in (file.read, file.readline, file.peek, file.read1, file.readall, lambda: next(file, b"")):
                assert work() == b"" and file.tell() == at
            assert filled(file, 10) == (0, bytes(10)) and file.readlines() == []
            assert file.read_at(at, 10) == b"" and file.views(at, 10) == []
            assert time.process_time() - before < 1, "it looks again and again"


def test_archives_are_made_told_and_added_to(path, tmp_path):
    small = tmp_path / "small"
    small.write_bytes(b"no archive")
    with refault.open(small) as file:
        assert not zipfile.is_zipfile(file)
        with pytest.raises(zipfile.BadZipFile):
            zipfile.ZipFile(file)
    archive = tmp_path / "a.zip"
    for name, mode in (("a", "w"), ("b", "a")):
        with refault.open(archive, "w+b" if mode == "w" else "r+b", memory="1M") as file, zipfile.ZipFile(file, mode) as made:
            made.writestr(name, name * 10_000)
    with refault.open(archive) as file, zipfile.ZipFile(file) as made:
        assert made.testzip() is None and made.read("b") == b"b" * 10_000
    for kind in ("", ":gz"):
        with refault.open(tmp_path / "a.tar", "wb") as file, tarfile.open(fileobj=file, mode=f"w{kind}") as made:
            made.add(path, "data")
        with refault.open(tmp_path / "a.tar") as file, tarfile.open(fileobj=file) as made:
            assert made.extractfile("data").read() == path.read_bytes()


@pytest.mark.parametrize("mode", ["w", "r+", "a"])
def test_hdf5_is_written(path, mode):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as made:
        made["old"] = np.arange(5)
    with refault.open(path, "r+b", memory="1M") as file, h5py.File(file, mode) as made:
        made["x"] = np.arange(10_000)
    with refault.open(path, memory="1M") as file, h5py.File(file, "r") as made:
        assert made["x"][-1] == 9999 and made["old"][-1] == 4  # "w" keeps what lies in a file that is given open, too


def test_buffers_and_texts_stand_on_it(path):
    with io.BufferedRandom(refault.open(path, "r+b", memory="1M")) as file:
        file.seek(10)
        file.write(b"buffered")
        file.seek(0)
        assert file.read(20)[10:18] == b"buffered" and file.truncate(100) == 100
    with io.TextIOWrapper(io.BufferedWriter(refault.open(path, "wb")), "utf-8", newline="") as file:
        file.write("Text über Zeilen\n" * 1000)
    with io.TextIOWrapper(refault.open(path), "utf-8") as file:
        assert list(file) == ["Text über Zeilen\n"] * 1000
    array = np.arange(5000.0)
    with io.BufferedWriter(refault.open(path, "wb")) as file:
        np.save(file, array)
        file.write(b"behind")
    with refault.open(path) as file:
        assert (np.load(file) == array).all() and file.read() == b"behind"
