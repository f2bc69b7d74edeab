"""Traces: who accessed which page, in order."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _refault
from .tables import columns as page_columns
from .tables import write_csv

KINDS = ("anon", "fd", "mapped")


class TraceWarning(UserWarning):
    """Something of a trace was left out, put in another order or assumed as it was read. Said once per trace, after the
    first pass over it; ``strict=True`` makes it an error, and :meth:`Trace.remarks` lists what was said."""


class Trace:
    """A trace, from an array, a file, or a generated workload (:meth:`workload`). It can be used any number of times.

    Parameters
    ----------
    source : array of integers of shape (accesses,), or a path
        Page numbers from 0 to 2**56 - 1, one per access; an array of ``uint64`` is used without a copy and must not change
        while the trace is used. A path names a file in any format that the command reads.
    kind : {"anon", "fd", "mapped"}, optional
        What is accessed: anonymous memory, a file by ``read()`` and ``write()``, or a file through a mapping. Arrays are
        ``"anon"`` unless said otherwise; of a file, the kind of accesses that do not say theirs.
    writes : array of bool of shape (accesses,), optional
        Which accesses write. Only with an array.
    name : str, optional
        What the trace is called in tables; the file's name, or ``"array"``.
    columns : mapping of str to str, or pairs of str, optional
        Columns of a CSV file by name or number, as ``--columns`` of the command: ``{"object": "key", "time_us": "3"}``.
        Pairs may name several columns that are not read: ``[("unread", "user"), ("unread", "host")]``.
    format, block_bytes, objects_have_sizes, skip_size_zero, file_order, strict, skip_instructions, collapse : optional
        As the options of the command with these names (``--trace-format`` for `format`); ``objects_have_sizes=False`` is
        ``--objects-one-page-each``. Without either, objects have as many pages as their sizes need if the trace says
        sizes. Only with a path, as `columns`.

    Warns
    -----
    TraceWarning
        Something of the file was left out or assumed; said after the first pass over it.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It is no trace, it is empty, or the array holds what is no page number.
    """

    def __init__(
        self,
        source: ArrayLike | str | PathLike[str],
        *,
        kind: str | None = None,
        writes: ArrayLike | None = None,
        name: str | None = None,
        format: str | None = None,
        block_bytes: int | None = None,
        objects_have_sizes: bool | None = None,
        collapse: bool = False,
        columns: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        skip_size_zero: bool = False,
        file_order: bool = False,
        strict: bool = False,
        skip_instructions: bool = False,
    ) -> None:
        if isinstance(source, (str, PathLike)):
            if writes is not None:
                raise ValueError("writes belong to an array: a file says itself which accesses write")
            told = columns.items() if isinstance(columns, Mapping) else columns or ()
            self._native = _refault.Trace.from_file(
                source,
                format,
                kind,
                name,
                block_bytes,
                objects_have_sizes,
                collapse,
                [(field, str(column)) for field, column in told],
                skip_size_zero,
                file_order,
                strict,
                skip_instructions,
            )
            return
        of_files = {
            "format": format is not None,
            "block_bytes": block_bytes is not None,
            "objects_have_sizes": objects_have_sizes is not None,
            "columns": columns is not None,
            "skip_size_zero": skip_size_zero,
            "file_order": file_order,
            "strict": strict,
            "skip_instructions": skip_instructions,
            "collapse": collapse,
        }
        given = [option for option, is_given in of_files.items() if is_given]
        if given:
            raise ValueError(f"{' and '.join(given)}: only for files, not for arrays")
        written = None if writes is None else np.ascontiguousarray(writes, dtype=np.bool_)
        self._native = _refault.Trace.from_array(_page_numbers(source), written, kind or "anon", name or "array")

    @classmethod
    def _of(cls, native: _refault.Trace) -> Trace:
        trace = cls.__new__(cls)
        trace._native = native
        return trace

    @classmethod
    def from_table(
        cls,
        source: Any,
        page: str | None = None,
        *,
        write: str | None = None,
        time: str | None = None,
        columns: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        kind: str | None = None,
        name: str | None = None,
        **reading: Any,
    ) -> Trace:
        """A trace in a table: a path or URI of Parquet or Arrow, or a data frame. Needs pyarrow.

        >>> import pyarrow
        >>> table = pyarrow.table({"key": ["a", "b", "a"], "op": ["read", "write", "read"], "size": [9000, 1, 9000]})
        >>> Trace.from_table(table, page="key", write="op").pages().tolist()
        [0, 1, 0]
        >>> Trace.from_table(table, columns={"object": "key"}).counts()["distinct_pages"]  # 3 pages and 1
        4

        Parameters
        ----------
        page : the column of page numbers, or of texts, which are numbered as they come and are a page each. Without it,
            columns mean what they mean in CSV: objects with sizes, offsets on devices, times to live and so on
        write : the column that says which accesses write: true or false, or ``read``, ``write``, ``r``, ``w``
        time : the column of times; a table whose times go back is refused, as the order of rows is that of accesses
        columns : without `page`: what columns are, as of :class:`Trace`, beside those that their names tell; the types of
            times tell their units
        kind, name : as of :class:`Trace`
        reading : without `page`: ``block_bytes`` and the other options of :class:`Trace` for files

        The table is read as a whole. Without `page` its rows are on disk, in a temporary directory, while they are read.
        """
        label = name or (fspath(source) if isinstance(source, (str, PathLike)) else "table")
        if page is not None:
            if columns is not None or reading:
                given = ["columns"] if columns is not None else []
                raise ValueError(f"{' and '.join([*given, *reading])}: only without page, which says what the rows are")
            pages, writes = page_columns(source, page, write, time)
            return cls(pages, writes=writes, kind=kind, name=label)
        if write is not None or time is not None:
            raise ValueError("write and time belong to page: without it name them in columns, as operation and time")
        told = columns.items() if isinstance(columns, Mapping) else columns or ()
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "table.csv")
            fields = write_csv(source, path, told)
            try:
                return cls(path, format="csv", columns=fields, kind=kind, name=label, **reading).decode()
            except ValueError as error:  # The rows lie in a file of no name: the table's name stands for them.
                raise ValueError(str(error).replace(path, label)) from None

    @classmethod
    def workload(cls, spec: str) -> Trace:
        """A generated workload, as ``--workload`` of the command: ``"zipf:theta=1,pages=1000,accesses=20000"``."""
        return cls._of(_refault.Trace.workload(spec))

    @property
    def name(self) -> str:
        """What the trace is called in tables."""
        return self._native.name

    def part(self, skip: int = 0, limit: int | None = None) -> Trace:
        """At most `limit` accesses after the first `skip`."""
        return Trace._of(self._native.part(skip, limit))

    def decode(self) -> Trace:
        """The same trace, read to its end and kept in memory: 8 bytes per access, 16 if it says how many bytes each access
        stands for. Worth it for a file or a workload that is used many times. Pickling a trace sends it decoded."""
        decoded = Trace._of(self._native.decode())
        say_remarks(self._native)
        decoded._native.new_remarks()  # They are said.
        return decoded

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._native.memory_bytes()

    def __reduce__(self) -> Any:
        native = self._native if self._native.memory_bytes() else self._native.decode()
        return _from_bytes, (native.name, native.to_bytes(), native.remarks())

    def remarks(self) -> list[str]:
        """What was left out, put in another order or assumed, a sentence each; empty for arrays and workloads. Reads the
        whole trace if nothing has done so yet."""
        return self._native.remarks()

    def counts(self) -> dict[str, int]:
        """Accesses, distinct pages, distinct anonymous pages, writes. Reads the whole trace."""
        names = ("accesses", "distinct_pages", "distinct_anon", "writes")
        counts = dict(zip(names, self._native.counts(), strict=True))
        say_remarks(self._native)
        return counts

    def pages(self) -> NDArray[np.uint64]:
        """The page number of each access, shape (accesses,). Reads the whole trace; 8 bytes per access."""
        return self.to_arrays()["pages"]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """``pages`` (uint64), ``writes`` (bool) and ``kinds`` (uint8: 0 anon, 1 fd, 2 mapped), each of shape (accesses,)."""
        pages, writes, kinds = self._native.read()
        say_remarks(self._native)
        return {"pages": pages, "writes": writes, "kinds": kinds}

    def __repr__(self) -> str:
        return f"Trace({self.name!r})"


def _from_bytes(name: str, data: bytes, remarks: list[str]) -> Trace:
    trace = Trace._of(_refault.Trace.from_bytes(name, data))
    trace._native.add_remarks(remarks)
    return trace


def say_remarks(trace: _refault.Trace) -> None:
    """Warns of what passes over a trace have left out or assumed and was not said before."""
    for remark in trace.new_remarks():
        warn(f"{trace.name}: {remark}")


def warn(text: str) -> None:
    """A :class:`TraceWarning` at the line that called this package."""
    here = os.path.dirname(__file__) + os.sep
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, TraceWarning, stacklevel=depth)


def _page_numbers(source: ArrayLike) -> NDArray[np.uint64]:
    array = np.asarray(source)
    if array.ndim == 0:
        raise TypeError(f"a trace is an array of page numbers, one per access, or a path; not {source!r}")
    if array.ndim != 1:
        raise ValueError(f"an array of accesses has one dimension, not {array.ndim}: shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"page numbers are integers, not {array.dtype}")
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise ValueError("page numbers are not negative")
    return np.ascontiguousarray(array, dtype=np.uint64)


def native_traces(traces: Any) -> list[_refault.Trace]:
    """One trace or many, of whatever a :class:`Trace` can be made, with names of their own."""
    if isinstance(traces, (Trace, str, PathLike, np.ndarray)):
        traces = [traces]
    if not isinstance(traces, (Sequence, Iterable)):
        raise TypeError(f"traces are a Trace, a path, an array, or several of them; not {traces!r}")
    many = list(traces)
    if many and all(isinstance(trace, (int, np.integer)) for trace in many):
        raise TypeError("traces are a Trace, a path, an array, or several of them; of numbers alone make an array first")
    known = []
    for number, trace in enumerate(many, 1):
        if isinstance(trace, Trace):
            known.append(trace)
        elif isinstance(trace, (str, PathLike)) or len(many) == 1:
            known.append(Trace(trace))
        else:
            known.append(Trace(trace, name=f"array-{number}"))
    if not known:
        raise ValueError("no traces: name at least one")
    names = [trace.name for trace in known]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"several traces are called {sorted(twice)[0]!r}: give each a name of its own, Trace(…, name=…)")
    return [trace._native for trace in known]
