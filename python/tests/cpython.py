"""Runs one of CPython's own test suites with files that lie in a page cache.

    python cpython.py test_zipfile      prints each test that did not pass, and then how many there were

`open` and `io.open` open files through `refault`, where that is meant for them: by path, in a regular file. What is
opened by a descriptor, by an `opener`, or is no regular file is opened as ever. `plain` as a second word replaces nothing.
"""

import builtins
import io
import os
import stat
import sys
import unittest

import refault

CACHE = refault.Cache("16M")
plain_open = io.open
plain_file = io.FileIO
opened = 0


class FileIO(refault.CachedFile):
    """With the arguments of `io.FileIO`, and that where the cache is not meant."""

    def __new__(cls, file, mode="r", closefd=True, opener=None):
        return super().__new__(cls) if is_for_us(file, closefd, opener) else plain_file(file, mode, closefd, opener)

    def __init__(self, file, mode="r", closefd=True, opener=None):
        global opened
        opened += 1
        super().__init__(CACHE, file, mode)


def is_for_us(file, closefd, opener):
    if isinstance(file, int) or not closefd or opener is not None:
        return False
    try:
        return stat.S_ISREG(os.stat(file).st_mode) and not os.fspath(file).startswith(("/proc", b"/proc"))
    except (OSError, ValueError, TypeError):
        return True


def cached_open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
    """`io.open` over a page cache."""
    kinds = set(mode) if isinstance(mode, str) else set()
    is_binary = "b" in kinds
    wrong = not isinstance(mode, str) or kinds - set("axrwb+t") or len(kinds) != len(mode) or {"b", "t"} <= kinds
    odd = wrong or len(kinds & set("axrw")) != 1 or not isinstance(buffering, int) or not is_binary and buffering == 0
    if odd or is_binary and (encoding, errors, newline) != (None, None, None) or not is_for_us(file, closefd, opener):
        return plain_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = FileIO(file, mode.replace("b", "").replace("t", ""))
    result = raw
    try:
        is_by_line = buffering == 1 and not is_binary
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        kind = io.BufferedRandom if "+" in kinds else io.BufferedReader if "r" in kinds else io.BufferedWriter
        result = kind(raw, size)
        if is_binary:
            return result
        result = io.TextIOWrapper(result, io.text_encoding(encoding, 2), errors, newline, is_by_line)
        result.mode = mode
        return result
    except BaseException:
        result.close()
        raise


def suite(name):
    """The tests of a module, with what it asks of its loader."""
    module = __import__(f"test.{name}", fromlist=["*"])
    loader = unittest.defaultTestLoader
    if name == "test_fileio":
        kinds = [type("Auto", (module.AutoFileTests, unittest.TestCase), {"FileIO": FileIO, "modulename": "refault"})]
        kinds.append(type("Other", (module.OtherFileTests, unittest.TestCase), {"FileIO": FileIO, "modulename": "refault"}))
    elif name == "test_io":
        module.load_tests(loader, unittest.TestSuite(), None)
        ours = {"FileIO": FileIO, "open": staticmethod(cached_open)}
        kinds = [type(kind.__name__, (kind,), ours) for kind in (module.CIOTest, module.CMiscIOTest, module.CTextIOWrapperTest)]
    else:
        return loader.loadTestsFromModule(module)
    return unittest.TestSuite(loader.loadTestsFromTestCase(kind) for kind in kinds)


def main():
    name, *rest = sys.argv[1:]
    global FileIO, cached_open
    if rest == ["plain"]:
        FileIO, cached_open = io.FileIO, io.open
    tests = suite(name)
    builtins.open = io.open = cached_open
    result = unittest.TextTestRunner(stream=plain_open(os.devnull, "w"), verbosity=0).run(tests)
    builtins.open = io.open = plain_open
    for test, why in result.failures + result.errors:
        print(str(test).split()[0], "|", why.strip().splitlines()[-1][:150])
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun} tests, {failed} failed, {len(result.skipped)} skipped, {opened} files opened")


if __name__ == "__main__":
    main()
