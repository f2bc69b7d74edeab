"""Sweeps: the same rows whatever the cluster, taken up where they stopped."""

import json
import os
import signal
import subprocess
import sys
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


def test_what_a_task_declares_is_what_it_needs_at_most():

    program = """
import json, resource, sys
import refault
import importlib
sweep_module = importlib.import_module("refault.sweep")
spec, policies = sys.argv[1], sys.argv[2].split("+")
task = (("workload", spec), policies, ["10%", "50%"], 0)
needs = sweep_module._needs([(0, task, None)])[0]
# A forked child begins with what its parent had at most: what there is now counts.
before = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))
with open("/proc/self/clear_refs", "w") as out:
    out.write("5")
sweep_module._simulate(*task)
peak = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([needs, peak - before]))
"""
    for policies in ("lru", "opt", "mglru+arc", "adaptive+wtinylfu+lirs+lrfu"):
        spec = "uniform:pages=300000,accesses=1500000"
        found = subprocess.run([sys.executable, "-c", program, spec, policies], capture_output=True, check=True)
        declared, taken = json.loads(found.stdout)
        # No more than is declared, and not so much less that workers would stand idle.
        assert declared / 8 < taken <= declared, policies


def test_each_task_declares_its_memory(monkeypatch):
    distributed = pytest.importorskip("distributed")
    here = refault.sweep(TRACES, ["lru", "arc"], "10%", policies_per_task=1)
    needed = [2 * 64 * refault.Trace.workload(spec).counts()["distinct_pages"] for spec in TRACES for _ in range(2)]
    declared = []
    # Two threads, and memory for one task at a time.
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None, resources={"MEMORY": max(needed)}
    ) as small, distributed.Client(small) as client:
        submit = client.submit

        def listen(*task, **options):
            declared.append(options["resources"]["MEMORY"])
            return submit(*task, **options)

        monkeypatch.setattr(client, "submit", listen)
        there = refault.sweep(TRACES, ["lru", "arc"], "10%", client=client, policies_per_task=1, declare_memory=True)
    assert declared == needed
    assert there.rows == here.rows


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
