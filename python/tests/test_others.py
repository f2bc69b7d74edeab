"""What others make of our files and arrays: h5py, zarr, pyarrow, scikit-learn, PyTorch, polars."""

import os

import numpy as np
import pytest
import refault


@pytest.fixture
def on_disk(tmp_path):
    """A directory whose file system does direct I/O."""
    probe = tmp_path / "probe"
    probe.write_bytes(b"x" * 4096)
    try:
        refault.open(probe).close()
    except OSError as error:
        if os.environ.get("REFAULT_REQUIRE"):
            raise
        pytest.skip(f"no direct I/O: {error}")
    return tmp_path


@pytest.fixture
def budget():
    try:
        return refault.Budget("1M")
    except OSError as error:
        if os.environ.get("REFAULT_REQUIRE"):
            raise
        pytest.skip(str(error))


def test_h5py_reads_slices_through_a_cache(on_disk):
    h5py = pytest.importorskip("h5py")
    cube = np.arange(64 * 64 * 64, dtype=np.float64).reshape(64, 64, 64)
    with h5py.File(on_disk / "cube.h5", "w") as file:
        file.create_dataset("cube", data=cube, chunks=(16, 16, 16))
    with refault.open(on_disk / "cube.h5", memory="256K") as raw, h5py.File(raw, "r") as file:
        assert (file["cube"][:, 7, :] == cube[:, 7, :]).all()
        assert (file["cube"][3] == cube[3]).all()
        assert file["cube"][::9, ::7, 5].sum() == cube[::9, ::7, 5].sum()
        assert raw.stats()["hits"] + raw.stats()["read_ahead"] > 0


def test_pyarrow_reads_row_groups_in_any_order_through_a_cache(on_disk):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.table({"key": np.arange(100_000), "value": np.random.default_rng(1).random(100_000)})
    parquet.write_table(table, on_disk / "table.parquet", row_group_size=10_000)
    with refault.open(on_disk / "table.parquet", memory="512K", policy="s3fifo") as raw:
        file = parquet.ParquetFile(raw)
        for group in (7, 0, 9, 7, 3):
            assert file.read_row_group(group).equals(table.slice(group * 10_000, 10_000))
        assert raw.stats()["misses"] > 0


def test_zarr_reads_chunks_through_fsspec(on_disk):
    zarr = pytest.importorskip("zarr")
    fsspec = pytest.importorskip("fsspec")
    grid = np.arange(512 * 512, dtype=np.int64).reshape(512, 512)
    array = zarr.create_array(str(on_disk / "grid.zarr"), shape=grid.shape, chunks=(64, 64), dtype=grid.dtype)
    array[:] = grid
    cached = fsspec.filesystem("refault", memory="1M")
    store = cached.get_mapper(str(on_disk / "grid.zarr"))
    found = {name: store[name] for name in store}
    assert len(found) >= 64
    memory = zarr.storage.MemoryStore({name: _buffer(zarr, data) for name, data in found.items()})
    again = zarr.open_array(memory, mode="r")
    assert (again[100:300, 50:70] == grid[100:300, 50:70]).all()
    assert cached.stats()["misses"] > 0


def _buffer(zarr, data):
    return zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)


def test_scikit_learn_finds_the_same_in_an_array_that_pages(budget):
    linear = pytest.importorskip("sklearn.linear_model")
    neighbors = pytest.importorskip("sklearn.neighbors")
    points = np.random.default_rng(1).random((20_000, 8))
    paged = refault.array_like(points, budget=budget)
    assert budget.stats()["resident_bytes"] <= 1 << 20 < points.nbytes
    plain, ours = (neighbors.KDTree(source).query(points[:50], k=5) for source in (points, paged))
    assert (plain[0] == ours[0]).all() and (plain[1] == ours[1]).all()
    sums = linear.LinearRegression()
    plain, ours = (sums.fit(source[:, 1:], source[:, 0]).coef_ for source in (points, paged))
    # How memory is aligned may change the order in which a BLAS adds.
    np.testing.assert_allclose(plain, ours, rtol=1e-9)


def test_pytorch_computes_on_an_array_that_pages(budget):
    torch = pytest.importorskip("torch")
    plain = np.random.default_rng(1).random((2000, 256)).astype(np.float32)
    paged = refault.array_like(plain, budget=budget)
    tensor = torch.from_numpy(paged)
    assert tensor.data_ptr() == paged.__array_interface__["data"][0]
    assert torch.equal(tensor.sum(0), torch.from_numpy(plain).sum(0))
    tensor.mul_(2)
    assert (paged == plain * 2).all() and budget.stats()["stored"] > 0


def test_polars_computes_on_an_array_that_pages(budget):
    polars = pytest.importorskip("polars")
    random = np.random.default_rng(1)
    keys, values = random.integers(0, 1000, 500_000), random.random(500_000)
    paged = {name: refault.array_like(array, budget=budget) for name, array in (("key", keys), ("value", values))}

    def means(columns):
        return polars.DataFrame(columns).group_by("key").agg(polars.col("value").mean()).sort("key")

    before = budget.stats()["refaults"]
    ours, plain = means(paged), means({"key": keys, "value": values})
    assert ours["key"].equals(plain["key"])
    # Threads add in any order.
    np.testing.assert_allclose(ours["value"], plain["value"], rtol=1e-9)
    assert budget.stats()["refaults"] > before
