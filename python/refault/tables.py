"""Traces in tables with named columns: Parquet, Arrow's files and streams, and data frames, read by pyarrow."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: How files of Arrow begin; its streams begin with their schema.
_ARROW_FILE = b"ARROW1"
_PARQUET = b"PAR1"
_WRITES = {"w": True, "write": True, "r": False, "read": False}


def columns(
    source: Any, page: str, write: str | None, time: str | None
) -> tuple[NDArray[np.uint64], NDArray[np.bool_] | None]:
    """The pages and the writes of a table, in the order of its rows."""
    try:
        import pyarrow
        import pyarrow.fs
        import pyarrow.ipc
    except ImportError:
        raise ImportError("pyarrow reads tables: pip install pyarrow") from None
    wanted = [name for name in (page, write, time) if name is not None]
    table = _read(pyarrow, source, wanted)
    for name in wanted:
        if name not in table.column_names:
            raise ValueError(f"the table has no column {name!r}: choose from {', '.join(table.column_names)}")
        if nulls := table[name].null_count:
            raise ValueError(f"column {name!r} is empty in {nulls} of {table.num_rows} rows: leave those rows out")
    if time is not None:
        times = table[time].to_numpy()
        if back := int(np.count_nonzero(times[1:] < times[:-1])):
            raise ValueError(f"times go back in {back} rows: sort the table by {time!r}")
    return _pages(pyarrow, table[page], page), None if write is None else _writes(pyarrow, table[write], write)


def _read(pyarrow: Any, source: Any, wanted: list[str]) -> Any:
    if not isinstance(source, (str, PathLike)):
        return pyarrow.table(source)
    path = fspath(source)
    files, path = pyarrow.fs.FileSystem.from_uri(path) if "://" in path else (None, path)
    with files.open_input_file(path) if files else pyarrow.OSFile(path) as file:
        begins = file.read(len(_ARROW_FILE))
        file.seek(0)
        if begins.startswith(_PARQUET):
            from pyarrow import parquet

            reader = parquet.ParquetFile(file)
            return reader.read(columns=[name for name in wanted if name in reader.schema_arrow.names] or None)
        try:
            opened = pyarrow.ipc.open_file if begins == _ARROW_FILE else pyarrow.ipc.open_stream
            return opened(file).read_all()
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{path} is neither Parquet nor Arrow: {error}") from None


def _pages(pyarrow: Any, column: Any, name: str) -> NDArray[np.uint64]:
    kind = column.type
    if pyarrow.types.is_integer(kind):
        numbers = column.to_numpy()
        if len(numbers) and numbers.min() < 0:
            raise ValueError(f"column {name!r} has numbers below 0: pages are numbered from 0")
        return np.asarray(numbers, dtype=np.uint64)
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    texts = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "fixed_size_binary")
    known = (getattr(pyarrow.types, f"is_{text}", None) for text in texts)  # views are younger than pyarrow 12
    if not any(is_text is not None and is_text(kind) for is_text in known):
        raise ValueError(f"column {name!r} holds {kind}: pages are integers, objects are texts")
    encoded = column.cast(pyarrow.large_binary()).dictionary_encode().unify_dictionaries()
    return np.concatenate([np.empty(0), *(chunk.indices.to_numpy() for chunk in encoded.chunks)]).astype(np.uint64)


def _writes(pyarrow: Any, column: Any, name: str) -> NDArray[np.bool_]:
    if pyarrow.types.is_boolean(column.type):
        return np.asarray(column.to_pylist(), dtype=np.bool_)
    known = {value: _WRITES.get(str(value).lower()) for value in column.unique().to_pylist()}
    strange = [repr(value) for value, is_write in known.items() if is_write is None]
    if strange:
        raise ValueError(f"column {name!r} holds {', '.join(strange[:3])}: say true or false, or read or write")
    return np.array([known[value] for value in column.to_pylist()], dtype=np.bool_)
