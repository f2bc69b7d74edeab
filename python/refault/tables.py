"""Traces in tables with named columns: Parquet, Arrow's files and streams, and data frames, read by pyarrow."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: How files of Arrow begin; its streams begin with their schema.
_ARROW_FILE = b"ARROW1"
_PARQUET = b"PAR1"
#: Names by which the reader of CSV knows a column of times.
_TIMES = ("time", "timestamp", "ts", "op_time")
_WRITES = {"w": True, "write": True, "r": False, "read": False}


def columns(
    source: Any, page: str, write: str | None, time: str | None
) -> tuple[NDArray[np.uint64], NDArray[np.bool_] | None]:
    """The pages and the writes of a table, in the order of its rows."""
    pyarrow = _pyarrow()
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


def write_csv(source: Any, path: str, told: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Writes a table as CSV, and answers what its columns are: those that were told, with the units that their types say.

    Texts that a line cannot hold become numbers, the same for the same text. What has no form in CSV is left empty.
    """
    pyarrow = _pyarrow()
    from pyarrow import csv

    table = _read(pyarrow, source, None)
    fields = [(field, str(column)) for field, column in told]
    for field, name in fields:
        if not name.isdecimal() and field != "separator":
            missing = [part for part in name.split("+") if part and part not in table.column_names]
            if missing:
                raise ValueError(f"the table has no column {missing[0]!r}: choose from {', '.join(table.column_names)}")
    written, units = [], {}
    for name in table.column_names:
        column, units[name] = _as_csv(pyarrow, table[name])
        written.append(column)
    csv.write_csv(pyarrow.table(written, names=table.column_names), path)
    is_time = [field.startswith("time") or field == "filetime" for field, _ in fields]
    if not any(is_time):
        usual = (name for name in table.column_names if units[name] and name.lower() in _TIMES)
        fields += [("time", name) for name in list(usual)[:1]]
    typed = [(f"time_{units[name]}" if field == "time" and units.get(name) else field, name) for field, name in fields]
    return typed if any(field == "separator" for field, _ in typed) else [*typed, ("separator", "comma")]


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.fs
        import pyarrow.ipc
    except ImportError:
        raise ImportError("pyarrow reads tables: pip install pyarrow") from None
    return pyarrow


def _as_csv(pyarrow: Any, column: Any) -> tuple[Any, str | None]:
    """A column as CSV can hold it, and the unit of its times if it has times."""
    types, kind = pyarrow.types, column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_date(kind):
        return column.cast(pyarrow.timestamp("s")).cast(pyarrow.int64()), "s"
    if types.is_timestamp(kind) or types.is_duration(kind):
        return column.cast(pyarrow.int64()), kind.unit
    if types.is_boolean(kind):
        # As operations are written; in a column of something else it is refused either way.
        return pyarrow.compute.if_else(column, "write", "read"), None
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return column, None
    if not _is_text(pyarrow, kind):
        return pyarrow.nulls(len(column), pyarrow.string()), None
    try:
        texts = column.cast(pyarrow.large_string())
    except pyarrow.ArrowInvalid:  # Bytes that are no text.
        return _numbered(pyarrow, column), None
    is_line = not pyarrow.compute.any(pyarrow.compute.match_substring_regex(texts, r"[\r\n\x00]")).as_py()
    return (texts if is_line else _numbered(pyarrow, column)), None


def _numbered(pyarrow: Any, column: Any) -> Any:
    """Texts as numbers, in the order in which they come first."""
    encoded = column.cast(pyarrow.large_binary()).dictionary_encode().unify_dictionaries()
    return pyarrow.chunked_array([chunk.indices for chunk in encoded.chunks], pyarrow.int32())


def _is_text(pyarrow: Any, kind: Any) -> bool:
    texts = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "fixed_size_binary")
    known = (getattr(pyarrow.types, f"is_{text}", None) for text in texts)  # views are younger than pyarrow 12
    return any(is_text is not None and is_text(kind) for is_text in known)


def _read(pyarrow: Any, source: Any, wanted: list[str] | None) -> Any:
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
            known = reader.schema_arrow.names
            return reader.read(columns=[name for name in wanted or () if name in known] or None)
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
    if not _is_text(pyarrow, kind):
        raise ValueError(f"column {name!r} holds {kind}: pages are integers, objects are texts")
    numbered = _numbered(pyarrow, column)
    return np.concatenate([np.empty(0), *(chunk.to_numpy() for chunk in numbered.chunks)]).astype(np.uint64)


def _writes(pyarrow: Any, column: Any, name: str) -> NDArray[np.bool_]:
    if pyarrow.types.is_boolean(column.type):
        return np.asarray(column.to_pylist(), dtype=np.bool_)
    known = {value: _WRITES.get(str(value).lower()) for value in column.unique().to_pylist()}
    strange = [repr(value) for value, is_write in known.items() if is_write is None]
    if strange:
        raise ValueError(f"column {name!r} holds {', '.join(strange[:3])}: say true or false, or read or write")
    return np.array([known[value] for value in column.to_pylist()], dtype=np.bool_)
