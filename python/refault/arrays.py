"""Arrays that page themselves: real NumPy arrays in memory that stays within a budget.

What does not fit is compressed; a page that is touched comes back. Nothing in the code that uses the arrays changes: they
are ``numpy.ndarray``, their memory is given back with the last view. Needs userfaultfd, which ``refault doctor`` explains.

After ``fork`` (and so in ``multiprocessing``) a child has the arrays as they were, in a budget of its own of the same size,
whatever other threads do with them meanwhile; but OpenBLAS with several threads must not be at work on them (it waits for
its threads within ``fork``, and they would wait for pages).
Pickling copies: an unpickled array is an ordinary one.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _refault

#: Addresses that the arrays of a budget may take together, in bytes.
ADDRESS_SPACE = 1 << 36
#: Pages have numbers of 32 bits.
MAX_ADDRESS_SPACE = 1 << 44
#: The pager takes some for itself.
MAX_ARRAY = MAX_ADDRESS_SPACE - (1 << 21)
#: More than what the pager itself takes of a budget's addresses.
OWN_ADDRESSES = 1 << 20
#: The length that follows from the others, as in `reshape`.
MAY_BE_ANY = -1

#: In this thread or task: NumPy's own handler of allocations, and those of the calls of `budget` that are not over.
_routed: ContextVar[tuple[object, ...]] = ContextVar("_routed", default=())

Shape = int | Sequence[int]
Size = str | int


class Budget:
    """Memory that several arrays share: at most `size` bytes of them are resident.

    Parameters
    ----------
    size : bytes, or a text such as ``"2G"``
    policy : as on the command line; any that needs only accessed bits (``refault policies``). The default suits most.
    count_stored : whether `size` bounds what is compressed in memory too; only what is resident by default. What does not
        compress then leaves a 16th of `size` for what is resident, and the rest is beyond it.
    address_space : what all arrays of the budget may have together, resident or not, as bytes or a text; 64 GiB by default,
        16 TiB at most

    Raises
    ------
    OSError
        The kernel does not give a userfaultfd, and the sentence says what permits it; or no memory or threads.
    ValueError
        The size or the policy is none.
    """

    def __init__(
        self,
        size: Size,
        *,
        policy: str | None = None,
        count_stored: bool = False,
        address_space: Size = ADDRESS_SPACE,
    ) -> None:
        addresses = _bytes(address_space)
        if addresses > MAX_ADDRESS_SPACE:
            raise ValueError(f"address_space is {addresses} bytes, and 16 TiB at most")
        self._native = _refault.Budget(_bytes(size), policy, addresses, count_stored)

    @property
    def size(self) -> int:
        """Bytes that may be resident, or with `count_stored` resident and compressed."""
        return self._native.bytes

    def resize(self, size: Size) -> None:
        """Another size; returns when no more than that is taken, or raises RuntimeError after a minute."""
        self._native.resize(_bytes(size))

    def stats(self) -> dict[str, int]:
        """Names and meanings are those of every front-end (docs/reference/statistics.md): ``budget_bytes``,
        ``resident_bytes``, ``compressed_bytes``, ``file_bytes``, ``metadata_bytes``; since the start ``faults``,
        ``first_touches``, ``stored``, ``refaults``, ``prefetched`` and ``lost``."""
        return self._native.stats()

    def __repr__(self) -> str:
        stats = self.stats()
        mebibytes = {name: stats[name] / 2**20 for name in ("budget_bytes", "resident_bytes", "compressed_bytes", "file_bytes")}
        return (
            f"Budget({mebibytes['budget_bytes']:.1f} MiB: {mebibytes['resident_bytes']:.1f} resident, "
            f"{mebibytes['compressed_bytes'] + mebibytes['file_bytes']:.1f} stored)"
        )


def zeros(shape: Shape, dtype: DTypeLike = float, *, budget: Size | Budget, order: str = "C") -> NDArray[Any]:
    """An array of zeros like ``numpy.zeros``, within `budget`: a size of its own, or a :class:`Budget` to share."""
    kind, extent = _kind(dtype), _extent(shape)
    size = math.prod(extent) * kind.itemsize
    if size > MAX_ARRAY:
        raise MemoryError(f"{extent} elements of {kind.itemsize} bytes are {size} bytes: an array here has at most 16 TiB")
    shared = _budget(budget, size)
    try:
        memory = shared._native.allocate(size)
    except MemoryError as error:
        raise MemoryError(
            f"{extent} elements of {kind.itemsize} bytes: {error}: "
            "let go of arrays, or make the Budget with a larger address_space"
        ) from None
    return np.asarray(memory)[:size].view(kind).reshape(extent, order=order)  # type: ignore[call-overload, no-any-return]


def empty(shape: Shape, dtype: DTypeLike = float, *, budget: Size | Budget, order: str = "C") -> NDArray[Any]:
    """The same as :func:`zeros`: fresh pages are zeros, and take no memory before they are touched."""
    return zeros(shape, dtype, budget=budget, order=order)


def full(
    shape: Shape, value: Any, dtype: DTypeLike | None = None, *, budget: Size | Budget, order: str = "C"
) -> NDArray[Any]:
    """An array of one value like ``numpy.full``, within `budget`."""
    array = zeros(shape, np.asarray(value).dtype if dtype is None else dtype, budget=budget, order=order)
    array[...] = value
    return array


def array_like(array: ArrayLike, *, budget: Size | Budget) -> NDArray[Any]:
    """A copy of `array` within `budget`."""
    original = np.asarray(array)
    order = "F" if original.flags.f_contiguous and not original.flags.c_contiguous else "C"
    copy = zeros(original.shape, original.dtype, budget=budget, order=order)
    copy[...] = original
    return copy


def from_file(
    path: str | PathLike[str], dtype: DTypeLike = np.uint8, shape: Shape | None = None, *, budget: Size | Budget
) -> NDArray[Any]:
    """A file's bytes as an array, read when they are touched. Writes stay in memory; the file is not changed.

    Raises ValueError if the file does not hold a whole number of elements, or not as many as `shape` says; OSError if it is
    none, or not a regular one. Who makes the file shorter meanwhile ends the program that touches what is gone (SIGBUS), as
    with ``numpy.memmap``.
    """
    kind = _kind(dtype)
    extent = None if shape is None else _extent(shape, MAY_BE_ANY)
    content = np.asarray(_budget(budget)._native.file(path))
    if content.size % kind.itemsize:
        raise ValueError(
            f"{os.fspath(path)}: {content.size} bytes are not a whole number of elements of {kind.itemsize} bytes: "
            "name the type that was written"
        )
    array = content.view(kind)
    if extent is None:
        return array
    try:
        return array.reshape(extent)
    except ValueError:
        raise ValueError(f"{os.fspath(path)}: {array.size} elements do not make the shape {extent}") from None


def _place(array: NDArray[Any]) -> tuple[_refault.Memory, int, int]:
    """The memory that an array of this module lies in, and from where to where in it, in bytes."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, _refault.Memory):
        raise ValueError("this array is not one of refault's")
    # NumPy 2 moved it.
    byte_bounds: Any = np.lib.array_utils.byte_bounds if hasattr(np.lib, "array_utils") else getattr(np, "byte_bounds")
    lowest, beyond = byte_bounds(array)
    address = base.__array_interface__["data"][0]
    return base, lowest - address, beyond - address


def prefetch(array: NDArray[Any]) -> int:
    """Brings an array of this module in as far as its budget has room. Returns the bytes that are resident then."""
    memory, start, end = _place(array)
    return memory.prefetch(start, end)


@contextmanager
def pinned(array: NDArray[Any]) -> Iterator[None]:
    """While it lasts, an array of this module is resident and stays so: for what writes into memory past the program.

    Needed for reads of a file that was opened with ``O_DIRECT``, for buffers that are registered with io_uring, and for
    another process's ``process_vm_writev``. The kernel holds on to the pages while such a call is under way, and does
    not say that it writes to them. What it writes to a page that is evicted meanwhile is lost. Every other call may be
    given any array. Slices may be pinned, and pins may overlap. Seven eighths of a budget can be pinned at most.

    Raises RuntimeError, with nothing pinned, if the array does not fit; ValueError if it is not one of this module's.

    >>> with pinned(array[:1000]):  # doctest: +SKIP
    ...     os.preadv(direct, [array[:1000]], 0)
    """
    memory, start, end = _place(array)
    memory.pin(start, end)
    try:
        yield
    finally:
        memory.unpin(start, end)


@contextmanager
def budget(size: Size | Budget, *, allocate_all: bool = True, threshold: Size = "1M") -> Iterator[Budget]:
    """While it lasts, NumPy's own allocations of at least `threshold` bytes lie within the budget (NEP 49), in this thread
    or task. Arrays made meanwhile stay there when it is over. Of several, the one that was entered last and is not over yet
    has them, in whatever order they end. ``allocate_all=False`` only makes the budget.

    >>> with budget("64M") as shared:  # doctest: +SKIP
    ...     squares = np.arange(100_000_000) ** 2
    """
    shared = _budget(size)
    if not allocate_all:
        yield shared
        return
    own = _refault.numpy_handler(shared._native, _bytes(threshold))
    before = _refault.route_numpy(own)
    _routed.set((*(_routed.get() or (before,)), own))
    try:
        yield shared
    finally:
        # In another thread or task than it was entered in there is nothing to undo.
        left = tuple(handler for handler in _routed.get() if handler is not own)
        if left != _routed.get():
            _refault.route_numpy(left[-1])
            _routed.set(left if len(left) > 1 else ())


def _kind(dtype: DTypeLike) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise ValueError("arrays of Python objects cannot page: the objects lie elsewhere")
    if kind.itemsize == 0:
        raise ValueError(f"elements of the type {kind.str!r} have no bytes: say how many, such as '{kind.str[:-1]}8'")
    return kind


def _extent(shape: Shape, least: int = 0) -> tuple[int, ...]:
    is_sequence = isinstance(shape, Iterable) and not isinstance(shape, (str, bytes))
    lengths: Any = shape if is_sequence else (shape,)
    try:
        extent = tuple(operator.index(length) for length in lengths)
    except TypeError:
        raise TypeError(f"a shape is a whole number or a sequence of them, not {shape!r}") from None
    if any(length < least for length in extent):
        raise ValueError(f"negative dimensions are not allowed: {extent}")
    return extent


def _budget(size: Size | Budget, room: int = 0) -> Budget:
    """A budget, or one for an array of ``size`` bytes."""
    if isinstance(size, Budget):
        return size
    return Budget(size, address_space=max(ADDRESS_SPACE, room + OWN_ADDRESSES))


def _bytes(size: Size) -> int:
    if isinstance(size, str):
        return _refault.parse_size(size)
    if not isinstance(size, (int, np.integer)):
        raise TypeError(f"a size is a number of bytes or a text such as '64M', not {type(size).__name__}")
    if not 4096 <= int(size) < 1 << 63:
        raise ValueError(f"{size} bytes: a size is at least a page of 4096 bytes, and less than 2^63")
    return int(size)
