"""What a cache of objects would miss at other sizes and under other policies, asked while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from numpy.typing import ArrayLike

from . import _refault
from .traces import _page_numbers

_MEMORY_BYTES = 2 << 20


class Estimator:
    """Miss ratios of caches of objects with sizes, from the accesses to a live one.

    All objects are followed until they or the work become too many, then a sample of them; see the Rust module
    ``refault::estimate``.

    >>> estimator = Estimator(["lru", "s3fifo"], [50_000, 200_000])
    >>> for access in range(10_000):
    ...     estimator.access(access % 100, 1000)
    >>> [(row["cache_bytes"], row["miss_ratio"]) for row in estimator.estimates() if row["policy"] == "lru"]
    [(50000, 1.0), (200000, 0.01)]

    Parameters
    ----------
    policies : some of ``"lru"``, ``"fifo"``, ``"clock"``, ``"s3fifo"``
    cache_bytes : 1 to 16 sizes of the cache, in bytes
    memory_bytes : memory that the estimator may take
    seed : which sample is drawn
    """

    def __init__(
        self, policies: Iterable[str], cache_bytes: Sequence[int], memory_bytes: int = _MEMORY_BYTES, seed: int = 0
    ) -> None:
        if isinstance(policies, str):
            policies = policies.split(",")
        self._native = _refault.Estimator(list(policies), list(cache_bytes), memory_bytes, seed)

    def access(self, object: int, size: int = 1) -> None:
        """Tells of one access: the object's number or hash, below 2**64, and its size in bytes."""
        self._native.access(object, size)

    def access_all(self, objects: ArrayLike, sizes: ArrayLike) -> None:
        """Tells of many accesses in their order: arrays of the objects and of their sizes."""
        self._native.access_all(_page_numbers(objects), _page_numbers(sizes))

    def estimates(self) -> list[dict[str, str | int | float]]:
        """A row for each policy and size, policies first: ``policy``, ``cache_bytes``, ``miss_ratio`` and
        ``byte_miss_ratio``, from 0 to 1."""
        names = ("policy", "cache_bytes", "miss_ratio", "byte_miss_ratio")
        return [dict(zip(names, row, strict=True)) for row in self._native.estimates()]

    def restart(self) -> None:
        """Counts from now on, with the caches as they are."""
        self._native.restart()

    @property
    def rate(self) -> float:
        """The part of the objects that is followed. As long as it is 1, estimates are exact."""
        return self._native.rate
