"""Objects of a store that speaks S3, in a process of its own (`store`): read through a cache, and swept over."""

import os

import numpy as np
import pytest
import refault

pytest.importorskip("s3fs")
pytest.importorskip("moto")
fsspec = pytest.importorskip("fsspec")


def test_an_object_is_read_through_a_cache_and_asked_for_once(store):
    contents = np.random.default_rng(1).bytes(3_000_001)
    fsspec.filesystem("s3").pipe_file("bucket/object", contents)
    options = {"refault": {"memory": "8M", "block_size": "512K"}}
    random = np.random.default_rng(2)
    for turn in range(2):
        with fsspec.open("refault::s3://bucket/object", **options) as file:
            for _ in range(40):
                offset, length = int(random.integers(0, 3_100_000)), int(random.integers(0, 50_000))
                file.seek(offset)
                assert file.read(length) == contents[offset : offset + length]
            assert file.read_at(0, 5_000_000) == contents
        if turn == 0:
            asked = store("object")
            assert asked >= 6
    assert store("object") == asked, "the second reader finds all of it"
    fsspec.filesystem("s3").pipe_file("bucket/object", b"another")
    with fsspec.open("refault::s3://bucket/object", **options) as file:
        assert file.read() == b"another"
    with pytest.raises(FileNotFoundError):
        fsspec.open("refault::s3://bucket/none").open()


def test_an_object_that_changes_while_it_is_open_is_no_mixture(store):
    s3 = fsspec.filesystem("s3")
    s3.pipe_file("bucket/changes", b"old" * 300_000)
    options = {"refault": {"memory": "1M", "block_size": "128K"}}
    with fsspec.open("refault::s3://bucket/changes", **options) as file:
        assert file.read(3) == b"old"
        s3.pipe_file("bucket/changes", b"new" * 300_000)
        with pytest.raises(OSError, match="no longer exists"):
            file.read()
        file.reload()
        file.seek(0)
        assert file.read() == b"new" * 300_000


def test_a_table_in_a_store_is_read_column_by_column(store):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(50_000), "b": np.random.default_rng(1).random(50_000)})
    with fsspec.open("s3://bucket/table.parquet", "wb") as file:
        frame.to_parquet(file, row_group_size=5000)
    assert pandas.read_parquet("refault::s3://bucket/table.parquet", columns=["b"]).equals(frame[["b"]])


def test_recordings_in_a_store_are_swept_over_as_those_in_a_directory(store, tmp_path):
    s3 = fsspec.filesystem("s3")
    for host in ("one", "two"):
        path = tmp_path / f"{host}.csv"
        pages = np.random.default_rng(len(host) + ord(host[0])).zipf(1.3, 5000) % 500
        path.write_text("page\n" + "".join(f"{page}\n" for page in pages))
        s3.put_file(str(path), f"bucket/fleet/{host}.csv")
    there = refault.sweep("s3://bucket/fleet/", ["lru", "s3fifo"], ["10%"], out=tmp_path / "results")
    here = refault.sweep(sorted(os.fspath(path) for path in tmp_path.glob("*.csv")), ["lru", "s3fifo"], ["10%"])
    assert there.rows == here.rows and len(there.rows) == 4
    asked = store("fleet/one.csv")
    assert refault.sweep("s3://bucket/fleet/", ["lru", "s3fifo"], ["10%"], out=tmp_path / "results").rows == here.rows
    assert store("fleet/one.csv") == asked > 0, "a sweep that was done asks for no object"
