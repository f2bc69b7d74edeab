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


COMMAND = os.environ.get("REFAULT")
command = pytest.mark.skipif(COMMAND is None, reason="REFAULT does not name the command")
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


def test_a_trace_is_decoded_once_and_kept_until_its_tasks_are_done(cluster, monkeypatch):
    submitted = []
    submit = cluster.submit

    def listen(function, *arguments, **options):
        submitted.append(function.__name__)
        return submit(function, *arguments, **options)

    monkeypatch.setattr(cluster, "submit", listen)
    there = refault.sweep(TRACES, POLICIES, "10%,50%", client=cluster, policies_per_task=2)
    assert submitted == ["_decode", "_simulate", "_simulate", "_simulate"] * len(TRACES)
    submitted.clear()
    again = refault.sweep(TRACES, POLICIES, "10%,50%", client=cluster, policies_per_task=2, keep_decoded=False)
    assert submitted == ["_simulate"] * 3 * len(TRACES)
    assert there.rows == again.rows
    # Nothing of it stays with the workers.
    deadline = time.monotonic() + 10
    while any(cluster.has_what().values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(cluster.has_what().values())


def test_a_sweep_has_the_verdict_of_a_comparison(cluster):
    traces = [refault.Trace.workload(spec) for spec in TRACES]
    here = refault.compare(traces, POLICIES, "10%,50%", baseline="classic")
    there = refault.sweep(TRACES, POLICIES, "10%,50%", client=cluster, baseline="classic")
    assert there.verdict == here.verdict and there.verdict["best"]


def test_swap_and_warm_up_travel(cluster):
    options = {"swap": "none", "warm_up": 1000}
    spec = "zipf:theta=1,pages=3000,accesses=60000,kind=fd"
    here = refault.compare(refault.Trace.workload(spec), ["lru", "classic"], "10%", **options)
    assert refault.sweep([spec], ["lru", "classic"], "10%", client=cluster, **options).rows == plain(here)


def test_traces_of_several_kinds_and_of_sizes_travel(cluster, tmp_path):
    mixed = "mixed:apages=1000,fpages=500,accesses=20000,writes=0.25"
    sized = tmp_path / "sized.csv"
    sized.write_text("object,size\n" + "".join(f"{n * n % 97},{n % 7 * 1000 + 1}\n" for n in range(2000)))
    here = [plain(refault.compare(trace, ["lru", "arc"], "20%")) for trace in (refault.Trace.workload(mixed), sized)]
    asked = [refault.Trace.workload(mixed), refault.Trace(sized)]
    there = refault.sweep(asked, ["lru", "arc"], "20%", client=cluster, policies_per_task=1)
    assert there.rows == here[0] + here[1]
    assert "byte_misses" in there.rows[2]


def test_a_directory_and_urls_stand_for_what_lies_there(cluster, tmp_path):
    pytest.importorskip("fsspec")
    loop = np.tile(np.arange(100, dtype=np.uint64), 10)
    for host in ("one", "two"):
        (tmp_path / host).mkdir()
        loop.tofile(tmp_path / host / "recording.u64")
    np.tile(np.arange(50, dtype=np.uint64), 10).tofile(tmp_path / "one" / "other.u64")
    found = refault.sweep([tmp_path / "one", tmp_path / "two"], "lru", "50p", client=cluster)
    names = ["other", str(tmp_path / "one" / "recording.u64"), str(tmp_path / "two" / "recording.u64")]
    assert [(row["trace"], row["misses"]) for row in found.rows] == list(zip(names, (50, 1000, 1000)))
    there = refault.sweep([f"file://{tmp_path}/*/*.u64"], "lru", "50p", client=cluster)
    assert sorted(row["misses"] for row in there.rows) == [50, 1000, 1000]
    below = refault.sweep(f"file://{tmp_path}/one/", "lru,fifo", "50p", policies_per_task=1)
    assert [row["misses"] for row in below.rows] == [50, 50, 1000, 1000]
    with pytest.raises(ValueError, match="no objects"):
        refault.sweep(f"file://{tmp_path}/none*", "lru")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no files"):
        refault.sweep(tmp_path / "empty", "lru")


def test_a_curve_in_parts_is_the_same_whatever_the_cluster(cluster):
    spec = "zipf:theta=0.8,pages=40000,accesses=600000"
    sizes = "5%,20%,50%"
    here = refault.sweep_mrc(spec, sizes, sample=0.4, parts=8)
    there = refault.sweep_mrc(spec, sizes, sample=0.4, parts=8, client=cluster)
    assert there.traces == here.traces
    exact = refault.mrc(refault.Trace.workload(spec))
    for row in here.rows:
        assert 0 < row["standard_error"] < 0.03
        off = abs(row["miss_ratio"] - exact.at(row["memory_pages"]))
        assert off < 5 * row["standard_error"], row
    # All parts of all pages hold each page once: the footprint is no estimate.
    whole = refault.sweep_mrc(spec, sizes, sample=1.0, parts=5)
    assert whole.traces[0]["distinct_pages"] == exact.traces[0]["distinct_pages"]


def test_curves_in_parts_refuse_what_says_nothing():
    spec = "zipf:theta=1,pages=100,accesses=1000"
    with pytest.raises(ValueError, match="two at least"):
        refault.sweep_mrc(spec, parts=1)
    with pytest.raises(ValueError, match="share of the pages"):
        refault.sweep_mrc(spec, sample=0)
    with pytest.raises(ValueError, match="has no page"):
        refault.sweep_mrc(spec, sample=1e-9)


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
source = ("workload", {"workload": spec})
asked = (policies, ["10%", "50%"], 0, None)
needs = sweep_module._needs([(0, 0, asked, None)], [source])[0]
# A forked child begins with what its parent had at most: what there is now counts.
before = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))
with open("/proc/self/clear_refs", "w") as out:
    out.write("5")
sweep_module._simulate(source, *asked)
peak = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([needs, peak - before]))
"""
    for policies in ("lru", "opt", "mglru+arc", "adaptive+wtinylfu+lirs+lrfu"):
        spec = "uniform:pages=300000,accesses=1500000"
        found = subprocess.run([sys.executable, "-c", program, spec, policies], capture_output=True, check=True)
        declared, taken = json.loads(found.stdout)
        # No more than is declared, and over an eighth of it: with less, workers would stand idle.
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
            assert task[0].__name__ == "_simulate"  # what is kept is not declared, so nothing is kept
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
    adaptive = [refault.sweep(TRACES[:1], ["adaptive", "lru"], "10%", out=tmp_path / "leaders").rows for _ in range(2)]
    assert adaptive[0] == adaptive[1]  # what only some rows have too


def test_wrong_requests_are_refused_before_anything_runs():
    with pytest.raises(ValueError, match="do not travel"):
        refault.sweep(TRACES, refault.PythonPolicy())
    with pytest.raises(ValueError, match="1 at least"):
        refault.sweep(TRACES, "lru", policies_per_task=0)
    with pytest.raises(ValueError, match="no traces"):
        refault.sweep([], "lru")
    for sweep in (refault.sweep, lambda traces, policies, **rest: refault.sweep_mrc(traces[0], **rest)):
        with pytest.raises(TypeError, match=r"distributed.Client, not str: distributed.Client\('tcp://'\) makes one"):
            sweep(TRACES, "lru", client="tcp://")
    with pytest.raises(TypeError, match="client is a distributed.Client, not int"):
        refault.sweep(TRACES, "lru", client=8786)


def asked_of_the_command(*arguments, **environment):
    environment = {**os.environ, "REFAULT_PYTHON": sys.executable, **environment}
    return subprocess.run(
        [COMMAND, "compare", *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=120
    )


@command
def test_the_command_says_the_same_with_and_without_a_cluster(cluster, tmp_path):
    np.tile(np.arange(100, dtype=np.uint64), 10).tofile(tmp_path / "loop.u64")
    (tmp_path / "other").mkdir()
    np.arange(1000, dtype=np.uint64).tofile(tmp_path / "other" / "loop.u64")
    named = ["--policy", "lru,adaptive,mglru{tiers=1},opt"]
    several = [tmp_path / "loop.u64", tmp_path / "other/loop.u64", "--workload", TRACES[0], *named]
    part = ["--workload", TRACES[1], "--memory", "25%", "--warm-up", "1000", "--swap", "none", "--limit", "50000", *named]
    for asked, form in (
        ([*several, "--memory", "10%,33.3%,64K"], "table"),
        (part, "csv"),
        ([tmp_path / "loop.u64", "--kind", "fd", "--policy", "best", "--skip", "10"], "json"),
        (["--limit", "5000", *named], "table"),  # of the built-in set
    ):
        asked = [*asked, "--format", form]
        there = asked_of_the_command(*asked, "--dask", cluster.scheduler.address)
        assert there.returncode == 0, there.stderr
        here = asked_of_the_command(*asked, "--no-timing", "--report", tmp_path / "report.html")
        assert there.stdout == here.stdout and there.stdout


def test_what_was_left_out_is_said_wherever_it_was_read(cluster, tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "deletions.csv"
    path.write_text("page,op\n1,r\n2,delete\n1,r\n3,r\n")
    said = "deletions: 1 deletion is left out: it is no access"
    results = tmp_path / "results"
    for options in (
        {},
        {"keep_decoded": False},
        {"client": cluster},
        {"client": cluster, "keep_decoded": False, "out": results},
        {"out": results},  # Nothing is run: what was said is kept.
    ):
        with pytest.warns(refault.TraceWarning) as warned:
            refault.sweep([path], ["lru", "arc"], "50%", policies_per_task=1, **options)
        assert {str(warning.message) for warning in warned} == {said}, options
    with pytest.warns(refault.TraceWarning, match="1 deletion"):
        refault.sweep_mrc(path, sample=1.0, parts=2, client=cluster)


@command
def test_the_command_says_what_workers_left_out(cluster, tmp_path):
    path, there = tmp_path / "deletions.csv", ("--dask", cluster.scheduler.address)
    path.write_text("page,op\n1,r\n2,delete\n1,r\n")
    asked = asked_of_the_command(path, *there, "--policy", "lru", "--memory", "50%")
    assert asked.returncode == 0 and asked.stderr.count("deletions: 1 deletion is left out") == 1, asked.stderr
    refused = asked_of_the_command(path, *there, "--strict", "--policy", "lru", "--memory", "50%")
    assert refused.returncode == 2 and "1 deletion" in refused.stderr and not refused.stdout
    numbered = tmp_path / "numbered.csv"
    numbered.write_text("1;a,b;7;x;y\n2;a,c;7;x;y\n3;a,b;7;x;y\n")
    asked = [numbered, "--columns", "time_s=1,object=2,operation=,unread=3,unread=4,unread=5,separator=semicolon"]
    asked += ["--policy", "lru", "--memory", "100%", "--no-timing", "--format", "json"]
    there, here = asked_of_the_command(*asked, *there), asked_of_the_command(*asked)
    assert not here.stderr and '"misses":2' in here.stdout, here
    # What objects were taken for does not come back from workers.
    assert json.loads(there.stdout)["runs"] == json.loads(here.stdout)["runs"], there


@command
def test_what_the_command_cannot_send_it_refuses_in_words(cluster, tmp_path):
    np.arange(1000, dtype=np.uint64).tofile(tmp_path / "loop.u64")
    trace, there = tmp_path / "loop.u64", ("--dask", cluster.scheduler.address)
    for asked, words in (
        ((trace, *there, "--warm-up", "20%"), "a share cannot warm up"),
        ((trace, *there, "--from", "1s"), "--from"),
        ((trace, *there, "--jobs", "2"), "--jobs"),
        ((trace, *there, "--report", tmp_path / "r.html"), "--report"),
        ((trace, "--dask", "tcp://127.0.0.1:9"), "no Dask scheduler answers"),
        ((tmp_path / "none.u64", *there), "none.u64"),
    ):
        refused = asked_of_the_command(*asked)
        assert refused.returncode in (1, 2) and words in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr and not refused.stdout
    alone = asked_of_the_command(trace, *there, REFAULT_PYTHON=str(tmp_path / "python"))
    assert alone.returncode == 2 and "REFAULT_PYTHON" in alone.stderr
    bare = tmp_path / "bare"  # an interpreter that finds no packages
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    without = asked_of_the_command(trace, *there, REFAULT_PYTHON=str(bare))
    assert without.returncode == 2 and "pip install" in without.stderr and "Traceback" not in without.stderr
