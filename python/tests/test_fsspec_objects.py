"""How `refault::` tells that an object of a store is another than the one that is kept."""

import datetime
import email.utils
import errno
import gzip
import http.server
import threading
import time

import numpy as np
import pytest

fsspec = pytest.importorskip("fsspec")


class Objects(http.server.BaseHTTPRequestHandler):
    """Answers with `contents` and what tells them apart, by ranges."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        contents, headers = self.server.contents, dict(self.server.headers)
        self.server.asked.append((self.command, self.headers.get("Range")))
        start, end, status = 0, len(contents), 200
        if self.server.is_strict and self.headers.get("If-Match") not in (None, headers.get("ETag")):
            start, end, status = 0, 0, 412
        elif self.server.packs and "gzip" in self.headers.get("Accept-Encoding", ""):
            contents, headers["Content-Encoding"] = gzip.compress(contents), "gzip"
            end = len(contents)
        elif self.headers.get("Range") and self.server.has_ranges:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            start, end, status = int(first), min(int(last) + 1, len(contents)), 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(contents)}"
        self.send_response(status)
        headers["Accept-Ranges"] = "bytes"
        if self.server.has_lengths:
            headers["Content-Length"] = str(end - start)
        else:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(contents[start:end])


@pytest.fixture
def web():
    pytest.importorskip("aiohttp")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Objects)
    server.contents, server.headers, server.asked = b"", {}, []
    server.has_ranges, server.is_strict, server.packs, server.has_lengths = True, False, False, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server, f"http://127.0.0.1:{server.server_address[1]}/object"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("header", ["ETag", "Last-Modified", "Content-MD5", None])
@pytest.mark.parametrize("is_longer", [True, False])
def test_an_object_that_changed_is_read_anew(web, header, is_longer):
    server, url = web

    def open_it():
        return fsspec.open(f"refault::{url}", refault={"memory": "1M", "block_size": "64K"}).open()

    for turn in range(3):
        server.contents = bytes([65 + turn]) * (5000 + 1000 * turn * is_longer)
        server.headers = {header: f'"{turn}"'} if header else {}
        for _ in range(2):
            server.asked.clear()
            with open_it() as file:
                assert file.read() == server.contents and file.size == len(server.contents)
        # What is known to be the same is not asked for again; without anything to tell it by, it is.
        assert any(command == "GET" for command, _ in server.asked) == (header is None)


@pytest.mark.parametrize("age", [0, 30, 3600])
def test_an_object_that_changes_twice_in_a_second_is_read_anew(web, age):
    server, url = web
    fs = fsspec.filesystem("refault", memory="1M", fs=fsspec.filesystem("http"))
    server.headers = {"Last-Modified": email.utils.formatdate(time.time() - age, usegmt=True)}
    for turn in range(3):
        server.contents = bytes([65 + turn]) * 5000
        server.asked.clear()
        data = fs.cat_file(url)
        if age < 60:
            assert data == server.contents
        else:
            assert data == b"A" * 5000 and (turn == 0 or all(command == "HEAD" for command, _ in server.asked)), "it is kept"


@pytest.mark.parametrize(
    ("changed", "is_young"),
    [
        (lambda now: int(now), True),
        (lambda now: int(now) * 1000, True),
        (lambda now: int(now) + 0.25, False),
        (lambda now: int(now) - 100, False),
        (lambda now: datetime.datetime.fromtimestamp(int(now), datetime.timezone.utc), True),
        (lambda now: datetime.datetime.fromtimestamp(int(now) + 0.5, datetime.timezone.utc), False),
        (lambda now: email.utils.formatdate(now), True),
        (lambda now: email.utils.formatdate(now - 100), False),
        (lambda now: time.strftime("%Y%m%d%H%M%S", time.gmtime(now)), True),
        (lambda now: time.strftime("%Y%m%d%H%M%S.250", time.gmtime(now - 100)), False),
        (lambda now: "yesterday", False),
    ],
)
def test_what_may_change_again_without_a_sign_is_not_kept(memory, changed, is_young):
    fs = fsspec.filesystem("refault", memory="1M", fs=memory)
    memory.pipe_file("/x", b"old")
    key = fs._key("/x", {"name": "/x", "size": 3, "mtime": changed(time.time())})
    assert (key == "") == is_young


def test_what_is_forgotten_while_it_is_asked_for_is_not_kept(memory, monkeypatch):
    fs = fsspec.filesystem("refault", memory="1M", check_files=False, fs=memory)
    memory.pipe_file("/x", b"old")
    info = type(memory).info

    def meanwhile(self, path, **rest):
        told = info(self, path, **rest)
        monkeypatch.undo()
        fs.pipe_file("/x", b"newer")
        return told

    monkeypatch.setattr(type(memory), "info", meanwhile)
    fs.open("/x").close()
    assert fs.cat_file("/x") == b"newer"


def test_all_who_write_a_file_are_waited_for(tmp_path):
    behind = fsspec.filesystem("dir", path=str(tmp_path), fs=fsspec.filesystem("file"))
    fs = fsspec.filesystem("refault", memory="1M", check_files=False, fs=behind)
    (tmp_path / "x").write_bytes(b"0000")
    first, second = fs.open("x", "r+b"), fs.open("x", "r+b")
    second.close()
    assert fs.cat_file("x") == b"0000"
    first.write(b"new")
    first.close()
    assert fs.cat_file("x") == b"new0"


class Elsewhere(fsspec.AbstractFileSystem):
    """Local files that do not look like such."""

    local = fsspec.filesystem("file")

    def info(self, path, **rest):
        return self.local.info(path)

    def _open(self, path, mode="rb", block_size=None, autocommit=True, **rest):
        return self.local._open(path, mode, autocommit=autocommit)


def test_what_a_transaction_will_replace_is_not_kept(tmp_path):
    path = str(tmp_path / "x")
    fs = fsspec.filesystem("refault", memory="1M", check_files=False, fs=Elsewhere())
    (tmp_path / "x").write_bytes(b"old")
    with fs.transaction:
        with fs.open(path, "wb") as file:
            file.write(b"committed")
        assert fs.cat_file(path) == b"old"
    assert fs.cat_file(path) == b"committed"


def test_an_open_object_is_taken_up_anew_by_reload(web):
    server, url = web
    server.contents, server.headers = b"old" * 1000, {"ETag": "1"}
    with fsspec.open(f"refault::{url}", refault={"memory": "1M"}) as file:
        assert file.read(3) == b"old"
        server.contents, server.headers = b"new" * 2000, {"ETag": "2"}
        file.reload()
        assert file.tell() == 3 and file.size == 6000 and file.read() == b"new" * 1999


def test_a_server_without_ranges_or_that_packs_is_read_right(web):
    server, url = web
    server.contents = np.random.default_rng(3).bytes(1_000_000)
    for server.has_ranges, server.packs in ((False, False), (True, True), (False, True)):
        with fsspec.open(f"refault::{url}", refault={"memory": "1M", "block_size": "64K"}) as file:
            for offset in (500_000, 0, 999_000, 250_001):
                assert file.read_at(offset, 3000) == server.contents[offset : offset + 3000]
            assert file.read() == server.contents


def test_an_object_of_unknown_length_is_read_past_the_cache(web):
    server, url = web
    server.contents, server.has_lengths, server.has_ranges = np.random.default_rng(5).bytes(300_000), False, False
    fs = fsspec.filesystem("refault", memory="1M", target_protocol="http")
    assert fs.cat_file(url) == fs.cat(url) == server.contents
    with fsspec.open(f"refault::{url}", refault={"memory": "1M"}) as file:
        assert file.read() == server.contents


def test_an_object_that_changes_while_it_is_open_is_no_mixture(web):
    server, url = web
    server.is_strict = True
    server.contents, server.headers = b"old" * 100_000, {"ETag": '"1"'}
    options = {"memory": "1M", "block_size": "64K"}
    with fsspec.open(f"refault::{url}", refault=options) as file:
        assert file.read(3) == b"old"
        server.contents, server.headers = b"new" * 100_000, {"ETag": '"2"'}
        with pytest.raises(OSError, match="it has changed since it was opened") as told:
            file.read()
        assert told.value.errno == errno.ESTALE
        file.reload()
        file.seek(0)
        assert file.read() == server.contents
    # One that refuses the tag that it gives out itself is read all the same.
    server.headers = {"ETag": '"3"'}
    known, Objects.answer = Objects.answer, lambda self, body: odd(self, body)

    def odd(self, body):
        if self.headers.get("If-Match"):
            self.headers.replace_header("If-Match", "another")
        known(self, body)

    try:
        with fsspec.open(f"refault::{url}", refault=options) as file:
            assert file.read() == server.contents
    finally:
        Objects.answer = known


def test_how_often_an_object_is_looked_at_is_an_option(web):
    server, url = web
    asked = {}
    for check_files in (True, 0, 3600, 0.05, False):
        server.contents, server.headers = b"old", {}
        fs = fsspec.filesystem("refault", memory="1M", check_files=check_files, fs=fsspec.filesystem("http"))
        for number in range(5):
            server.headers = {"ETag": "same"}
            server.asked.clear()
            assert fs.cat_file(url) == b"old"
        asked[check_files] = len(server.asked)
        server.contents, server.headers = b"newer", {"ETag": "other"}
        if check_files == 0.05:
            until = time.monotonic() + 30
            while fs.cat_file(url) != b"newer":
                assert time.monotonic() < until
        is_old = fs.cat_file(url) == b"old"
        assert is_old == (check_files is False or check_files == 3600)
        fs.invalidate_cache(url)
        assert fs.cat_file(url) == b"newer"
    assert asked[True] == 1 and asked[3600] == asked[False] == 0
