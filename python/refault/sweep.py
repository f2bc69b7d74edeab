"""Sweeps that outgrow a machine: traces × policies × sizes as tasks of a Dask cluster, results as Parquet.

A task is one trace with some policies at all sizes, so that a worker decodes a trace once per task. What a task finds is
written as one Parquet file named by what was asked, beside others and renamed when it is whole; a sweep that is started
again in the same directory runs only what is missing. Results do not depend on the cluster: each simulation depends on
nothing but its trace, its policy and its size.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from . import _refault
from .lab import DEFAULT_MEMORY, _sizes, _split
from .lab import policies as known_policies
from .results import Comparison, Row
from .traces import Trace

log = logging.getLogger("refault")

#: Bytes that a simulation needs at most per distinct page, and a decoded trace too; the policies take 15 to 30 each.
BYTES_PER_PAGE = 64

#: Bytes per access that only policies need which know the future.
BYTES_PER_ACCESS = 8


def sweep(
    traces: Iterable[Any],
    policies: Any = "all",
    memory: Any = DEFAULT_MEMORY,
    *,
    client: Any = None,
    out: str | os.PathLike[str] | None = None,
    policies_per_task: int = 4,
    warm_up: float = 0,
    retries: int = 3,
    resources: dict[str, float] | None = None,
    declare_memory: bool = False,
) -> Comparison:
    """Runs policies over traces at several sizes, on a Dask cluster if there is a `client`, else here.

    Parameters
    ----------
    traces : paths that every worker can read, workloads such as ``"zipf:theta=1,pages=1000,accesses=20000"``, or
        :class:`refault.Trace` (arrays are sent to the workers)
    policies, memory, warm_up : as :func:`refault.compare`
    client : a ``distributed.Client``; None runs the same tasks one after the other in this process
    out : a directory for the results, one Parquet file per task (needs pyarrow). What is there already is not run again.
    policies_per_task : how many policies share a task and its decoded trace
    retries : how often a task is tried again when its worker dies
    resources : as of ``Client.submit``, such as ``{"GPU": 1}``: what each task declares
    declare_memory : each task declares the bytes that it needs at most as the resource ``MEMORY``, and workers that were
        started with ``--resources "MEMORY=8e9"`` take no more at a time than they have. A task that needs more than any
        worker has waits for ever. Costs a pass over each trace here.

    Returns
    -------
    Comparison
        The same rows in the same order whatever the cluster, without times.
    """
    named, own = _split(policies)
    if own:
        raise ValueError("policies written in Python do not travel: name built-in ones")
    sizes = _sizes(memory)
    names = _expanded(named)
    groups = [names[at : at + policies_per_task] for at in range(0, len(names), max(policies_per_task, 1))]
    sources = [_source(trace) for trace in traces]
    if not sources:
        raise ValueError("no traces: name at least one")
    tasks = [(source, group, sizes, warm_up) for source in sources for group in groups]
    directory = None if out is None else Path(out)
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    found: dict[int, list[Row]] = {}
    missing = []
    for index, task in enumerate(tasks):
        path = None if directory is None else directory / f"{_key(task)}.parquet"
        if path is not None and path.exists():
            found[index] = _read(path)
        else:
            missing.append((index, task, path))
    log.info("%d of %d tasks are done already", len(found), len(tasks))
    needs = {} if client is None or not declare_memory else _needs(missing)
    for index, path, rows in _run(missing, client, retries, resources, needs):
        if path is not None:
            _write(path, rows)
        found[index] = rows
    return Comparison(row for index in range(len(tasks)) for row in found[index])


def _run(
    missing: list[tuple[int, Any, Path | None]],
    client: Any,
    retries: int,
    resources: dict[str, float] | None,
    needs: dict[int, int],
) -> Iterator[tuple[int, Path | None, list[Row]]]:
    if client is None:
        for index, task, path in missing:
            yield index, path, _simulate(*task)
        return
    import distributed

    as_completed: Any = distributed.as_completed

    futures = {}
    for index, task, path in missing:
        declared = resources if index not in needs else {**(resources or {}), "MEMORY": needs[index]}
        future = client.submit(
            _simulate, *task, key=f"refault-{_key(task)}", retries=retries, resources=declared, pure=True
        )
        futures[future] = (index, path)
    try:
        for future in as_completed(list(futures)):
            index, path = futures.pop(future)
            yield index, path, future.result()
    finally:
        client.cancel(list(futures))


def _needs(missing: list[tuple[int, Any, Path | None]]) -> dict[int, int]:
    """Bytes that each task needs at most."""
    bounds = {entry["name"] for entry in known_policies() if entry["family"] == "bound"}
    counts: dict[int, dict[str, int]] = {}
    needs = {}
    for index, (source, policies, sizes, _), _ in missing:
        # The tasks of a trace share their source.
        counted = counts.setdefault(id(source), {}) or _open(source).counts()
        counts[id(source)] = counted
        simulations = len(policies) * len(sizes)
        needs[index] = counted["distinct_pages"] * BYTES_PER_PAGE * (simulations + 1)
        if any(policy.split("{")[0] in bounds for policy in policies):
            needs[index] += counted["accesses"] * BYTES_PER_ACCESS
    return needs


def _simulate(source: tuple[str, Any], policies: list[str], sizes: list[str], warm_up: float) -> list[Row]:
    """What a worker does: one thread, so that a worker with several threads runs several tasks."""
    trace = _open(source)
    text = _refault.compare([trace._native], policies, sizes, None, warm_up, "lru", 1, False, None)
    return list(json.loads(text)["runs"])


def _source(trace: Any) -> tuple[str, Any]:
    """A trace as something that can be sent: how it is opened, and what."""
    if isinstance(trace, Trace):
        arrays = trace.to_arrays()
        return ("arrays", (trace.name, arrays["pages"], arrays["writes"], _one_kind(trace.name, arrays["kinds"])))
    text = os.fspath(trace)
    if ":" in text and not os.path.exists(text):
        return ("workload", text)
    # A worker may have another working directory.
    return ("file", os.path.abspath(text))


def _one_kind(name: str, kinds: Any) -> str:
    if (kinds != kinds[0]).any():
        raise ValueError(f"{name}: accesses of several kinds do not travel as arrays: name the trace's file")
    return ("anon", "fd", "mapped")[int(kinds[0])]


def _open(source: tuple[str, Any]) -> Trace:
    how, what = source
    if how == "workload":
        return Trace.workload(what)
    if how == "file":
        return Trace(what)
    name, pages, writes, kind = what
    return Trace(pages, writes=writes, kind=kind, name=name)


def _expanded(named: list[str]) -> list[str]:
    """Groups of policies by their members, so that tasks can be cut."""
    expanded: dict[str, None] = {}
    for name in (part for text in named for part in _outside_braces(text)):
        if name in ("all", "kernel"):
            members = [entry["name"] for entry in known_policies() if name == "all" or entry["family"] == "kernel"]
            expanded.update(dict.fromkeys(members))
        else:
            expanded[name] = None
    return list(expanded)


def _outside_braces(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _key(task: tuple[Any, ...]) -> str:
    """The same for the same request, in every process: of a file, its size and time of change count too."""
    (how, what), policies, sizes, warm_up = task
    digest = hashlib.sha256(json.dumps([_refault.VERSION, how, policies, sizes, warm_up]).encode())
    if how == "arrays":
        name, pages, writes, kind = what
        digest.update(json.dumps([name, kind]).encode() + pages.tobytes() + writes.tobytes())
    elif how == "file" and os.path.exists(what):
        status = os.stat(what)
        digest.update(json.dumps([what, status.st_size, status.st_mtime_ns]).encode())
    else:
        digest.update(str(what).encode())
    return digest.hexdigest()[:32]


def _write(path: Path, rows: list[Row]) -> None:
    import pyarrow.parquet

    beside = path.with_name(f".{path.name}.{os.getpid()}")
    pyarrow.parquet.write_table(Comparison(rows).to_arrow(), beside)
    beside.replace(path)


def _read(path: Path) -> list[Row]:
    import pyarrow.parquet

    return list(pyarrow.parquet.read_table(path).to_pylist())
