"""An fsspec file system over the page cache, for ``refault::`` in URLs.

``fsspec.open("refault::s3://bucket/table.parquet", refault={"memory": "1G"})`` reads an object through a cache of one's own;
``refault::`` stands before any file system that fsspec has, ``refault:///data/table.parquet`` reads a local file. Only
reading goes through the cache; all else is the other file system's.

Files stay in the cache when they are closed, up to :data:`KEPT_FILES` of them, until they are removed or written through
``refault::``. Each time that one is opened the other file system is asked whether it is the same (length, times, versions,
ETag, `ukey`). A file does not stay that has nothing but a length to tell it by, or whose last change was less than a minute
ago by times in whole seconds. The option ``check_files`` says otherwise, except of local files. These are not open while only
their pages stay.
"""

from __future__ import annotations

import errno
import inspect
import os
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import fsspec
from fsspec.implementations.local import LocalFileSystem

from . import _refault
from .arrays import Size, _bytes
from .files import Cache, CachedFile
from .handed_on import HandedOn

#: Files whose pages stay when they are closed.
KEPT_FILES = 64

#: What any file has, and what tells no version of it apart from another.
_TELLS_NOTHING = {"name", "type", "size", "url", "mimetype", "partial", "islink", "mode", "uid", "gid", "nlink", "storageclass"}

#: With one of these no other file of the same name is taken for this one.
_TELLS_ALL = {"etag", "versionid", "version_id", "generation", "md5hash", "content-md5", "digest"}

#: What says when a file was changed.
_TELLS_TIME = {"last-modified", "last_modified", "lastmodified", "modified", "modify", "mtime", "modificationtime", "updated"}

#: A clock that has whole seconds, and may be off, has the same time for changes so far apart.
_YOUNG_SECONDS = 60

#: Changes of a local file so far apart have different times: where these are whole seconds, or even numbers of them; and
#: elsewhere. From Linux 6.13 on a time that was looked at differs from that of the next change.
_WHOLE_SECONDS, _TICK_SECONDS = 2.0, 0.0 if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (6, 13) else 0.02

#: What says how a file is to be read, and not which.
_HOW_ONLY = {"autocommit", "cache_type", "cache_options", "fill_cache", "size"}


class _NoLength(ValueError):
    """A file cannot be cached, because its file system does not say how long it is."""


class _Kept(NamedTuple):
    """A file in a cache, what it was known by, and when that was asked for."""

    key: str
    native: _refault.File
    checked: float


class _KeptPages(NamedTuple):
    """Pages of a local file, which is not open."""

    pages: _refault.KeptPages | None


class _Open:
    """A cache, and the files in it by path."""

    def __init__(self, memory: Size, policy: str | None) -> None:
        self.cache = Cache(memory, policy)
        self.files: OrderedDict[str, _Kept | _KeptPages] = OrderedDict()
        #: Files that are being written to, by path, and who writes them: what is read of those is not kept.
        self.written: dict[str, list[Callable[[], Any]]] = {}
        #: Local files that are open for reading.
        self.readers: weakref.WeakSet[CachedObject] = weakref.WeakSet()
        #: Paths whose files are being asked for, by who asks: what is forgotten meanwhile is not kept.
        self.asked: dict[object, str] = {}
        self.lock = threading.Lock()

    def is_written(self, behind: str) -> bool:
        """Whether a file is being written to. Call it with the lock held."""
        writers = [writer for writer in self.written.pop(behind, []) if not getattr(writer(), "closed", True)]
        if writers:
            self.written[behind] = writers
        return bool(writers)


#: What is shared by all URLs with the same options: fsspec makes a file system per URL.
_shared: dict[tuple[Any, ...], _Open] = {}
_sharing = threading.Lock()


def _after_fork_in_child() -> None:
    """What held the lock is not here, and the caches are the parent's."""
    global _sharing
    _sharing = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


class CachedObject(CachedFile):
    """A file of a :class:`CachedFileSystem`, open for reading: `size` is a number here, as fsspec's files have it."""

    def __init__(self, fs: CachedFileSystem, path: str, native: _refault.File) -> None:
        super().__init__(fs.cache, path, native=native)
        self.fs = fs
        self.path = path
        self._turn = threading.Lock(), os.getpid()

    @property
    def size(self) -> int:  # type: ignore[override]
        """Bytes in the file."""
        return self._native.size()

    @property
    def blocksize(self) -> int:
        """Bytes that are asked for at once, unless it is a local file."""
        return self.fs._block_bytes

    @property
    def loc(self) -> int:
        """The position."""
        return self.tell()

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """From the position to the first `char`, which is included, or to the end; looked for in `blocks` bytes at once. Threads
        that read so take turns."""
        if char == b"\n":
            return self.readline()
        if self._turn[1] != os.getpid():
            # Who had it may not be in this child.
            self._turn = threading.Lock(), os.getpid()
        with self._turn[0]:
            start, known = self.tell(), b""
            while part := self.read_at(start + len(known), blocks or self.blocksize):
                # It may lie across two parts.
                found = (known + part).find(char, max(len(known) - len(char) + 1, 0))
                known += part
                if found >= 0:
                    known = known[: found + len(char)]
                    break
            self.seek(start + len(known))
        return known

    def looks(self) -> None:
        """Has each call look whether a local file has changed."""
        # It may be closed.
        with suppress(ValueError):
            self.fileno()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Opens the file of this name where it is wanted, at the same position."""
        return _opened_at, (self.fs, self.path, self.tell())

    @property
    def details(self) -> Any:
        """What the file system says of it."""
        return self.fs.info(self.path)

    def info(self) -> Any:
        """The same."""
        return self.details

    def reload(self) -> None:
        """Takes up what others did to it. If the file system has another file of this name by now, that is read from here on,
        from the same position."""
        self._check_open()
        position = self.tell()
        if isinstance(self.fs.fs, LocalFileSystem):
            super().reload()
            return
        native, before = self.fs._native(self.path, check=True), self._native
        native.seek(position, os.SEEK_SET)
        self._native = native
        before.close()


def _opened_at(fs: CachedFileSystem, path: str, position: int) -> CachedObject:
    file = fs.open(path, "rb")
    file.seek(position)
    return file  # type: ignore[no-any-return]


class CachedFileSystem(HandedOn):
    """Another file system, read through one :class:`refault.Cache`.

    Parameters
    ----------
    memory : bytes of file contents at most, or a text such as ``"1G"``
    policy : as on the command line
    block_size : bytes that are asked for at once of files that are not local; 1 MiB by default
    check_files : whether a file that is opened is looked at for being the same as before; or seconds for which that is
        believed of each. False: what is in the cache is right until `invalidate_cache`. Local files are looked at in any case
    target_protocol, target_options : the file system behind, as fsspec says it; local files by default
    fs : the same as an object
    """

    protocol = ("refault",)

    def __init__(
        self,
        memory: Size = "64M",
        policy: str | None = None,
        block_size: Size = "1M",
        check_files: bool | float = True,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        fs: Any = None,
        fo: str | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self.fs = fs if fs is not None else fsspec.filesystem(target_protocol or "file", **(target_options or {}))
        self._block_bytes = _bytes(block_size)
        if not isinstance(check_files, (bool, int, float)) or not check_files >= 0:
            raise ValueError(f"check_files is True, False or a number of seconds, not {check_files!r}")
        # An integer is a number of seconds, which True and False are not.
        seconds = {True: 0.0, False: float("inf")}[check_files] if isinstance(check_files, bool) else float(check_files)
        self._check_seconds = seconds
        # An object says nothing about whether another is the same file system.
        protocol = (target_protocol or "file") if fs is None else None
        self._options = (memory, policy, self._block_bytes, protocol, repr(target_options))
        self._share()
        self._is_before(fo)

    def _share(self) -> None:
        """Finds the files that are open, or begins with none."""
        memory, policy, _, protocol, _ = self._options
        with _sharing:
            self._open_files = (_shared.get(self._options) if protocol else None) or _Open(memory, policy)
            if protocol:
                _shared[self._options] = self._open_files
        self._process = os.getpid()
        self.cache = self._open_files.cache

    def _here(self) -> _Open:
        """What is open in this process."""
        if self._process != os.getpid():
            self._share()
        return self._open_files

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **rest: Any) -> Any:
        which = {name: value for name, value in rest.items() if name not in _HOW_ONLY}
        if mode == "rb" and not which:
            behind = self._behind(path)
            try:
                return self._reader(CachedObject(self, behind, self._native(behind)))
            except (FileNotFoundError, IsADirectoryError, _NoLength):
                # No file, or a file and a directory at once, as some stores have them, or a stream: the other file system says.
                return self.fs.open(self._handed(path), mode, block_size=block_size, **rest)
        if mode == "rb":
            # Another version than that of the name, say.
            return self.fs.open(self._handed(path), mode, block_size=block_size, **rest)
        # Whether it is committed with others, a transaction there says.
        if rest.get("autocommit") is True:
            del rest["autocommit"]
        self._have_readers_look(path)
        with self._changing(path):
            file = self.fs.open(self._handed(path), mode, block_size=block_size, **rest)
            opened = self._here()
            try:
                writer: Any = weakref.ref(file)
            except TypeError:
                writer = lambda: file  # noqa: E731
            with opened.lock:
                opened.is_written(self._behind(path))
                opened.written.setdefault(self._behind(path), []).append(writer)
            # Some may have come meanwhile.
            self._have_readers_look(path)
        return file

    def _have_readers_look(self, path: str) -> None:
        """Has those that read a local file find what is written to it."""
        opened, behind = self._here(), self._behind(path)
        with opened.lock:
            readers = [reader for reader in opened.readers if reader.path == behind]
        for reader in readers:
            reader.looks()

    def _reader(self, file: CachedObject) -> CachedObject:
        """A file that was opened for reading: what is written to it through ``refault::`` it finds, as others would."""
        if isinstance(self.fs, LocalFileSystem):
            opened = self._here()
            with opened.lock:
                opened.readers.add(file)
                is_written = opened.is_written(file.path)
            if is_written:
                file.looks()
        return file

    async def open_async(self, path: str, mode: str = "rb", **rest: Any) -> Any:
        """Not there: reading through the cache waits."""
        raise NotImplementedError(
            f"{path}: refault:: reads without asyncio: use open() in a thread, or open_async() of the file system behind (.fs)"
        )

    def _native(self, behind: str, check: bool = False) -> _refault.File:
        """The file as it is now, or was a while ago if that is asked for; at a position of its own."""
        if isinstance(self.fs, LocalFileSystem):
            return self._local(behind)
        opened = self._here()
        now = time.monotonic()
        with opened.lock:
            known = opened.files.get(behind)
            kept = known if isinstance(known, _Kept) else None
            is_written = opened.is_written(behind)
            if kept and not (check or is_written) and now < kept.checked + self._check_seconds:
                opened.files.move_to_end(behind)
                return kept.native.again()
        this = object()
        with opened.lock:
            opened.asked[this] = behind
        try:
            told = self._told(behind)
            key = self._key(behind, told)
            if kept is None or key != kept.key:
                kept = _Kept(key, self._attach(behind, told), now)
        finally:
            with opened.lock:
                is_as_asked = opened.asked.pop(this, None) is not None
        # What cannot be told from another must not be met again; nor what a transaction will replace.
        stays = is_as_asked and not is_written and (key != "" or self._check_seconds == float("inf"))
        stays = stays and not getattr(self.fs, "_intrans", False)
        dropped: list[object] = []
        with opened.lock:
            # Another thread may have been here meanwhile.
            other = opened.files.pop(behind, None)
            dropped.append(other)
            if isinstance(other, _Kept) and other.key == key != "":
                kept = other
            if stays:
                opened.files[behind] = kept._replace(checked=now)
            while len(opened.files) > KEPT_FILES:
                dropped.append(opened.files.popitem(last=False)[1])
        # Not under the lock: a file that ends waits for reads that are under way.
        del dropped, other
        return kept.native.again()

    def _local(self, behind: str) -> _refault.File:
        """A local file, which the cache knows by its number and times; its pages stay when it is closed."""
        opened = self._here()
        native = opened.cache._native.open(behind, "rb")
        with opened.lock:
            is_known = behind in opened.files
        if not is_known:
            # Another handle of the same file may be open in this cache, with pages that were to be forgotten.
            native.reload()
        kept, may_hide = _KeptPages(native.keep_pages()), _may_hide_changes(behind)
        with opened.lock:
            dropped: list[object] = [opened.files.pop(behind, None)]
            if may_hide or opened.is_written(behind):
                dropped.append(kept)
            else:
                opened.files[behind] = kept
            while len(opened.files) > KEPT_FILES:
                dropped.append(opened.files.popitem(last=False)[1])
        # Not under the lock: a file that ends waits for reads that are under way.
        del dropped, kept
        return native

    def _told(self, behind: str) -> dict[str, Any]:
        """What the file system says of a file now, by names in small letters."""
        listed = getattr(self.fs, "_ls_from_cache", None)
        try:
            is_listed = listed is not None and listed(behind) is not None
        except FileNotFoundError:
            is_listed = True
        if is_listed:
            # A listing may be as old as the program.
            self.fs.invalidate_cache(behind)
        info = self.fs.info(behind)
        if info.get("type") == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), behind)
        return {str(name).lower(): value for name, value in info.items()}

    def _key(self, behind: str, told: dict[str, Any]) -> str:
        """Differs when the file does. Empty if there is nothing to tell it by."""
        if any(told.get(name) for name in _TELLS_ALL):
            return repr(sorted((name, str(value)) for name, value in told.items() if "access" not in name))
        names = sorted(name for name in told if name not in _TELLS_NOTHING and "access" not in name and told[name] is not None)
        # The next change may have the time of the last one.
        if not names or any(_is_young(told[name]) for name in names if name in _TELLS_TIME):
            return ""
        return repr((told.get("size"), [(name, str(told[name])) for name in names], str(self.fs.ukey(behind))))

    def _attach(self, behind: str, told: dict[str, Any]) -> _refault.File:
        length = told.get("size")
        if length is None:
            raise _NoLength(f"{behind}: its file system does not say how long it is, so that it cannot be cached")
        asked = _asks(self.fs, behind, told)
        return self._open_files.cache._native.attach(_BlockReader(asked, behind, self._block_bytes, length), length)

    def _forget(self, path: str | None) -> None:
        opened = self._here()
        root = "" if path is None else self._behind(path).rstrip("/")
        # Of a pattern, all that begins as it does.
        begins = re.split(r"[*?\[]", root)[0]
        below = begins if begins != root else f"{root}/" if root else ""
        with opened.lock:
            gone = [known for known in opened.files if known == root or known.startswith(below)]
            dropped = [opened.files.pop(known) for known in gone]
            asked = [this for this, known in opened.asked.items() if known == root or known.startswith(below)]
            for this in asked:
                del opened.asked[this]
            readers = [reader for reader in opened.readers if reader.path == root or reader.path.startswith(below)]
        # Not under the lock: a file that ends waits for reads that are under way.
        del dropped
        for reader in readers:
            # It may have been closed.
            with suppress(ValueError, OSError):
                reader.reload()

    def stats(self) -> dict[str, int | float]:
        """See :meth:`refault.Cache.stats`."""
        return self._here().cache.stats()

    def cat(self, path: Any, *words: Any, **rest: Any) -> Any:
        """Bytes of files: of one alone, or by their paths."""
        given = [self._behind(each) for each in path] if isinstance(path, (list, tuple, set)) else self._behind(path)
        return super().cat(given, *words, **rest)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **rest: Any) -> Any:
        """Bytes of a file from `start` to below `end`, both counted from its end if negative."""
        if rest:
            return self.fs.cat_file(self._handed(path), start=start, end=end, **rest)
        try:
            file = CachedObject(self, self._behind(path), self._native(self._behind(path)))
        except (FileNotFoundError, IsADirectoryError, _NoLength):
            return self.fs.cat_file(self._handed(path), start=start, end=end)
        with file:
            start, end, _ = slice(start, end).indices(file.size)
            return file.read_at(start, max(end - start, 0))


def _may_hide_changes(path: str) -> bool:
    """Whether the next change of a local file may leave its times as they are: the last one was a moment ago."""
    try:
        changed = os.stat(path).st_ctime_ns
    except OSError:
        return True
    moment = _TICK_SECONDS if changed % 1_000_000_000 else _WHOLE_SECONDS
    return changed / 1e9 > time.time() - moment


def _is_young(changed: Any) -> bool:
    """Whether a time of change has whole seconds and is not long past: by the clock here, which need not be that of the store."""
    try:
        if isinstance(changed, str):
            digits = changed.partition(".")[0]
            is_plain = len(digits) == 14 and digits.isdigit()
            parsed = datetime.strptime(digits, "%Y%m%d%H%M%S") if is_plain else parsedate_to_datetime(changed)
            changed = parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)
        seconds = changed.timestamp() if isinstance(changed, datetime) else float(changed)
    except (TypeError, ValueError, OverflowError):
        return False
    # Some count milliseconds.
    seconds = seconds / 1000 if seconds > 1e11 else seconds
    return seconds == int(seconds) and seconds > time.time() - _YOUNG_SECONDS


def _asks(fs: Any, path: str, told: dict[str, Any]) -> Callable[[int, int], bytes]:
    """What asks for a range of a file as it was told of: where the file system can be asked so, another file of the name is
    an error."""
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    if "http" in protocols:
        return _AsksByHttp(fs, path, told.get("etag"))
    if "s3" in protocols and told.get("etag"):
        # Its files ask for the ETag that they were opened with.
        file = fs.open(path, "rb", cache_type="none")
        if file.details.get("ETag") == told["etag"]:
            return file._fetch_range  # type: ignore[no-any-return]
    # Those of pyarrow take what begins at 0 for what is read as a stream, where no place can be named.
    how = {"seekable": True} if "seekable" in inspect.signature(fs._open).parameters else {}
    return lambda start, end: fs.cat_file(path, start=start, end=end, **how)


class _AsksByHttp:
    """Asks for ranges of an object as it is, not of what it is packed into for the way; if it has a strong ETag, of that
    object alone (RFC 9110 §13.1.1)."""

    def __init__(self, fs: Any, path: str, etag: str | None) -> None:
        self._fs = fs
        self._path = path
        self._etag = etag if etag and etag.startswith('"') else None

    def __call__(self, start: int, end: int) -> bytes:
        etag = self._etag
        headers = {"Accept-Encoding": "identity"} | ({"If-Match": etag} if etag else {})
        own = {name: value for name, value in dict(self._fs.kwargs.get("headers") or {}).items() if name.title() not in headers}
        try:
            return self._fs.cat_file(self._path, start=start, end=end, headers=own | headers)  # type: ignore[no-any-return]
        except Exception as error:
            if etag is None or getattr(error, "status", None) != 412:
                raise
            told = {str(name).lower(): value for name, value in self._fs.info(self._path).items()}
            if told.get("etag") != etag:
                why = f"{self._path}: it has changed since it was opened: open it again, or reload it"
                raise OSError(errno.ESTALE, why) from error
        # The server does not know its own tag.
        self._etag = None
        return self(start, end)


class _BlockReader:
    """Bytes of one object, asked for in blocks; the last answer is kept, since a store's latency is paid per request."""

    def __init__(self, asks: Callable[[int, int], bytes], path: str, block_bytes: int, length: int) -> None:
        self._asks = asks
        self._path = path
        self._block_bytes = block_bytes
        self._length = length
        self._lock = threading.Lock()
        self._at = 0
        self._block = b""

    def __call__(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self._length)
        with self._lock:
            at, block = self._at, self._block
        if not at <= offset <= end <= at + len(block):
            at = offset - offset % self._block_bytes
            to = min(-(-end // self._block_bytes) * self._block_bytes, self._length)
            block = self._asks(at, to)
            if len(block) == self._length > to - at:
                # A server without ranges answers all of it.
                at, to = 0, self._length
            if len(block) != to - at:
                raise OSError(f"{self._path}: {len(block)} bytes at {at}, not {to - at}: it has changed")
            with self._lock:
                self._at, self._block = at, block
        return block[offset - at : end - at]
