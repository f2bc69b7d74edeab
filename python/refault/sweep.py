"""Sweeps that outgrow a machine: traces × policies × sizes as tasks of a Dask cluster, results as Parquet; and one curve of
one huge trace, cut by the hash of its pages.

A task is one trace with some policies at all sizes. A trace that several tasks share is decoded by a task of its own, whose
result stays with the worker until its last task is done; Dask sends the tasks to where it lies. What a task finds is
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
from .results import Comparison, Curves, Row
from .sources import Source, mark_of, open_source, sources_of
from .traces import Trace, warn

log = logging.getLogger("refault")

#: Bytes that a simulation needs at most per distinct page, and a decoded trace too; the policies take 15 to 30 each.
BYTES_PER_PAGE = 64

#: Bytes per access that only policies need which know the future.
BYTES_PER_ACCESS = 8

#: Where a task's Parquet file has what was left out or assumed of its trace.
_REMARKS = b"refault.remarks"

#: Bytes per access of a decoded trace at most.
BYTES_PER_DECODED_ACCESS = 16

#: Policies, sizes, accesses of the warm-up, swap: what a task does with its trace.
Asked = tuple[list[str], list[str], float, str | None]

#: What a task finds: its rows, and what was left out or assumed of its trace, with the trace's name.
Found = tuple[list[Row], list[str]]

#: A task that is not done yet: its place in the results, its trace's place among the sources, what it does, and its file.
Missing = tuple[int, int, Asked, Path | None]


def sweep(
    traces: Iterable[Any],
    policies: Any = "all",
    memory: Any = DEFAULT_MEMORY,
    *,
    baseline: str = "lru",
    swap: str | None = None,
    client: Any = None,
    out: str | os.PathLike[str] | None = None,
    policies_per_task: int = 4,
    warm_up: float = 0,
    retries: int = 3,
    resources: dict[str, float] | None = None,
    declare_memory: bool = False,
    keep_decoded: bool | None = None,
) -> Comparison:
    """Runs policies over traces at several sizes, on a Dask cluster if there is a `client`, else here.

    Parameters
    ----------
    traces : paths that every worker can read; URLs that fsspec opens there, such as ``"s3://traces/host-7.rft"``;
        directories, URLs that end with ``/``, and URLs with ``*`` stand for all that lies there. Workloads such as
        ``"zipf:theta=1,pages=1000,accesses=20000"``, or :class:`refault.Trace`, which is sent decoded.
    policies, memory, baseline, swap, warm_up : as :func:`refault.compare`
    client : a ``distributed.Client``; None runs the same tasks one after the other in this process
    out : a directory for the results, one Parquet file per task (needs pyarrow). What is there already is not run again.
    policies_per_task : how many policies share a task
    retries : how often a task is tried again when its worker dies
    resources : as of ``Client.submit``, such as ``{"GPU": 1}``: what each task declares
    declare_memory : each task declares the bytes that it needs at most as the resource ``MEMORY``, and workers that were
        started with ``--resources "MEMORY=8e9"`` take no more at a time than they have. A task that needs more than any
        worker has waits for ever. Costs a pass over each trace here.
    keep_decoded : whether a trace that several tasks share is decoded once and kept by a worker until they are done (8 or
        16 bytes per access, which Dask spills to disk if it must), or by each task. By default it is kept, but not with
        `declare_memory`, since what is kept is not declared.

    Returns
    -------
    Comparison
        The same rows in the same order whatever the cluster, without times.

    Warns
    -----
    TraceWarning
        Something of a trace was left out or assumed.
    """
    _check_client(client)
    sources = sources_of(traces)
    keep_decoded = not declare_memory if keep_decoded is None else keep_decoded
    named, own = _split(policies)
    if own:
        raise ValueError("policies written in Python do not travel: name built-in ones")
    if policies_per_task < 1:
        raise ValueError(f"policies_per_task is 1 at least, not {policies_per_task}")
    sizes = _sizes(memory)
    names = _expanded(named)
    groups = [names[at : at + policies_per_task] for at in range(0, len(names), policies_per_task)]
    directory = None if out is None else Path(out)
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    found: dict[int, Found] = {}
    missing: list[Missing] = []
    for place, source in enumerate(sources):
        mark = mark_of(source) if directory is not None or client is not None else []
        for number, group in enumerate(groups):
            index = place * len(groups) + number
            asked: Asked = (group, sizes, warm_up, swap)
            path = None if directory is None else directory / f"{_key('simulate', mark, asked)}.parquet"
            if path is not None and path.exists():
                found[index] = _read(path)
            else:
                missing.append((index, place, asked, path))
    log.info("%d of %d tasks are done already", len(found), len(sources) * len(groups))
    if client is None:
        done = _run_here(missing, sources, keep_decoded)
    else:
        needs = _needs(missing, sources) if declare_memory else {}
        done = _run_there(missing, sources, client, retries, resources, needs, keep_decoded)
    for index, path, of_task in done:
        if path is not None:
            _write(path, of_task)
        found[index] = of_task
    in_order = [found[index] for index in range(len(sources) * len(groups))]
    _warn(remark for _, remarks in in_order for remark in remarks)
    rows = [row for of_task, _ in in_order for row in of_task]
    return Comparison(rows, baseline=baseline)


def sweep_mrc(
    trace: Any,
    memory: Any = (),
    *,
    sample: float = 0.01,
    parts: int = 8,
    seed: int = 1,
    client: Any = None,
    retries: int = 3,
    resources: dict[str, float] | None = None,
) -> Curves:
    """LRU's miss-ratio curve of one huge trace, estimated from a sample of its pages (SHARDS) that is cut by their hash
    into `parts` parts without a page in common: a task each, on a Dask cluster if there is a `client`, else here.

    Parameters
    ----------
    trace : as of :func:`sweep`, but one. Each task reads all of it, and keeps what belongs to its part.
    memory : as :func:`refault.mrc`
    sample : share of the pages in all parts together, above 0, at most 1
    parts : tasks. Each needs memory for ``sample / parts`` of the pages; their spread gives the standard error, so there
        are two at least. Figures depend on it as on `seed`, but not on the cluster.
    client, retries, resources : as of :func:`sweep`
    """
    _check_client(client)
    if parts < 2:
        raise ValueError(f"parts are two at least, since their spread says how good the estimate is; not {parts}")
    sources = sources_of([trace])
    if len(sources) > 1:
        raise ValueError(f"{trace}: a curve is of one trace, and {len(sources)} are there")
    source = sources[0]
    if client is None:
        opened = open_source(source)
        drawn = [_draw(opened, sample, seed, part, parts) for part in range(parts)]
    else:
        mark = mark_of(source)
        futures = [
            client.submit(
                _draw,
                source,
                sample,
                seed,
                part,
                parts,
                key=_key("draw", mark, [sample, seed, part, parts]),
                retries=retries,
                resources=resources,
                pure=True,
            )
            for part in range(parts)
        ]
        try:
            drawn = client.gather(futures)
        finally:
            client.cancel(futures)
    name = drawn[0][0]
    found = _refault.join_parts(name, sample, seed, [histogram for _, histogram, _ in drawn], _sizes(memory))
    _warn(remark for _, _, remarks in drawn for remark in remarks)
    return Curves(json.loads(found))


def _warn(remarks: Iterable[str]) -> None:
    """Says each once."""
    for remark in dict.fromkeys(remarks):
        warn(remark)


def _remarks(trace: Trace) -> list[str]:
    """What the passes so far left out or assumed, to be told where the sweep was asked for."""
    return [f"{trace.name}: {remark}" for remark in trace._native.remarks()]


def _check_client(client: Any) -> None:
    if client is not None and not callable(getattr(client, "submit", None)):
        made = f": distributed.Client({client!r}) makes one" if isinstance(client, str) else ""
        raise TypeError(f"client is a distributed.Client, not {type(client).__name__}{made}")


def _draw(source: Any, sample: float, seed: int, part: int, parts: int) -> tuple[str, tuple[int, int, Any], list[str]]:
    trace = source if isinstance(source, Trace) else open_source(source)
    drawn = _refault.draw_part(trace._native, sample, seed, part, parts)
    return trace.name, drawn, _remarks(trace)


def _run_here(
    missing: list[Missing], sources: list[Source], keep_decoded: bool
) -> Iterator[tuple[int, Path | None, Found]]:
    last: tuple[int, Any] = (-1, None)
    for at, (index, place, asked, path) in enumerate(missing):
        if place != last[0]:
            shared = keep_decoded and any(other[1] == place for other in missing[at + 1 : at + 2])
            last = (place, _decode(sources[place]) if shared else sources[place])
        yield index, path, _simulate(last[1], *asked)


def _run_there(
    missing: list[Missing],
    sources: list[Source],
    client: Any,
    retries: int,
    resources: dict[str, float] | None,
    needs: dict[int, int],
    keep_decoded: bool,
) -> Iterator[tuple[int, Path | None, Found]]:
    import distributed

    as_completed: Any = distributed.as_completed

    def submit(function: Any, *arguments: Any, key: str, memory: int | None = None) -> Any:
        declared = resources if memory is None else {**(resources or {}), "MEMORY": memory}
        return client.submit(function, *arguments, key=key, retries=retries, resources=declared, pure=True)

    tasks_of: dict[int, int] = {}
    for _, place, _, _ in missing:
        tasks_of[place] = tasks_of.get(place, 0) + 1
    futures = {}
    # In the order of the traces, so that workers do the tasks of a trace before they decode another.
    last, trace, mark = -1, None, []
    for index, place, asked, path in missing:
        if place != last:
            last, mark = place, mark_of(sources[place])
            trace = sources[place]
            if keep_decoded and tasks_of[place] > 1:
                # The cluster keeps it as long as tasks wait for it; here nothing does.
                trace = submit(_decode, sources[place], key=_key("decode", mark, []))
        future = submit(_simulate, trace, *asked, key=_key("simulate", mark, asked), memory=needs.get(index))
        futures[future] = (index, path)
    trace = None
    try:
        for future in as_completed(list(futures), loop=client.loop):
            index, path = futures.pop(future)
            yield index, path, future.result()
    finally:
        client.cancel(list(futures))


def _needs(missing: list[Missing], sources: list[Source]) -> dict[int, int]:
    """Bytes that each task needs at most."""
    bounds = {entry["name"] for entry in known_policies() if entry["family"] == "bound"}
    counts: dict[int, dict[str, int]] = {}
    needs = {}
    for index, place, (policies, sizes, _, _), _ in missing:
        counted = counts.setdefault(place, {}) or open_source(sources[place]).counts()
        counts[place] = counted
        simulations = len(policies) * len(sizes)
        needs[index] = counted["distinct_pages"] * BYTES_PER_PAGE * (simulations + 1)
        if any(policy.split("{")[0] in bounds for policy in policies):
            needs[index] += counted["accesses"] * BYTES_PER_ACCESS
        if sources[place][0] in ("trace", "url"):
            needs[index] += counted["accesses"] * BYTES_PER_DECODED_ACCESS
    return needs


def _decode(source: Source) -> Trace:
    """What a worker does first with a trace that several tasks share. Its remarks travel with it."""
    return Trace._of(open_source(source)._native.decode())


def _simulate(source: Any, policies: list[str], sizes: list[str], warm_up: float, swap: str | None) -> Found:
    """What a worker does: one thread, so that a worker with several threads runs several tasks."""
    trace = source if isinstance(source, Trace) else open_source(source)
    text = _refault.compare([trace._native], policies, sizes, swap, warm_up, "lru", 1, False, None)
    return list(json.loads(text)["runs"]), _remarks(trace)


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


def _key(what: str, mark: list[Any], asked: Any) -> str:
    """The same for the same request, in every process. Dask's dashboard counts tasks by the word before the line."""
    digest = hashlib.sha256(json.dumps([_refault.VERSION, mark, asked]).encode())
    return f"{what}-{digest.hexdigest()[:32]}"


def _write(path: Path, found: Found) -> None:
    import pyarrow.parquet

    rows, remarks = found
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    table = Comparison(rows).to_arrow().replace_schema_metadata({_REMARKS: json.dumps(remarks)})
    pyarrow.parquet.write_table(table, beside)
    beside.replace(path)


def _read(path: Path) -> Found:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    remarks = json.loads((table.schema.metadata or {}).get(_REMARKS, b"[]"))
    # A column that only some rows have is empty in the others.
    rows = table.to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows], remarks
