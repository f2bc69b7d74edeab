"""The lab: comparisons, curves, and policies step by step."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from . import _refault
from .results import Comparison, Curves
from .traces import native_traces, say_remarks

log = logging.getLogger("refault")

DEFAULT_MEMORY = ("10%", "25%", "50%", "75%")


def policies() -> list[dict[str, Any]]:
    """Every policy there is: name, aliases, family, description, variant, parameters with defaults, bytes of metadata per
    page, and which front-end can run it (``runs``: a refusal is None or the reason)."""
    return cast("list[dict[str, Any]]", json.loads(_refault.policies()))


def compare(
    traces: Any,
    policies: str | PythonPolicy | Iterable[str | PythonPolicy] = "all",
    memory: str | int | Iterable[str | int] = DEFAULT_MEMORY,
    *,
    baseline: str = "lru",
    swap: str | None = None,
    warm_up: float = 0,
    jobs: int | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Runs policies over traces at several sizes of memory, and counts misses and the kernel's events.

    Parameters
    ----------
    traces : Trace, path, array, or several of them
    policies : names as on the command line, such as ``"lru"`` or ``"mglru{tiers=1}"``; ``"all"``, ``"kernel"``; or a
        :class:`PythonPolicy`, which is some hundred times slower than the built-in ones
    memory : sizes: ``"25%"`` of each trace's distinct pages, ``"4096p"`` pages, ``"64M"`` or a number of bytes
    baseline : the policy that others are compared with in :attr:`Comparison.verdict`
    swap : space for anonymous pages, a size or ``"none"``; ample by default
    warm_up : accesses at the start that are not counted: a number, or a share below 1
    jobs : threads; one per core by default. Results do not depend on it.
    progress : a bar by tqdm; by default if standard error is a terminal and tqdm is installed

    Raises
    ------
    ValueError
        A name, a size or a trace is wrong; the sentence says which and what to do.
    OSError
        A trace cannot be read.
    """
    named, own = _split(policies)
    for policy in own:
        if type(policy).evict is PythonPolicy.evict:
            raise TypeError(f"policy {type(policy).__name__!r} has no method evict(self), which says what page goes")
    _check_jobs(jobs)
    sizes = _sizes(memory)
    natives = native_traces(traces)
    found: dict[str, Any] = {"runs": [], "verdict": None}
    if named or not own:
        with _bar(progress, "comparing") as tell:
            text = _refault.compare(natives, named, sizes, swap, warm_up, baseline, jobs, True, tell)
        found = json.loads(text)
    for native in natives if own else ():
        found["runs"].extend(_run_own(native, own, sizes, warm_up))
    for native in natives:
        say_remarks(native)
    log.debug("%d runs over %d traces", len(found["runs"]), len(natives))
    return Comparison(found["runs"], found["verdict"])


def mrc(
    traces: Any,
    policies: str | Iterable[str] = "lru",
    memory: str | int | Iterable[str | int] = (),
    *,
    sample: float | None = None,
    seed: int = 1,
    jobs: int | None = None,
    progress: bool | None = None,
) -> Curves:
    """Draws miss-ratio curves: LRU's is exact at every size, from one pass; others are simulated at the sizes in `memory`,
    by default 32 from 1/128 of the distinct pages to all of them. With `sample`, a share of the pages such as 0.01, curves
    are estimates with a standard error. For sieve, lhd, wtinylfu and the kernels' policies it is the spread of the samples
    alone: in a memory as small as a sample's they miss otherwise."""
    named, own = _split(policies)
    _check_jobs(jobs)
    if own:
        raise ValueError("curves of policies written in Python are not drawn: use refault.compare at several sizes")
    natives = native_traces(traces)
    with _bar(progress, "drawing curves") as tell:
        text = _refault.mrc(natives, named, _sizes(memory), sample, seed, jobs, tell)
    for native in natives:
        say_remarks(native)
    return Curves(json.loads(text))


class Policy:
    """One policy over a memory of a few pages, step by step.

    >>> lru = Policy("lru", memory_pages=2)
    >>> [lru.access(page) for page in (1, 2, 1, 3)]
    [False, False, True, False]
    >>> lru.resident(), lru.next_victims()
    ([1, 3], [1])

    Parameters
    ----------
    name : as on the command line
    memory_pages : pages that may be resident
    pages : pages there are, numbered from 0; without it any number from 0 to below 2**64 names a page, of which there may
        be 2**24, and for the policy they lie in the order in which they come
    kind : what is accessed, see :class:`Trace`. Of ``"anon"`` and ``"mapped"`` pages the kernel's policies see accessed
        bits only; of ``"fd"``, each access.
    """

    def __init__(self, name: str, memory_pages: int, pages: int | None = None, kind: str = "fd") -> None:
        self._native = _refault.Policy(name, memory_pages, pages, kind)

    @property
    def name(self) -> str:
        """The policy with its parameters."""
        return self._native.name

    def access(self, page: int, write: bool = False) -> bool:
        """Accesses a page. True if it was in memory."""
        return self._native.access(page, write)

    def resident(self) -> list[int]:
        """The pages in memory, ascending."""
        return self._native.resident()

    def next_victims(self) -> list[int]:
        """The pages that would leave if a page came in that was never seen; nothing changes. Costs a replay of all
        accesses so far."""
        return self._native.next_victims()

    def counters(self) -> dict[str, int]:
        """Accesses, hits and misses, and the policy's counters under their names in ``/proc/vmstat``."""
        return dict(self._native.counters())

    def __repr__(self) -> str:
        return f"Policy({self.name!r})"


class PythonPolicy:
    """The base of policies written in Python, which :func:`compare` runs beside the built-in ones.

    A subclass says what leaves; who is resident is kept for it. One object is made per run.

    >>> class Mru(PythonPolicy):
    ...     def start(self, memory_pages): self.order = {}
    ...     def hit(self, page): self.order[page] = self.order.pop(page)
    ...     def admit(self, page): self.order[page] = None
    ...     def evict(self): return self.order.popitem()[0]
    """

    #: What it is called in tables; the name of the class by default.
    name: str | None = None

    def start(self, memory_pages: int) -> None:
        """An empty memory of ``memory_pages`` pages."""

    def hit(self, page: int) -> None:
        """A resident page is accessed."""

    def admit(self, page: int) -> None:
        """A page comes in."""

    def evict(self) -> int:
        """A page must go: which? It must be resident."""
        raise NotImplementedError


#: Accesses of which NumPy makes Python's integers at a time.
_BLOCK = 1 << 16


def _run_own(
    native: _refault.Trace, own: Sequence[PythonPolicy], sizes: Sequence[str], warm_up: float
) -> Iterator[dict[str, Any]]:
    pages = native.read()[0]
    distinct = native.counts()[1]
    skipped = int(len(pages) * warm_up) if 0 < warm_up < 1 else int(warm_up)
    if skipped >= len(pages):
        raise ValueError(f"nothing is left after the warm-up: {native.name} has {len(pages)} accesses")
    for policy in own:
        name = policy.name or type(policy).__name__
        for size in sizes:
            memory_pages = _pages_of(size, distinct)
            began = time.perf_counter()
            misses = _replay(policy, _each(pages), memory_pages, skipped)
            wall = time.perf_counter() - began
            accesses = len(pages) - skipped
            yield {
                "trace": native.name,
                "policy": name,
                "memory_pages": memory_pages,
                "accesses": accesses,
                "distinct_pages": distinct,
                "hits": accesses - misses,
                "misses": misses,
                "miss_ratio": misses / accesses,
                "wall_seconds": wall,
                "accesses_per_second": round(len(pages) / max(wall, 1e-9)),
            }


def _each(pages: Any) -> Iterator[int]:
    """The page numbers as Python's integers, some thousand at a time: a list of them all would take seconds to make and to
    free, and nothing ends such a call of NumPy's meanwhile."""
    for begin in range(0, len(pages), _BLOCK):
        yield from pages[begin : begin + _BLOCK].tolist()


def _replay(policy: PythonPolicy, pages: Iterator[int], memory_pages: int, skipped: int) -> int:
    policy.start(memory_pages)
    resident: set[int] = set()
    misses = 0
    for index, page in enumerate(pages):
        if page in resident:
            policy.hit(page)
            continue
        misses += index >= skipped
        if len(resident) >= memory_pages:
            victim = policy.evict()
            if victim not in resident:
                name = policy.name or type(policy).__name__
                raise ValueError(f"policy {name!r} evicts page {victim!r}, which is not resident")
            resident.discard(victim)
        policy.admit(page)
        resident.add(page)
    return misses


def _pages_of(size: str, distinct: int) -> int:
    if size.endswith("%"):
        # Rounded down, as the command does, without the error of a binary fraction.
        return max(int(round(float(size[:-1]) * 10_000)) * distinct // 1_000_000, 1)
    return max(_refault.parse_size(size) // 4096, 1)


def _split(policies: Any) -> tuple[list[str], list[PythonPolicy]]:
    if isinstance(policies, (str, PythonPolicy, type)):
        policies = [policies]
    if not isinstance(policies, Iterable):
        raise TypeError(f"policies are names or a refault.PythonPolicy, not {type(policies).__name__}")
    named: list[str] = []
    own: list[PythonPolicy] = []
    for policy in policies:
        if isinstance(policy, str):
            named.append(policy)
            continue
        kind = policy if isinstance(policy, type) else type(policy)
        if not issubclass(kind, PythonPolicy):
            raise TypeError(f"a policy is a name or a refault.PythonPolicy, not {kind.__name__}")
        own.append(policy() if policy is kind else policy)
    if not named and not own:
        raise ValueError("no policy named: refault.policies() lists them")
    return named, own


def _check_jobs(jobs: int | None) -> None:
    if jobs is not None and not 1 <= jobs <= 1024:
        raise ValueError(f"jobs are threads, from 1 to 1024; not {jobs}")


def _sizes(memory: Any) -> list[str]:
    if isinstance(memory, (str, int, np.integer)):
        memory = [memory]
    if isinstance(memory, (bytes, bytearray)) or not isinstance(memory, Iterable):
        raise TypeError(f"memory is a size, such as '25%', '64M' or a number of bytes, or several; not {memory!r}")
    sizes: list[str] = []
    for size in memory.reshape(-1) if isinstance(memory, np.ndarray) else memory:
        if isinstance(size, str):
            sizes.extend(size.split(","))
        elif isinstance(size, (int, np.integer)) or (isinstance(size, float) and size.is_integer()):
            sizes.append(str(int(size)))
        else:
            raise TypeError(f"a size is a text such as '25%' or '64M', or a whole number of bytes; not {size!r}")
    return sizes


@contextmanager
def _bar(asked: bool | None, what: str, unit: str = " accesses") -> Iterator[Callable[[int, int], object] | None]:
    """A callback for a progress bar, if there is to be one."""
    if asked is False or (asked is None and not sys.stderr.isatty()):
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if asked:
            raise
        yield None
        return
    with tqdm(desc=what, unit=unit, unit_scale=True) as bar:

        def tell(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield tell
