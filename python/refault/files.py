"""Files behind a page cache of one's own, with a policy and a size of one's own."""

from __future__ import annotations

import atexit
import io
import os
import warnings
from os import PathLike
from typing import Any, Union

import numpy as np

from . import _refault
from .arrays import Size, _bytes

_Path = Union[str, bytes, "PathLike[str]", "PathLike[bytes]"]

#: What ends a file of Python's.
_end = io.RawIOBase.close

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

    def open(self, path: _Path, mode: str = "rb") -> CachedFile:
        """Opens a file. See :func:`refault.open`."""
        return CachedFile(self, path, mode)

    def stats(self) -> dict[str, int | float]:
        """``memory_bytes``, ``resident_bytes``, ``metadata_bytes``; pages since the start: ``hits``, ``misses``,
        ``read_ahead``, ``written``; and ``hit_ratio`` (0 to 1)."""
        return self._native.stats()


class CachedFile(io.RawIOBase):
    """A binary file whose pages lie in a :class:`Cache`.

    It does what a file of ``open(path, mode, buffering=0)`` does, and has `peek`, `read1` and `readinto1` of buffered files.
    Threads may share it: each read, write, line or seek is one step, as the kernel has it for a descriptor.

    While it is open only this cache should write to the file; what others wrote is found after :meth:`reload`. It needs a
    file system that does direct I/O (ext4, xfs, btrfs; tmpfs since Linux 6.6).

    In a child of a fork, a file that was opened for reading is opened again on first use, in a cache of the child's own with
    the same options, at the same position; one that was opened for writing, or is a store's, raises OSError: open it in the
    child.
    """

    name: str | bytes
    """The path, as it was given."""

    closefd = True
    """What Python's files say of themselves: the file ends with :meth:`close`."""

    #: None if it could not be opened.
    _native: _refault.File = None  # type: ignore[assignment]

    def __init__(self, cache: Cache, path: _Path, mode: str = "rb", *, native: _refault.File | None = None) -> None:
        self._cache = cache
        self.name = path if type(path) is str else os.fspath(path)
        if native is not None:
            self._native = native
            return
        decoded = self.name if isinstance(self.name, str) else os.fsdecode(self.name)
        if "\0" in decoded:
            raise ValueError("embedded null byte")
        try:
            self._native = cache._native.open(decoded, mode)
        except OSError as error:
            # As Python's own files say it: as it was given. The native half knows it from the root on.
            if error.filename is not None:
                error.filename = self.name
            raise

    @property
    def mode(self) -> str:
        """As :class:`io.FileIO` says it: ``"rb"``, ``"rb+"``, ``"wb"``, ``"ab"``, ``"ab+"``, ``"xb"`` or ``"xb+"``."""
        return self._native.mode

    def stats(self) -> dict[str, int | float]:
        """See :meth:`Cache.stats`; the figures are of all files of the cache."""
        return self._cache.stats()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def readable(self) -> bool:
        """Whether it was opened for reading."""
        self._check_open()
        return self._native.reads

    def writable(self) -> bool:
        """Whether it was opened for writing."""
        self._check_open()
        return self._native.writes

    def seekable(self) -> bool:
        """True."""
        self._check_open()
        return True

    # What small reads go through asks for nothing here: what is closed, or wrong, the native half says.

    def size(self) -> int:
        """Bytes in the file."""
        return self._native.size()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves to `offset` from the beginning, the position, or the end, or to the first data or hole from there on; returns
        the new position."""
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._native.tell()

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes from the position on; all to the end without a size, or with a negative one."""
        return self._native.read(-1 if size is None else size)

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        return self._native.read(-1)

    def read1(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes from the position on; :data:`io.DEFAULT_BUFFER_SIZE` without a size, or with a negative one."""
        return self._native.read(io.DEFAULT_BUFFER_SIZE if size is None or size < 0 else size)

    def peek(self, size: int = 0, /) -> bytes:
        """Bytes from the position on, which stays: at least `size`, unless the file ends before."""
        return self._native.peek(max(size, io.DEFAULT_BUFFER_SIZE))

    def readline(self, size: int | None = -1, /) -> bytes:
        """From the position to the end of the line, or `size` bytes of it."""
        return self._native.readline(-1 if size is None else size)

    def readinto(self, buffer: Any, /) -> int:
        """Fills a buffer from the position on; the bytes read."""
        return self._native.readinto(buffer)

    def readinto1(self, buffer: Any, /) -> int:
        """As :meth:`readinto`."""
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
        if offset < 0:
            raise ValueError(f"offset is not negative: {offset}")
        return self._native.write_at(offset, data)

    def write(self, data: Any, /) -> int:
        """Writes what is bytes-like at the position, or at the end in a mode with ``a``; the bytes written."""
        return self._native.write(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Cuts the file off, or adds zeros, so that it has `size` bytes, or ends at the position; returns the size."""
        return self._native.truncate(size)

    def fileno(self) -> int:
        """A descriptor of the file through the kernel's page cache. From then on the position is the descriptor's: a child process
        that writes to it, say, moves this one, too.

        What was written here is there to be read. What others write by it is found here at the next call, except through
        a mapping (``mmap``), where :meth:`reload` is needed. A store's object has none: :class:`io.UnsupportedOperation`.
        """
        return self._native.fileno()

    def reload(self) -> None:
        """Takes up what other programs did to the file, its length too: drops what is cached of it."""
        self._native.reload()

    def flush(self) -> None:
        """Makes durable what was written by this file since the last time; does nothing if nothing was."""
        self._native.sync()

    def close(self) -> None:
        """Makes what was written durable, and ends the use of the file. Does nothing if it is closed."""
        if self.closed or self._native is None:
            return
        # Python says so when it drops the file.
        if getattr(self, "_finalizing", False):
            self._dealloc_warn(self)
        try:
            _end(self)
        finally:
            self._native.close()

    def _dealloc_warn(self, source: object) -> None:
        """Called by buffered files that are dropped without being closed, too."""
        if not self.closed:
            level = 3 if source is self else 2
            warnings.warn(f"unclosed file {source!r}", ResourceWarning, stacklevel=level, source=source)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A copy would be the same file under another name: its end would be the end of both.
        raise TypeError(f"cannot pickle or copy '{type(self).__name__}' object: open the file again, or send its name")

    def __repr__(self) -> str:
        kind = type(self)
        known = "refault.CachedFile" if kind is CachedFile else f"{kind.__module__}.{kind.__qualname__}"
        return f"<{known} name={self.name!r} mode={self.mode!r}>"


def open(
    path: _Path,
    mode: str = "rb",
    *,
    memory: Size | None = None,
    policy: str | None = None,
    cache: Cache | None = None,
) -> CachedFile:
    """Opens a file behind a page cache: one of its own of `memory` bytes (``"64M"`` by default) with `policy`, or
    a `cache` that others share, which has both already.

    Modes are those of :class:`io.FileIO`: one of ``r``, ``w``, ``a`` and ``x``, with ``+`` for both ways; with ``b`` or
    without, the file is binary. For text, or for a buffer, put :class:`io.TextIOWrapper` or :class:`io.BufferedRandom` and
    their like on it.

    Raises
    ------
    OSError
        There is no such file, or it may not be opened so, or its file system does not do direct I/O.
    ValueError
        The mode, the size or the policy is none, or belongs to a cache that is given.
    """
    for name, asked in (("memory", memory), ("policy", policy)):
        if cache is not None and asked is not None:
            raise ValueError(f"a cache that is shared has its {name} already: give {name} to refault.Cache, or leave cache out")
    return CachedFile(cache or Cache("64M" if memory is None else memory, policy), path, mode)
