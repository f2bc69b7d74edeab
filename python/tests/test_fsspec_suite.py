"""fsspec's own abstract suite through `refault::`, over local files, memory and a store: all of it passes, as without.

With REFAULT_PLAIN=1 nothing is refault's.
"""

import os

import pytest

abstract = pytest.importorskip("fsspec.tests.abstract")
pytest.importorskip("fsspec.tests.abstract.mv")
import fsspec  # noqa: E402
from fsspec.implementations.local import LocalFileSystem, make_path_posix  # noqa: E402


def through(target, **options):
    """The file system of a protocol, through the cache."""
    if os.environ.get("REFAULT_PLAIN") == "1":
        return fsspec.filesystem(target, **options)
    return fsspec.filesystem("refault", memory="1M", target_protocol=target, target_options=options)


class OverLocal(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return through("file", auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, tmpdir):
        return str(tmpdir)

    @pytest.fixture
    def fs_sanitize_path(self):
        return make_path_posix


class OverMemory(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        memory = fsspec.filesystem("memory")
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]
        yield through("memory")
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]

    @pytest.fixture
    def fs_join(self):
        return lambda *names: "/".join(names)

    @pytest.fixture
    def fs_path(self):
        return ""


class OverStore(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, store):
        s3 = fsspec.filesystem("s3")
        yield through("s3")
        if s3.exists("bucket/top"):
            s3.rm("bucket/top", recursive=True)

    @pytest.fixture
    def fs_join(self):
        return lambda *names: "/".join(names)

    @pytest.fixture
    def fs_path(self):
        return "bucket/top"

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class TestCopyLocal(abstract.AbstractCopyTests, OverLocal):
    pass


class TestGetLocal(abstract.AbstractGetTests, OverLocal):
    pass


class TestPutLocal(abstract.AbstractPutTests, OverLocal):
    pass


class TestOpenLocal(abstract.AbstractOpenTests, OverLocal):
    pass


class TestPipeLocal(abstract.AbstractPipeTests, OverLocal):
    pass


class TestCopyMemory(abstract.AbstractCopyTests, OverMemory):
    pass


class TestGetMemory(abstract.AbstractGetTests, OverMemory):
    pass


class TestPutMemory(abstract.AbstractPutTests, OverMemory):
    pass


class TestOpenMemory(abstract.AbstractOpenTests, OverMemory):
    pass


class TestPipeMemory(abstract.AbstractPipeTests, OverMemory):
    pass


class TestCopyStore(abstract.AbstractCopyTests, OverStore):
    pass


class TestGetStore(abstract.AbstractGetTests, OverStore):
    pass


class TestPutStore(abstract.AbstractPutTests, OverStore):
    pass


class TestOpenStore(abstract.AbstractOpenTests, OverStore):
    def test_open_exclusive(self, fs, fs_target):
        """The store of the tests takes what must be new though it is not, so that the suite's own test fails without us, too."""
        outcomes = []
        for each in (getattr(fs, "fs", fs), fs):
            each.pipe_file(fs_target, b"data")
            try:
                with each.open(fs_target, "xb") as file:
                    file.write(b"longer")
                outcomes.append(each.cat_file(fs_target))
            except FileExistsError:
                outcomes.append(FileExistsError)
        assert outcomes[0] == outcomes[1]


class TestPipeStore(abstract.AbstractPipeTests, OverStore):
    pass
