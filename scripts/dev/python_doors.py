"""A pytest plugin for the suites of others: what they read, write and allocate goes through refault, or not.

    REFAULT_DOOR=hdf5 pytest -p python_doors --pyargs h5py

Doors are `budget` (all of NumPy's allocations of 4 KiB and more lie in a budget of 64 MiB), `files` (Python's `open` of
regular files), `fsspec` (the protocol `file`), `arrow` (pyarrow's local file system, over fsspec's) and `hdf5` (`h5py.File`
over file objects). With REFAULT_PLAIN=1 nothing is refault's, and all else the same. At the end it prints how much has gone
through the door: pages of arrays, or files that were opened.
"""

import contextlib
import os
import signal
import sys

DOOR = os.environ.get("REFAULT_DOOR", "")
IS_PLAIN = os.environ.get("REFAULT_PLAIN") == "1"
ends = contextlib.ExitStack()

if DOOR in ("fsspec", "arrow"):
    from fsspec.implementations.local import LocalFileSystem

    if IS_PLAIN:
        Local = LocalFileSystem
    else:
        from refault.fs import CachedFileSystem

        class Local(CachedFileSystem):
            """The file system that fsspec has for `file`, through the cache. Here, so that it can be pickled."""

            protocol = ("file", "local")
            opened = 0

            def __init__(self, **options):
                super().__init__(memory="16M", fs=LocalFileSystem(**options))

            def _open(self, path, mode="rb", **options):
                Local.opened += mode == "rb"
                return super()._open(path, mode, **options)


def through_budget():
    """All arrays of the thread that tests run in."""
    if IS_PLAIN:
        return None
    import refault

    budget = ends.enter_context(refault.budget("64M", threshold="4K", allocate_all=True))
    return lambda: budget.stats()["first_touches"]


def through_files():
    """What CPython's own suites are run with, in python/tests."""
    if IS_PLAIN:
        return None
    import builtins
    import io

    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python/tests"))
    import cpython

    builtins.open = io.open = cpython.cached_open
    return lambda: cpython.opened


def through_fsspec():
    """All of fsspec's local files."""
    if IS_PLAIN:
        return None
    import fsspec

    for name in Local.protocol:
        fsspec.register_implementation(name, Local, clobber=True)
    return lambda: Local.opened


def through_arrow():
    """Pyarrow reads local files itself: here it reads them through fsspec's, plain too."""
    import pyarrow.dataset as dataset
    import pyarrow.fs as arrow
    import pyarrow.parquet.core as parquet

    files = arrow.PyFileSystem(arrow.FSSpecHandler(Local()))

    def over(function):
        def replaced(*arguments, **options):
            found = function(*arguments, **options)
            first, *rest = found if isinstance(found, tuple) else (found,)
            first = files if isinstance(first, arrow.LocalFileSystem) else first
            return (first, *rest) if rest else first

        return replaced

    for module, names in ((dataset, ("_ensure_single_source", "_ensure_multiple_sources")),
                          (parquet, ("_resolve_filesystem_and_path", "_ensure_filesystem"))):
        for name in names:
            setattr(module, name, over(getattr(module, name)))
    return through_fsspec()


def through_hdf5():
    """Files by name are opened by Python and given to h5py as objects, plain too."""
    import h5py

    cache, opened = None, []
    if not IS_PLAIN:
        import refault

        cache = refault.Cache("16M")
    modes = {"r": "rb", "r+": "r+b", "w": "w+b", "w-": "x+b", "x": "x+b"}

    class File(h5py.File):
        def __init__(self, name, mode="r", driver=None, **options):
            below = None
            asked = ("r+" if os.path.exists(name) else "x") if mode == "a" and isinstance(name, (str, bytes)) else mode
            if isinstance(name, (str, bytes)) and driver is None and asked in modes:
                below = open(name, modes[asked], 0) if IS_PLAIN else cache.open(name, modes[asked])
                opened.append(name)
                name, mode = below, "r+" if asked == "r+" else mode
            try:
                super().__init__(name, mode, driver, **options)
            except BaseException:
                if below is not None:
                    below.close()
                raise
            self._below = below

        def close(self):
            super().close()
            if self.__dict__.get("_below") is not None:
                self._below.close()

    File.__module__ = h5py.File.__module__
    h5py.File = h5py._hl.files.File = File
    return None if IS_PLAIN else lambda: len(opened)


DOORS = {"budget": through_budget, "files": through_files, "fsspec": through_fsspec, "arrow": through_arrow, "hdf5": through_hdf5}
count = None


def pytest_configure(config):
    global count
    # What a shell starts in the background ignores it, and tests of interruption would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    count = DOORS[DOOR]()


def pytest_unconfigure(config):
    if count:
        print(f"\n{count()} through the door")
    ends.close()
