"""An fsspec file system over the page cache, for ``refault::`` in URLs.

``fsspec.open("refault::s3://bucket/table.parquet", refault={"memory": "1G"})`` reads an object through a cache of one's own;
``refault::`` stands before any file system that fsspec has, ``refault:///data/table.parquet`` reads a local file. Only
reading goes through the cache; all else is the other file system's.

Files stay in the cache when they are closed, up to :data:`KEPT_FILES` of them, and are known again as long as the other file
system says that they are the same (``ukey``: size and time of change, or an ETag).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from . import _refault
from .arrays import Size, _bytes
from .files import Cache, CachedFile

try:
    from fsspec.implementations.chained import ChainedFileSystem
except ImportError:  # before 2025.12 fsspec had no class for what stands before others
    from fsspec.spec import AbstractFileSystem as ChainedFileSystem

#: Files whose pages stay when they are closed.
KEPT_FILES = 64


class _Open:
    """A cache, and the files in it by path: what they were known by, and the file."""

    def __init__(self, memory: Size, policy: str | None) -> None:
        self.cache = Cache(memory, policy)
        self.files: OrderedDict[str, tuple[str, _refault.File]] = OrderedDict()
        self.lock = threading.Lock()


#: What is shared by all URLs with the same options: fsspec makes a file system per URL.
_shared: dict[tuple[Any, ...], _Open] = {}
_sharing = threading.Lock()


def _after_fork_in_child() -> None:
    """Whoever held the lock is not here, and the caches are the parent's."""
    global _sharing
    _sharing = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


class CachedFileSystem(ChainedFileSystem):  # type: ignore[misc, unused-ignore]
    """Another file system, read through one :class:`refault.Cache`.

    Parameters
    ----------
    memory : bytes of file contents at most, or a text such as ``"1G"``
    policy : as on the command line
    block_size : bytes that are asked for at once of files that are not local; 1 MiB by default
    target_protocol, target_options : the file system behind, as fsspec says it; local files by default
    fs : the same as an object
    """

    protocol = ("refault",)

    def __init__(
        self,
        memory: Size = "64M",
        policy: str | None = None,
        block_size: Size = "1M",
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        fs: Any = None,
        fo: str | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self.fs = fs if fs is not None else fsspec.filesystem(target_protocol or "file", **(target_options or {}))
        self._block_bytes = _bytes(block_size)
        # An object says nothing about whether another is the same file system.
        protocol = (target_protocol or "file") if fs is None else None
        self._options = (memory, policy, self._block_bytes, protocol, repr(target_options))
        self._share()
        #: The path that a URL with ``refault::`` and nothing of its own means.
        self._fo = fo

    def _share(self) -> None:
        """Finds the files that are open, or begins with none."""
        memory, policy, _, protocol, _ = self._options
        with _sharing:
            self._open_files = (_shared.get(self._options) if protocol else None) or _Open(memory, policy)
            if protocol:
                _shared[self._options] = self._open_files
        self._process = os.getpid()
        self.cache = self._open_files.cache

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return str(path).removeprefix("refault::").removeprefix("refault://")

    def _behind(self, path: str) -> str:
        """A path as the other file system has it."""
        stripped = self._strip_protocol(path) or self._fo or ""
        return str(self.fs._strip_protocol(stripped))

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **rest: Any) -> Any:
        behind = self._behind(path)
        if mode != "rb":
            return self.fs._open(behind, mode, block_size=block_size, **rest)
        if self._process != os.getpid():
            self._share()
        key = str(self.fs.ukey(behind))
        files = self._open_files.files
        with self._open_files.lock:
            known = files.pop(behind, None)
            native = known[1] if known is not None and known[0] == key else self._attach(behind)
            files[behind] = (key, native)
            while len(files) > KEPT_FILES:
                files.popitem(last=False)
        return CachedFile(self.cache, behind, native=native.again())

    def _attach(self, behind: str) -> _refault.File:
        if isinstance(self.fs, LocalFileSystem):
            return self.cache._native.open(behind, "rb")
        length = self.fs.size(behind)
        if length is None:
            raise ValueError(f"{behind}: its file system does not say how long it is, so that it cannot be cached")
        return self.cache._native.attach(_BlockReader(self.fs, behind, self._block_bytes, length), length)

    def stats(self) -> dict[str, int | float]:
        """See :meth:`refault.Cache.stats`."""
        return self.cache.stats()

    # What is not read is the other file system's.

    def ls(self, path: str, detail: bool = True, **rest: Any) -> Any:
        """What lies in a directory, by the other file system's names."""
        return self.fs.ls(self._behind(path), detail=detail, **rest)

    def info(self, path: str, **rest: Any) -> Any:
        """Size, type and more of a path."""
        return self.fs.info(self._behind(path), **rest)

    def ukey(self, path: str) -> Any:
        """Differs when the file does."""
        return self.fs.ukey(self._behind(path))

    def created(self, path: str) -> Any:
        """When a file was made."""
        return self.fs.created(self._behind(path))

    def modified(self, path: str) -> Any:
        """When a file was changed last."""
        return self.fs.modified(self._behind(path))

    def mkdir(self, path: str, create_parents: bool = True, **rest: Any) -> None:
        """Makes a directory."""
        self.fs.mkdir(self._behind(path), create_parents=create_parents, **rest)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above."""
        self.fs.makedirs(self._behind(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self.fs.rmdir(self._behind(path))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        self.fs.rm_file(self._behind(path))

    def cp_file(self, path1: str, path2: str, **rest: Any) -> None:
        """Copies a file."""
        self.fs.cp_file(self._behind(path1), self._behind(path2), **rest)


class _BlockReader:
    """Bytes of one object, asked for in blocks; the last block is kept, since a store's latency is paid per request."""

    def __init__(self, fs: Any, path: str, block_bytes: int, length: int) -> None:
        self._fs = fs
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
            block = self._fs.cat_file(self._path, start=at, end=to)
            if len(block) < to - at:
                raise OSError(f"{self._path}: {len(block)} bytes at {at}, not {to - at}: it has changed")
            with self._lock:
                self._at, self._block = at, block
        return block[offset - at : end - at]
