"""What `refault::` hands on to the file system behind, and what it reads once that has changed."""

import asyncio
import copy
import errno
import os
import pickle
import resource
import sys
import threading

import numpy as np
import pytest
import refault

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(params=["file", "memory"])
def both(request, tmp_path, memory):
    """A plain file system, the same through a cache, and a directory of each."""
    options = {"auto_mkdir": True} if request.param == "file" else {}
    plain = fsspec.filesystem(request.param, **options)
    cached = fsspec.filesystem("refault", memory="1M", target_protocol=request.param, target_options=options)
    tops = [str(tmp_path / name) if request.param == "file" else f"/{name}" for name in ("plain", "cached")]
    for top in tops:
        plain.makedirs(f"{top}/sub")
        plain.pipe({f"{top}/one": b"0123456789" * 1000, f"{top}/sub/two": b"two", f"{top}/sub/three": b"three"})
    return plain, cached, *tops


def said(work, *words, **names):
    try:
        return work(*words, **names)
    except Exception as error:
        return type(error)


def relative(answer, top):
    """An answer with the directory's name taken out."""
    if isinstance(answer, str):
        return answer.replace(top, "TOP").replace(top.lstrip("/"), "TOP")
    if isinstance(answer, dict):
        keep = {key: value for key, value in answer.items() if key not in ("ino", "created", "mtime", "destination")}
        return {relative(key, top): relative(value, top) for key, value in keep.items()}
    if isinstance(answer, (list, tuple)):
        return type(answer)(relative(each, top) for each in answer)
    return answer


#: Each is done to both file systems, one after the other in the same state.
CALLS = {
    "size": lambda fs, top: fs.size(f"{top}/one"),
    "sizes": lambda fs, top: fs.sizes([f"{top}/one", f"{top}/sub/two"]),
    "info": lambda fs, top: fs.info(f"{top}/one"),
    "info of a directory": lambda fs, top: fs.info(f"{top}/sub")["type"],
    "sep, root_marker": lambda fs, top: (fs.sep, fs.root_marker),
    "stat": lambda fs, top: fs.stat(f"{top}/one"),
    "info of nothing": lambda fs, top: fs.info(f"{top}/none"),
    "exists": lambda fs, top: (fs.exists(f"{top}/one"), fs.exists(f"{top}/none"), fs.lexists(f"{top}/one")),
    "isdir, isfile": lambda fs, top: (fs.isdir(top), fs.isdir(f"{top}/one"), fs.isfile(f"{top}/one"), fs.isfile(top)),
    "created": lambda fs, top: type(fs.created(f"{top}/one")),
    "modified": lambda fs, top: type(fs.modified(f"{top}/one")),
    "checksum": lambda fs, top: type(fs.checksum(f"{top}/one")),
    "ukey": lambda fs, top: type(fs.ukey(f"{top}/one")),
    "ls": lambda fs, top: sorted(fs.ls(top, detail=False)),
    "ls as it comes": lambda fs, top: sorted(type(each).__name__ for each in fs.ls(top)),
    "listdir": lambda fs, top: sorted(each["name"] for each in fs.listdir(top)),
    "walk": lambda fs, top: [(at, sorted(dirs), sorted(files)) for at, dirs, files in fs.walk(top)],
    "walk one deep": lambda fs, top: list(fs.walk(top, maxdepth=1)),
    "find": lambda fs, top: fs.find(top, withdirs=True),
    "glob": lambda fs, top: fs.glob(f"{top}/**/t*"),
    "du": lambda fs, top: fs.du(top),
    "expand_path": lambda fs, top: fs.expand_path(f"{top}/sub", recursive=True),
    "cat": lambda fs, top: fs.cat(f"{top}/sub/*"),
    "cat of one, with a slash behind": lambda fs, top: fs.cat(f"{top}/one/"),
    "cat of a directory": lambda fs, top: fs.cat(f"{top}/sub"),
    "cat_file of a directory": lambda fs, top: fs.cat_file(f"{top}/sub"),
    "cat_file of nothing": lambda fs, top: fs.cat_file(f"{top}/none", 2, 5),
    "open of a directory": lambda fs, top: fs.open(f"{top}/sub"),
    "open below a file": lambda fs, top: fs.open(f"{top}/one/below"),
    "open of nothing": lambda fs, top: fs.open(f"{top}/none"),
    "cat of lists": lambda fs, top: fs.cat([f"{top}/one", f"{top}/sub/two"]),
    "cat, errors returned": lambda fs, top: type(fs.cat([f"{top}/none"], on_error="return")[f"{top}/none"]),
    "cat_file": lambda fs, top: fs.cat_file(f"{top}/one"),
    "cat_file from the end": lambda fs, top: fs.cat_file(f"{top}/one", start=-7),
    "cat_file to the end": lambda fs, top: fs.cat_file(f"{top}/one", -7, -2),
    "cat_file to before": lambda fs, top: fs.cat_file(f"{top}/one", 5, -9990),
    "cat_file beyond": lambda fs, top: fs.cat_file(f"{top}/one", 9_998, 20_000),
    "cat_ranges": lambda fs, top: fs.cat_ranges([f"{top}/one", f"{top}/one", f"{top}/sub/two"], [0, -4, 1], [3, None, 2]),
    "head, tail": lambda fs, top: (fs.head(f"{top}/one", 5), fs.tail(f"{top}/one", 5), fs.tail(f"{top}/sub/two", 1000)),
    "read_block": lambda fs, top: (fs.read_block(f"{top}/one", 3, 4), len(fs.read_block(f"{top}/one", 0, None))),
    "read_block, delimited": lambda fs, top: fs.read_block(f"{top}/one", 10, 15, b"9"),
    "read_text": lambda fs, top: fs.read_text(f"{top}/sub/two"),
    "read_bytes": lambda fs, top: fs.read_bytes(f"{top}/one", 2, 9),
    "open for text": lambda fs, top: fs.open(f"{top}/sub/three", "r").read(),
    "size of what is open": lambda fs, top: fs.open(f"{top}/one").size,
    "touch": lambda fs, top: (fs.touch(f"{top}/new"), fs.size(f"{top}/new")),
    "touch, all kept": lambda fs, top: (fs.touch(f"{top}/one", truncate=False), fs.size(f"{top}/one")),
    "touch, nothing kept": lambda fs, top: (fs.touch(f"{top}/one", truncate=True), fs.size(f"{top}/one")),
    "pipe": lambda fs, top: (fs.pipe(f"{top}/one", b"other"), fs.cat_file(f"{top}/one")),
    "pipe several": lambda fs, top: (fs.pipe({f"{top}/a": b"a", f"{top}/b": b"b"}), fs.cat(f"{top}/[ab]")),
    "pipe_file": lambda fs, top: (fs.pipe_file(f"{top}/one", b"more"), fs.cat_file(f"{top}/one")),
    "write_text": lambda fs, top: (fs.write_text(f"{top}/text", "words"), fs.read_text(f"{top}/text")),
    "open for writing": lambda fs, top: (fs.open(f"{top}/one", "wb").close(), fs.size(f"{top}/one")),
    "cp_file": lambda fs, top: (fs.cp_file(f"{top}/one", f"{top}/sub/two"), fs.size(f"{top}/sub/two")),
    "copy": lambda fs, top: (fs.copy(f"{top}/sub", f"{top}/sub2", recursive=True), sorted(fs.find(top))),
    "copy of nothing": lambda fs, top: fs.copy(f"{top}/none", f"{top}/sub2"),
    "mv": lambda fs, top: (fs.mv(f"{top}/one", f"{top}/moved"), sorted(fs.find(top)), fs.cat_file(f"{top}/moved")),
    "mv of a tree": lambda fs, top: (fs.mv(f"{top}/sub", f"{top}/moved", recursive=True), sorted(fs.find(top))),
    "rename of nothing": lambda fs, top: fs.rename(f"{top}/none", f"{top}/other"),
    "rm": lambda fs, top: (fs.rm(f"{top}/one"), sorted(fs.find(top))),
    "rm of a tree": lambda fs, top: (fs.rm(f"{top}/sub", recursive=True), sorted(fs.find(top)), fs.exists(f"{top}/sub")),
    "rm of several": lambda fs, top: (fs.rm([f"{top}/one", f"{top}/sub/two"]), sorted(fs.find(top))),
    "rm of nothing": lambda fs, top: fs.rm(f"{top}/none"),
    "delete": lambda fs, top: (fs.delete(f"{top}/one"), sorted(fs.find(top))),
    "rm_file": lambda fs, top: (fs.rm_file(f"{top}/one"), fs.exists(f"{top}/one")),
    "rmdir of what is not empty": lambda fs, top: fs.rmdir(f"{top}/sub"),
    "mkdir, rmdir": lambda fs, top: (fs.mkdir(f"{top}/made"), fs.isdir(f"{top}/made"), fs.rmdir(f"{top}/made"), fs.isdir(f"{top}/made")),
    "makedirs": lambda fs, top: (fs.makedirs(f"{top}/a/b"), fs.makedirs(f"{top}/a/b", exist_ok=True), fs.isdir(f"{top}/a/b")),
    "makedirs again": lambda fs, top: fs.makedirs(f"{top}/sub", exist_ok=False),
    "get_mapper": lambda fs, top: sorted(fs.get_mapper(f"{top}/sub").items()),
    "invalidate_cache": lambda fs, top: (fs.invalidate_cache(f"{top}/one"), fs.invalidate_cache()),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_does_what_the_file_system_behind_does(both, name):
    plain, cached, *tops = both
    cached.cat_file(f"{tops[1]}/one")  # there is something in the cache that could be old
    answers = [relative(said(CALLS[name], fs, top), top) for fs, top in zip((plain, cached), tops)]
    assert answers[0] == answers[1]
    trees = [relative({path: plain.cat_file(path) for path in plain.find(top)}, top) for top in tops]
    assert trees[0] == trees[1]


def test_files_come_from_and_go_to_the_machine(both, tmp_path):
    _, cached, _, top = both
    here = tmp_path / "here"
    cached.get(f"{top}/sub", str(here), recursive=True)
    assert sorted(os.listdir(here)) == ["three", "two"] and (here / "two").read_bytes() == b"two"
    cached.get_file(f"{top}/one", str(here / "one"))
    assert (here / "one").stat().st_size == 10_000
    (here / "one").write_bytes(b"changed")
    assert cached.cat_file(f"{top}/one", 0, 4) == b"0123"
    cached.put_file(str(here / "one"), f"{top}/one")
    assert cached.cat_file(f"{top}/one") == b"changed"
    cached.put(str(here), f"{top}/all", recursive=True)
    assert cached.cat_file(f"{top}/all/three") == b"three"


def test_what_is_removed_half_way_says_what_is_left(both):
    plain, cached, _, top = both
    named = [f"{top}/one", f"{top}/none", f"{top}/sub/two"]
    with pytest.raises(FileNotFoundError) as told:
        cached.rm(named)
    if hasattr(told.value, "__notes__"):
        left = [path for path in named if plain.exists(path)]
        assert any(f"of the 3 paths to be removed these are there still: {left}" in note for note in told.value.__notes__)
    with pytest.raises(FileNotFoundError):
        cached.cat_file(f"{top}/none")


def held(path):
    """Descriptors of this program that lead to a path or below, or to what was there."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # that of the listing itself
            pass
    return [link for link in found if link.startswith(str(path))]


@pytest.mark.parametrize("how", ["rm", "rm tree", "rm list", "mv", "overwritten", "rm_file", "invalidated", "delete"])
def test_what_is_gone_is_let_go_of_at_once(tmp_path, how):
    top = tmp_path / "held"
    top.mkdir()
    path = top / "large"
    path.write_bytes(bytes(1 << 20))
    fs = fsspec.filesystem("refault", memory="1M")
    assert fs.cat_file(str(path), 0, 10) == bytes(10)
    before = fs.stats()["resident_bytes"]
    assert held(top) == [] and before > 0, "what is closed is not open, and its pages stay"
    {
        "rm": lambda: fs.rm(str(path)),
        "rm tree": lambda: fs.rm(str(top), recursive=True),
        "rm list": lambda: fs.rm([str(path)]),
        "mv": lambda: fs.mv(str(path), str(tmp_path / "elsewhere")),
        "overwritten": lambda: fs.pipe_file(f"refault://{path}", b"x"),
        "rm_file": lambda: fs.rm_file(f"file://{path}"),
        "invalidated": lambda: fs.invalidate_cache(str(top)),
        "delete": lambda: fs.delete(str(path)),
    }[how]()
    assert held(top) == [] and fs.stats()["resident_bytes"] < before


def test_what_a_pattern_removes_is_let_go_of(memory):
    fs = fsspec.filesystem("refault", memory="1M", target_protocol="memory")
    memory.pipe({"/p/large": bytes(100_000), "/p/small": bytes(10), "/q": bytes(50_000)})
    for path in ("/p/large", "/p/small", "/q"):
        fs.cat_file(path)
    before = fs.stats()["resident_bytes"]
    fs.rm("/p/l*")
    assert memory.find("/p") == ["/p/small"] and fs.stats()["resident_bytes"] <= before - 100_000
    assert fs.cat_file("/q") == bytes(50_000) and fs.cat_file("/p/small") == bytes(10)


def test_a_file_that_is_open_is_read_to_its_end_though_it_is_removed(tmp_path):
    path = tmp_path / "data"
    contents = np.random.default_rng(1).bytes(1 << 20)
    path.write_bytes(contents)
    fs = fsspec.filesystem("refault", memory="512K")
    with fs.open(str(path)) as file:
        file.read(10)
        fs.rm(str(path))
        assert file.read() == contents[10:]
    assert held(path) == []


def test_what_is_written_through_it_is_read_as_it_is(memory):
    fs = fsspec.filesystem("refault", memory="1M", target_protocol="memory")
    memory.pipe_file("/x", b"0123456789")
    for turn in range(20):
        assert fs.cat_file("/x")[:1] == (b"%d" % ((turn - 1) % 10) if turn else b"0")
        with fs.open("/x", "r+b") as file:  # nothing tells this version from the one before
            fs.cat_file("/x")
            file.write(b"%d" % (turn % 10))
            file.flush()
        assert fs.cat_file("/x")[:1] == b"%d" % (turn % 10)


@pytest.mark.parametrize("opened", ["before", "after"])
def test_who_has_a_local_file_open_reads_what_is_written_to_it(tmp_path, opened):
    path, other = tmp_path / "x", tmp_path / "other"
    path.write_bytes(b"0123456789" * 1000)
    other.write_bytes(b"another")
    fs = fsspec.filesystem("refault", memory="1M")
    reader = fs.open(str(path)) if opened == "before" else None
    if reader:
        reader.read()
    with fs.open(str(path), "r+b") as writer:
        reader = reader or fs.open(str(path))
        for turn in range(20):
            writer.seek(turn)
            writer.write(b"%02d" % turn)
            writer.flush()
            assert reader.read_at(0, 100) == path.read_bytes()[:100]
    with fs.open(str(path), "ab") as writer:
        writer.write(b"at the end")
    assert reader.seek(-10, os.SEEK_END) == 10_000 and reader.read() == b"at the end"
    for change in (
        lambda: fs.pipe_file(str(path), b"whole"),
        lambda: fs.cp_file(str(other), str(path)),
        lambda: fs.touch(str(path), truncate=True),
        lambda: fs.write_text(str(path), "text"),
        lambda: fs.cp_file(str(path), str(tmp_path / "second")),
    ):
        change()
        assert reader.read_at(0, 100) == path.read_bytes() and reader.size == path.stat().st_size
    fs.rm(str(path))
    assert reader.read_at(0, 100) == b"text"
    reader.close()


def test_who_cannot_have_readers_find_it_writes_nothing(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"as it was")
    fs = fsspec.filesystem("refault", memory="1M")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with fs.open(str(path)) as reader:
        taken = [os.open("/", os.O_RDONLY)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, hard))
        try:
            while True:
                taken.append(os.dup(taken[0]))
        except OSError:
            os.close(taken.pop())  # for one of the two that it takes
        try:
            with pytest.raises(OSError) as told:
                fs.open(str(path), "wb")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in taken:
                os.close(number)
        assert told.value.errno == errno.EMFILE and reader.read() == path.read_bytes() == b"as it was"


def test_urls_of_all_kinds(memory, tmp_path):
    options = {"refault": {"memory": "1M"}}
    with fsspec.open("refault::memory://top.gz", "wt", compression="gzip", **options) as file:
        file.write("words\n" * 1000)
    with fsspec.open("refault::memory://top.gz", "rt", compression="infer", **options) as file:
        assert file.read() == "words\n" * 1000
    assert memory.find("/") == ["/top.gz"] and memory.isfile("/top.gz")
    memory.pipe("/d/x", b"0123456789")
    fs, path = fsspec.core.url_to_fs("refault::memory://d/x", **options)
    assert fs.unstrip_protocol(path) == "refault::memory:///d/x" and fs._parent(path) == "/d"
    assert fsspec.core.url_to_fs(fs.unstrip_protocol(path), **options)[0].cat_file(path) == b"0123456789"
    stores = {name: {"cache_storage": str(tmp_path / name)} for name in ("simplecache", "filecache")}
    for name, its in stores.items():
        for url in (f"{name}::refault::memory://d/x", f"refault::{name}::memory://d/x"):
            with fsspec.open(url, **options, **{name: its}) as file:
                file.seek(-4, os.SEEK_END)
                assert file.read() == b"6789"
    mapper = fsspec.get_mapper("refault::memory://m", **options)
    mapper.setitems({"x": b"1", "y": b"2"})
    mapper.delitems(["x"])
    assert dict(mapper) == {"y": b"2"} and memory.cat_file("/m/y") == b"2"


def test_a_transaction_is_the_other_file_system_s(tmp_path):
    fs = fsspec.filesystem("refault", memory="1M")
    path = tmp_path / "a"
    with fs.transaction:
        with fs.open(str(path), "wb") as file:
            file.write(b"whole")
        assert not path.exists()
    assert fs.cat_file(str(path)) == b"whole"


def test_what_is_not_there_is_refused_in_words(memory):
    fs = fsspec.filesystem("refault", memory="1M", target_protocol="memory")
    memory.pipe_file("/x", b"x")
    with pytest.raises(NotImplementedError, match="use open"):
        asyncio.run(fs.open_async("/x"))
    with pytest.raises(AttributeError):
        fs.no_such_thing
    for wrong in (-1, "often", float("nan"), None):
        with pytest.raises(ValueError, match="check_files"):
            fsspec.filesystem("refault", memory="1M", check_files=wrong, target_protocol="memory")


def test_a_file_and_a_directory_of_one_name(memory):
    memory.pipe({"/both/below": b"another", "/both": b"a file"})
    cached = fsspec.filesystem("refault", memory="1M", target_protocol="memory")
    assert memory.cat_file("/both") == cached.cat_file("/both") == cached.open("/both").read() == b"a file"


def test_what_others_ask_of_an_open_file(memory):
    memory.pipe("/lines", b"one\ntwo--three" + b"." * 10_000)
    with fsspec.open("refault::memory://lines", refault={"memory": "1M", "block_size": "4K"}) as file:
        assert (file.blocksize, file.loc, file.mode, file.size) == (4096, 0, "rb", len(memory.cat("/lines")))
        assert file.readuntil() == b"one\n" and file.loc == 4
        assert file.readuntil(b"--", blocks=4) == b"two--" and file.readuntil(b"x") == b"three" + b"." * 10_000
        assert file.readuntil() == b""
        file.seek(4)
        for other in (pickle.loads(pickle.dumps(file)), copy.copy(file)):
            with other:
                assert other.tell() == 4 and other.read(3) == b"two"
        assert file.tell() == 4 and file.read(3) == b"two"


@pytest.mark.parametrize("end", [b"\n", b"--"])
def test_threads_that_read_records_get_each_once(memory, end):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    records = [b"%05d" % number + end for number in range(5000)]
    memory.pipe("/records", b"".join(records))
    got = []

    def read():
        while record := file.readuntil(end, blocks=100):
            got.append(record)

    try:
        with fsspec.open("refault::memory://records", refault={"memory": "1M"}) as file:
            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
    finally:
        sys.setswitchinterval(before)
    assert sorted(got) == records


def test_a_listing_that_is_old_is_not_believed(memory, monkeypatch):
    kind = type(memory)
    listed = {}
    monkeypatch.setattr(kind, "_ls_from_cache", lambda self, path: listed.get(path), raising=False)
    monkeypatch.setattr(kind, "info", lambda self, path, _info=kind.info, **rest: listed.get(path) or _info(self, path, **rest))
    monkeypatch.setattr(kind, "invalidate_cache", lambda self, path=None: listed.pop(path, None))
    fs = fsspec.filesystem("refault", memory="1M", target_protocol="memory")
    memory.pipe_file("/x", b"old")
    assert fs.cat_file("/x") == b"old"
    listed["/x"] = memory.info("/x")
    memory.pipe_file("/x", b"longer")
    assert fs.cat_file("/x") == b"longer"


def test_a_local_file_that_changed_is_read_anew(tmp_path):
    path = tmp_path / "data"
    fs = fsspec.filesystem("refault", memory="1M")
    for turn in range(50):
        with open(path, "r+b" if turn % 3 else "wb") as file:
            file.write(b"%04d" % turn)
        if turn % 7 == 0:
            other = path.with_name("other")
            other.write_bytes(b"%04d" % turn)
            os.utime(other, ns=(0, 0))
            other.replace(path)
        assert fs.cat_file(str(path)) == b"%04d" % turn


def rewritten_in_place(path, fs):
    """Reads a file after each of many changes that leave its length; how often it is right."""
    right = 0
    for turn in range(30):
        with open(path, "r+b" if turn else "wb") as file:
            file.write(b"%04d" % turn * 1000)
        right += fs.cat_file(str(path)) == b"%04d" % turn * 1000
    return right


def test_a_local_file_whose_times_are_whole_seconds_is_read_anew(whole_seconds):
    assert rewritten_in_place(whole_seconds / "data", fsspec.filesystem("refault", memory="1M")) == 30


def test_what_was_changed_within_a_step_of_the_clock_does_not_stay(tmp_path, monkeypatch):
    fs = fsspec.filesystem("refault", memory="1M", policy="fifo")
    for moment, stays in ((3600.0, False), (0.0, True)):
        monkeypatch.setattr("refault.fs._TICK_SECONDS", moment)
        assert rewritten_in_place(tmp_path / "data", fs) == 30
        before = fs.stats()["misses"]
        fs.cat_file(str(tmp_path / "data"))
        assert (fs.stats()["misses"] == before) == stays


def test_threads_open_remove_and_write_at_once(memory):
    fs = fsspec.filesystem("refault", memory="1M", target_protocol="memory")
    failed = []

    def work(number):
        try:
            for turn in range(150):
                path = f"/x{turn % 5}"
                fs.pipe_file(path, b"%06d" % turn * 1000)
                try:
                    data = fs.cat_file(path)
                    assert len(data) in (0, 6000)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    assert "has changed" in str(error)
                if turn % 10 == number:
                    try:
                        fs.rm(path)
                    except FileNotFoundError:
                        pass
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed and not any(thread.is_alive() for thread in threads)


def test_a_child_of_a_fork_has_a_cache_of_its_own(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"0123456789")
    fs = fsspec.filesystem("refault", memory="1M")
    assert fs.cat_file(str(path)) == b"0123456789"
    child = os.fork()
    if child == 0:
        right = fs.cat_file(str(path), -3) == b"789"
        fs.invalidate_cache()
        fs.rm(str(path))
        os._exit(0 if right and not path.exists() else 3)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(FileNotFoundError):
        fs.cat_file(str(path))


def test_pyarrow_removes_directories(tmp_path):
    pyarrow_fs = pytest.importorskip("pyarrow.fs")
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "a").write_bytes(b"a")
    arrow = pyarrow_fs.PyFileSystem(pyarrow_fs.FSSpecHandler(fsspec.filesystem("refault", memory="1M")))
    arrow.delete_dir_contents(str(top))
    assert os.listdir(top) == []
    arrow.delete_dir(str(top))
    assert not top.exists()


def test_a_file_system_of_pyarrow_s_is_read_through_it(tmp_path):
    arrow = pytest.importorskip("fsspec.implementations.arrow")
    local = pytest.importorskip("pyarrow.fs").LocalFileSystem()
    contents, name = np.random.default_rng(4).bytes(300_001), str(tmp_path / "data")
    (tmp_path / "data").write_bytes(contents)
    fs = fsspec.filesystem("refault", fs=arrow.ArrowFSWrapper(local), memory="1M", block_size="64K")
    assert fs.cat_file(name, 100_000, 100_010) == contents[100_000:100_010] and fs.cat_file(name) == contents
    with fs.open(name) as file:
        assert file.read() == contents


def test_closed_files_are_not_open(tmp_path):
    fs = fsspec.filesystem("refault", memory="2M")
    for number in range(100):
        path = tmp_path / str(number)
        path.write_bytes(bytes([number]) * 5000)
        with fs.open(str(path)) as file:
            assert file.read() == bytes([number]) * 5000
            assert held(path) == [str(path)]
        assert held(path) == []
    misses = fs.stats()["misses"]
    for number in range(60, 100):
        with fs.open(str(tmp_path / str(number))) as first, fs.open(str(tmp_path / str(number))) as second:
            assert first.read() == second.read() == bytes([number]) * 5000
        assert held(tmp_path / str(number)) == []
    assert fs.stats()["misses"] == misses, "their pages stayed"
    # Another program removes one, and another takes its name, and maybe its number.
    for _ in range(20):
        (tmp_path / "99").unlink()
        assert held(tmp_path / "99") == []
        with pytest.raises(FileNotFoundError):
            fs.open(str(tmp_path / "99"))
        (tmp_path / "99").write_bytes(b"x" * 5000)
        assert fs.cat_file(str(tmp_path / "99")) == b"x" * 5000
        (tmp_path / "99").write_bytes(b"y" * 5000)
        assert fs.cat_file(str(tmp_path / "99")) == b"y" * 5000
