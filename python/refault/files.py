"""Files behind a page cache of one's own, with a policy and a size of one's own."""

from __future__ import annotations

import atexit
import io
import os
from os import PathLike
from typing import Any

import numpy as np

from . import _refault
from .arrays import Size, _bytes

# Requests to a store that are under way then are left where they are: Python cannot end them.
atexit.register(_refault.end)


class Cache:
    """A page cache that several files share.

    Parameters
    ----------
    memory : bytes at most, at least 256 KiB, what is kept of pages included (2 MiB may come on top); or a text such as
        ``"1G"``
    policy : as on the command line; any that does not need to know the future
    """

    def __init__(self, memory: Size = "64M", policy: str | None = None) -> None:
        self._native = _refault.Cache(_bytes(memory), policy)

    def open(self, path: str | PathLike[str], mode: str = "rb") -> CachedFile:
        """Opens a file, which must exist. See :func:`refault.open`."""
        return CachedFile(self, path, mode)

    def stats(self) -> dict[str, int | float]:
        """``memory_bytes``, ``resident_bytes``, ``metadata_bytes``; pages since the start: ``hits``, ``misses``,
        ``read_ahead``, ``written``; and ``hit_ratio`` (0 to 1)."""
        return self._native.stats()


class CachedFile(io.RawIOBase):
    """A binary file whose pages lie in a :class:`Cache`. Threads may read and write it at once.

    While it is open only this cache should write to the file. It needs a file system that does direct I/O (ext4, xfs,
    btrfs; tmpfs since Linux 6.6).

    In a child of a fork, a file that was opened for reading is opened again on first use, in a cache of the child's own with
    the same options, at the same position; one that was opened for writing, or is a store's, raises OSError: open it in the
    child.
    """

    def __init__(
        self, cache: Cache, path: str | PathLike[str], mode: str = "rb", *, native: _refault.File | None = None
    ) -> None:
        if mode not in ("rb", "r+b", "rb+"):
            raise ValueError(f"mode {mode!r}: choose from 'rb' and 'r+b'; a cached file is binary and must exist")
        self._cache = cache
        self._path = os.fspath(path)
        self._mode = "rb" if mode == "rb" else "r+b"
        self._native = cache._native.open(path, mode != "rb") if native is None else native

    @property
    def name(self) -> str:
        """The path."""
        return self._path

    @property
    def mode(self) -> str:
        """``"rb"`` or ``"r+b"``."""
        return self._mode

    def stats(self) -> dict[str, int | float]:
        """See :meth:`Cache.stats`; the figures are of all files of the cache."""
        return self._cache.stats()

    def readable(self) -> bool:
        """True."""
        return True

    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._mode == "r+b"

    def seekable(self) -> bool:
        """True."""
        return True

    # What small reads go through asks for nothing here: what is closed, or wrong, the native half says.

    def size(self) -> int:
        """Bytes in the file."""
        return self._native.size()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves to `offset` from the beginning, the position, or the end; returns the new position."""
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._native.tell()

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes from the position on; without a size, all to the end."""
        return self._native.read(-1 if size is None else size)

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        return self._native.read(-1)

    def readinto(self, buffer: Any, /) -> int:
        """Fills a buffer from the position on; the bytes read."""
        return self._native.readinto(buffer)

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on, fewer only at the end. Does not move the position."""
        if offset < 0 or length < 0:
            raise ValueError(f"offset and length are not negative: {offset}, {length}")
        return self._native.read_at(offset, length)

    def views(self, offset: int, length: int) -> list[memoryview]:
        """Up to `length` bytes from `offset` on without a copy: read-only views of the cache's own memory, in order, each
        within a page of 4 KiB (pages that follow each other in the file do not in memory).

        What is viewed cannot be evicted, so view little and not for long; views show what the file held when they were
        made, whatever is written meanwhile, and stay good after :meth:`close`. Raises OSError if more is viewed than the
        cache has room for.
        """
        if offset < 0 or length < 0:
            raise ValueError(f"offset and length are not negative: {offset}, {length}")
        return [np.asarray(view).data for view in self._native.views(offset, length)]

    def write_at(self, offset: int, data: Any) -> int:
        """Writes what is bytes-like (and contiguous; not copied) at `offset` to the file, which may grow; the bytes
        written. Does not move the position."""
        if not self.writable():
            raise io.UnsupportedOperation("the file was opened for reading only: open it with mode 'r+b'")
        if offset < 0:
            raise ValueError(f"offset is not negative: {offset}")
        return self._native.write_at(offset, data)

    def write(self, data: Any, /) -> int:
        """Writes what is bytes-like at the position; the bytes written."""
        count = self.write_at(self.tell(), data)
        self.seek(count, os.SEEK_CUR)
        return count

    def flush(self) -> None:
        """Makes what was written durable."""
        if not self.closed and self.writable():
            self._native.sync()

    def close(self) -> None:
        """Makes what was written durable, and ends the use of the file."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._native.close()

    def __repr__(self) -> str:
        return f"<refault.CachedFile {self._path!r}>"


def open(
    path: str | PathLike[str],
    mode: str = "rb",
    *,
    memory: Size | None = None,
    policy: str | None = None,
    cache: Cache | None = None,
) -> CachedFile:
    """Opens a file behind a page cache: one of its own of `memory` bytes (``"64M"`` by default) with `policy`, or
    a `cache` that others share, which has both already.

    Raises
    ------
    OSError
        There is no such file, or its file system does not do direct I/O.
    ValueError
        The mode, the size or the policy is none, or belongs to a cache that is given.
    """
    for name, asked in (("memory", memory), ("policy", policy)):
        if cache is not None and asked is not None:
            raise ValueError(f"a cache that is shared has its {name} already: give {name} to refault.Cache, or leave cache out")
    return CachedFile(cache or Cache("64M" if memory is None else memory, policy), path, mode)
