"""Traces as something that another machine can open: what a task of a sweep is given.

A source is a pair of how and what: ``("workload", …)``, ``("file", …)``, ``("url", …)`` with the arguments that open it, or
``("trace", Trace)``, which travels decoded.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .traces import Trace

Source = tuple[str, Any]

#: What can be swept.
WHAT = "traces are paths, URLs, workloads or refault.Trace objects"


def sources_of(traces: Iterable[Any]) -> list[Source]:
    """The sources of traces, workloads, paths, URLs, and directories of either, in order, under names of their own."""
    if isinstance(traces, (str, os.PathLike, Trace)):
        traces = [traces]
    try:
        several = iter(traces)
    except TypeError:
        raise TypeError(f"{WHAT}; not {traces!r}") from None
    traces = list(several)
    if traces and all(isinstance(trace, tuple) for trace in traces):
        return traces  # They are sources, with the names that they are to have.
    sources = [source for trace in traces for source in _expanded(trace)]
    if not sources:
        raise ValueError("no traces: name at least one")
    # The name of a file is what it is called up to the first point.
    short = Counter(_stem(what["path"]) for how, what in sources if how in ("file", "url"))
    for how, what in sources:
        if how in ("file", "url") and "name" not in what and short[_stem(what["path"])] > 1:
            what["name"] = what["path"]
    return sources


def open_source(source: Source) -> Trace:
    """The trace, where it is needed."""
    how, what = source
    if how == "trace":
        return what  # type: ignore[no-any-return]
    asked = dict(what)
    skip, limit = asked.pop("skip", 0), asked.pop("limit", None)
    if how == "workload":
        trace = Trace.workload(asked["workload"])
    elif how == "file":
        trace = Trace(asked.pop("path"), **asked)
    else:
        trace = _fetched(asked.pop("path"), asked)
    return trace if skip == 0 and limit is None else trace.part(skip, limit)


def mark_of(source: Source) -> list[Any]:
    """What differs when the accesses do, as far as that is known without reading them: of a file its size and time of
    change count too."""
    how, what = source
    if how == "trace":
        _, (name, data, _) = what.__reduce__()
        return [how, name, hashlib.sha256(data).hexdigest()]
    mark: list[Any] = [how, sorted(what.items())]
    if how == "file" and os.path.exists(what["path"]):
        status = os.stat(what["path"])
        mark += [status.st_size, status.st_mtime_ns]
    elif how == "url":
        filesystem, path = _filesystem(what["path"])
        mark.append(str(filesystem.ukey(path)))
    return mark


def _expanded(trace: Any) -> Iterator[Source]:
    if isinstance(trace, Trace):
        yield "trace", trace
        return
    if not isinstance(trace, (str, os.PathLike)):
        raise TypeError(f"{WHAT}; not {trace!r}")
    text = os.fspath(trace)
    if "://" in text:
        yield from (("url", {"path": url}) for url in _urls(text))
    elif os.path.isdir(text):
        files = sorted(path for path in Path(text).iterdir() if path.is_file() and not path.name.startswith("."))
        if not files:
            raise ValueError(f"{text}: the directory holds no files")
        yield from (("file", {"path": os.path.abspath(path)}) for path in files)
    elif ":" in text and not os.path.exists(text):
        yield "workload", {"workload": text}
    else:
        # A worker may have another working directory.
        yield "file", {"path": os.path.abspath(text)}


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise ValueError(f"{url}: traces at URLs need the package fsspec: pip install fsspec") from error
    filesystem, path = fsspec.core.url_to_fs(url)
    return filesystem, str(path)


def _urls(url: str) -> list[str]:
    """The objects that a URL names: one, those that a pattern fits, or all below one that ends with a slash."""
    filesystem, path = _filesystem(url)
    if url.endswith("/"):
        paths = sorted(filesystem.find(path))
    elif any(sign in path for sign in "*?["):
        paths = sorted(filesystem.glob(path))
    else:
        return [url]
    if not paths:
        raise ValueError(f"{url}: no objects are there")
    return [str(filesystem.unstrip_protocol(each)) for each in paths]


def _fetched(url: str, asked: dict[str, Any]) -> Trace:
    """An object, decoded; it lies in a temporary file meanwhile."""
    filesystem, path = _filesystem(url)
    with tempfile.TemporaryDirectory(prefix="refault-") as directory:
        # Its name says its format.
        local = os.path.join(directory, os.path.basename(path.rstrip("/")))
        filesystem.get_file(path, local)
        return Trace(local, **asked).decode()


def _stem(path: str) -> str:
    return os.path.basename(path).split(".")[0]
