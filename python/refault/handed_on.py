"""What an fsspec file system that stands before another hands on to that: everything but reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from fsspec.implementations.chained import ChainedFileSystem

    _HAS_PATHS = True
except ImportError:
    # Before 2025.12 fsspec had no class for what stands before others, and gave those no path of a URL.
    from fsspec.spec import AbstractFileSystem as ChainedFileSystem

    _HAS_PATHS = False


class HandedOn(ChainedFileSystem):  # type: ignore[misc, unused-ignore]
    """Hands on what changes, lists or describes files. What is read, a class below this one says.

    Each call is the other file system's own, with its names and its errors, so that what fails has done as much as it
    would have done there.
    """

    #: The file system behind.
    fs: Any
    #: The path that a URL with nothing of its own means.
    _fo: str | None = None

    def _is_before(self, path: str | None) -> None:
        """Takes up the path of the URL behind, where fsspec does not give it on with each call."""
        self._fo = None if _HAS_PATHS else path

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return os.fspath(path).removeprefix("refault::").removeprefix("refault://")

    def _handed(self, path: Any) -> Any:
        """Paths as they are given on: a slash at the end says something there."""
        if isinstance(path, dict):
            return {self._handed(each): value for each, value in path.items()}
        if isinstance(path, (list, tuple, set)):
            return [self._handed(each) for each in path]
        return self._strip_protocol(path) or self._fo or ""

    def _behind(self, path: str) -> str:
        """A path as the other file system has it."""
        return str(self.fs._strip_protocol(self._handed(path)))

    def _forget(self, path: str | None) -> None:
        """What is known of a path, and of what lies below it, is known no more; of all paths without one."""

    @contextmanager
    def _changing(self, *paths: Any) -> Iterator[None]:
        """Around what changes paths, or removes them: done or failed, they are known no more."""
        try:
            yield
        finally:
            for path in paths:
                for each in self._handed(path) if isinstance(path, (dict, list, tuple, set)) else [path]:
                    self._forget(each)

    def __getattr__(self, name: str) -> Any:
        # What only the other file system has, such as `url` or `get_tags` of a store.
        if name.startswith("_") or name == "fs":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.fs, name)

    def _parent(self, path: str) -> Any:
        return self.fs._parent(self._handed(path))

    def unstrip_protocol(self, name: str) -> str:
        """A URL of a path."""
        return f"refault::{self.fs.unstrip_protocol(self._handed(name))}"

    @property
    def fsid(self) -> Any:
        """The other file system's."""
        return self.fs.fsid

    @property
    def sep(self) -> Any:
        """What stands between names."""
        return self.fs.sep

    @property
    def root_marker(self) -> Any:
        """What the path of the root is."""
        return self.fs.root_marker

    # Transactions are the other's: what is written goes there.

    @property
    def transaction(self) -> Any:
        """The other file system's transaction."""
        return self.fs.transaction

    def start_transaction(self) -> Any:
        """Begins one."""
        return self.fs.start_transaction()

    def end_transaction(self) -> None:
        """Ends it."""
        self.fs.end_transaction()

    # What describes.

    def ls(self, path: str, *detail: bool, **rest: Any) -> Any:
        """What lies in a directory, by the other file system's names; whether these alone if `detail` does not say, it says."""
        return self.fs.ls(self._handed(path), *detail, **rest)

    def info(self, path: str, **rest: Any) -> Any:
        """Size, type and more of a path."""
        return self.fs.info(self._handed(path), **rest)

    def exists(self, path: str, **rest: Any) -> Any:
        """Whether there is anything."""
        return self.fs.exists(self._handed(path), **rest)

    def lexists(self, path: str, **rest: Any) -> Any:
        """The same, of a link itself."""
        return self.fs.lexists(self._handed(path), **rest)

    def isdir(self, path: str) -> Any:
        """Whether it is a directory."""
        return self.fs.isdir(self._handed(path))

    def isfile(self, path: str) -> Any:
        """Whether it is a file."""
        return self.fs.isfile(self._handed(path))

    def size(self, path: str) -> Any:
        """Bytes in a file."""
        return self.fs.size(self._handed(path))

    def sizes(self, paths: list[str]) -> Any:
        """Bytes in each of several files."""
        return self.fs.sizes(self._handed(paths))

    def ukey(self, path: str) -> Any:
        """Differs when the file does, if the other file system says so."""
        return self.fs.ukey(self._handed(path))

    def checksum(self, path: str) -> Any:
        """A number that differs when the file does, likewise."""
        return self.fs.checksum(self._handed(path))

    def created(self, path: str) -> Any:
        """When a file was made."""
        return self.fs.created(self._handed(path))

    def modified(self, path: str) -> Any:
        """When a file was changed last."""
        return self.fs.modified(self._handed(path))

    def walk(self, path: str, *words: Any, **rest: Any) -> Any:
        """What lies in a directory and below, directory by directory."""
        return self.fs.walk(self._handed(path), *words, **rest)

    def find(self, path: str, *words: Any, **rest: Any) -> Any:
        """All files below a directory."""
        return self.fs.find(self._handed(path), *words, **rest)

    def glob(self, path: str, *words: Any, **rest: Any) -> Any:
        """Paths that match."""
        return self.fs.glob(self._handed(path), *words, **rest)

    def du(self, path: str, *words: Any, **rest: Any) -> Any:
        """Bytes below a directory."""
        return self.fs.du(self._handed(path), *words, **rest)

    def expand_path(self, path: Any, *words: Any, **rest: Any) -> Any:
        """Paths that match, or lie below."""
        return self.fs.expand_path(self._handed(path), *words, **rest)

    def sign(self, path: str, *words: Any, **rest: Any) -> Any:
        """A URL for others."""
        return self.fs.sign(self._handed(path), *words, **rest)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forgets what is known of a path and of what lies below it, or of all: its pages, and what the other file system
        knows."""
        self._forget(path)
        self.fs.invalidate_cache(None if path is None else self._handed(path))

    # What changes.

    def mkdir(self, path: str, create_parents: bool = True, **rest: Any) -> None:
        """Makes a directory."""
        self.fs.mkdir(self._handed(path), create_parents=create_parents, **rest)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above."""
        self.fs.makedirs(self._handed(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        with self._changing(path):
            self.fs.rmdir(self._handed(path))

    def rm_file(self, path: str) -> None:
        """Removes a file."""
        with self._changing(path):
            self.fs.rm_file(self._handed(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None, **rest: Any) -> None:
        """Removes files, or directories and what lies below."""
        if maxdepth is not None:
            rest["maxdepth"] = maxdepth
        with self._changing(path):
            try:
                self.fs.rm(self._handed(path), recursive=recursive, **rest)
            except Exception as error:
                if isinstance(path, (list, tuple, set)) and hasattr(error, "add_note"):
                    there = [each for each in path if self.exists(each)]
                    error.add_note(f"refault: of the {len(path)} paths to be removed these are there still: {there}")
                raise

    def mv(self, path1: Any, path2: Any, *words: Any, **rest: Any) -> None:
        """Moves."""
        with self._changing(path1, path2):
            self.fs.mv(self._handed(path1), self._handed(path2), *words, **rest)

    def mv_file(self, path1: str, path2: str, **rest: Any) -> None:
        """Moves a file, where the other file system has this."""
        with self._changing(path1, path2):
            self.fs.mv_file(self._handed(path1), self._handed(path2), **rest)

    def cp_file(self, path1: str, path2: str, **rest: Any) -> None:
        """Copies a file."""
        with self._changing(path2):
            self.fs.cp_file(self._handed(path1), self._handed(path2), **rest)

    def copy(self, path1: Any, path2: Any, *words: Any, **rest: Any) -> None:
        """Copies files, or directories and what lies below."""
        with self._changing(path2):
            self.fs.copy(self._handed(path1), self._handed(path2), *words, **rest)

    def touch(self, path: str, truncate: bool = True, **rest: Any) -> None:
        """Makes an empty file, or sets the time of one."""
        with self._changing(path):
            self.fs.touch(self._handed(path), truncate=truncate, **rest)

    def pipe_file(self, path: str, value: bytes, *words: Any, **rest: Any) -> Any:
        """Writes a file whole."""
        with self._changing(path):
            return self.fs.pipe_file(self._handed(path), value, *words, **rest)

    def pipe(self, path: Any, value: bytes | None = None, **rest: Any) -> Any:
        """Writes files whole: one, or a dictionary of them."""
        with self._changing(path):
            return self.fs.pipe(self._handed(path), value, **rest)

    def put_file(self, lpath: Any, rpath: str, *words: Any, **rest: Any) -> Any:
        """Copies a file of the machine there."""
        with self._changing(rpath):
            return self.fs.put_file(lpath, self._handed(rpath), *words, **rest)

    def put(self, lpath: Any, rpath: Any, *words: Any, **rest: Any) -> Any:
        """Copies files of the machine there."""
        with self._changing(rpath):
            return self.fs.put(lpath, self._handed(rpath), *words, **rest)

    # Whole files that go to the machine's disk go past the cache, which they would fill.

    def get_file(self, rpath: str, lpath: Any, *words: Any, **rest: Any) -> Any:
        """Copies a file to the machine, past the cache."""
        return self.fs.get_file(self._handed(rpath), lpath, *words, **rest)

    def get(self, rpath: Any, lpath: Any, *words: Any, **rest: Any) -> Any:
        """Copies files to the machine, past the cache."""
        return self.fs.get(self._handed(rpath), lpath, *words, **rest)
