"""Sweeps: the same rows whatever the cluster, taken up where they stopped."""

import os
import signal
import time

import numpy as np
import pytest
import refault

TRACES = [f"zipf:theta={theta},pages=3000,accesses=60000" for theta in ("0.8", "1", "1.2")]
POLICIES = ["lru", "mglru", "arc", "s3fifo", "classic", "lirs"]


def plain(result):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in result.rows]


TIMES = ("wall_seconds", "accesses_per_second")


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        yield client


def test_without_a_cluster_it_is_a_comparison():
    traces = [refault.Trace.workload(spec) for spec in TRACES]
    assert refault.sweep(TRACES, POLICIES, "10%,50%").rows == plain(refault.compare(traces, POLICIES, "10%,50%"))


def test_a_cluster_finds_the_same(cluster):
    here = refault.sweep(TRACES, POLICIES, "10%,50%", policies_per_task=6)
    there = refault.sweep(TRACES, POLICIES, "10%,50%", client=cluster, policies_per_task=2)
    assert there.rows == here.rows


def test_arrays_travel(cluster):
    array = refault.Trace(np.tile(np.arange(100, dtype=np.uint64), 10), kind="fd", name="loop")
    found = refault.sweep([array], ["lru", "opt"], "50%", client=cluster)
    assert [row["misses"] for row in found.rows] == [1000, 550]


def test_a_worker_that_dies_loses_nothing(cluster):
    heavy = [f"zipf:theta=1,pages=200000,accesses=3000000,seed={seed}" for seed in range(4)]
    processes = list(cluster.run(os.getpid).values())
    import threading

    threading.Timer(1.0, os.kill, (processes[0], signal.SIGKILL)).start()
    there = refault.sweep(heavy, ["mglru", "arc"], "10%", client=cluster, policies_per_task=1)
    assert there.rows == refault.sweep(heavy, ["mglru", "arc"], "10%").rows


def test_a_sweep_is_taken_up_where_it_stopped(tmp_path):
    first = refault.sweep(TRACES[:2], ["lru", "arc"], "10%", out=tmp_path, policies_per_task=1)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) == 4
    began = time.perf_counter()
    again = refault.sweep(TRACES, ["lru", "arc"], "10%", out=tmp_path, policies_per_task=1)
    assert again.rows[:4] == first.rows and len(again.rows) == 6 and began
    # What was there was read, not made again.
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert len(list(tmp_path.iterdir())) == 6
    import pandas

    assert len(pandas.read_parquet(tmp_path)) == 6


def test_wrong_requests_are_refused_before_anything_runs():
    with pytest.raises(ValueError, match="do not travel"):
        refault.sweep(TRACES, refault.PythonPolicy())
    with pytest.raises(ValueError, match="no traces"):
        refault.sweep([], "lru")
