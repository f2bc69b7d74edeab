"""The lab: the command's figures, and errors in its words."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import refault

SPEC = "zipf:theta=1,pages=2000,accesses=40000"


def loop(pages=100, times=10, name="loop"):
    return refault.Trace(np.tile(np.arange(pages, dtype=np.uint64), times), name=name)


def misses(result):
    return {(row["policy"], row["memory_pages"]): row["misses"] for row in result.rows}


def test_a_loop_beyond_memory_always_misses_under_lru_and_not_under_opt():
    found = misses(refault.compare(loop(), ["lru", "opt"], ["50%", "100p"]))
    assert found[("lru", 50)] == 1000 and found[("lru", 100)] == 100
    # The bound hits half of each of nine repetitions.
    assert found[("opt", 50)] == 100 + 9 * 50


def test_arrays_workloads_and_files_give_the_same(tmp_path):
    workload = refault.Trace.workload(SPEC)
    arrays = workload.to_arrays()
    path = tmp_path / "trace.u64"
    arrays["pages"].tofile(path)
    kind = ("anon", "fd", "mapped")[int(arrays["kinds"][0])]
    from_array = refault.Trace(arrays["pages"], kind=kind, writes=arrays["writes"], name="array")
    policies = ["lru", "mglru", "s3fifo", "classic"]
    expected = misses(refault.compare(workload, policies, "10%,50%"))
    assert misses(refault.compare(from_array, policies, "10%,50%")) == expected
    if kind == "anon" and not arrays["writes"].any():
        assert misses(refault.compare(path, policies, "10%,50%")) == expected


@pytest.mark.skipif("REFAULT" not in os.environ, reason="REFAULT does not name the command")
def test_the_command_says_the_same_to_the_last_digit():
    command = [os.environ["REFAULT"], "compare", "--workload", SPEC, "--policy", "all", "--memory", "10%,50%"]
    text = subprocess.run([*command, "--format", "json", "--no-timing"], capture_output=True, check=True).stdout
    ours = refault.compare(refault.Trace.workload(SPEC), "all", ["10%", "50%"])
    for row in ours.rows:
        del row["wall_seconds"], row["accesses_per_second"]
    assert json.loads(text)["runs"] == ours.rows
    assert json.loads(text)["verdict"] == ours.verdict


def test_wrong_requests_are_value_errors_in_words():
    with pytest.raises(ValueError, match="did you mean 'mglru'"):
        refault.compare(loop(), "mrglu")
    with pytest.raises(ValueError, match="is not a size"):
        refault.compare(loop(), "lru", "10 apples")
    with pytest.raises(ValueError, match="not negative"):
        refault.Trace([1, -2])
    with pytest.raises(ValueError, match="below 2\\^56"):
        refault.compare(refault.Trace(np.array([2**60], dtype=np.uint64)), "lru", "1p")
    with pytest.raises(ValueError, match="one dimension"):
        refault.Trace(np.zeros((2, 2), np.uint64))
    with pytest.raises(ValueError, match="integers"):
        refault.Trace([1.5])
    with pytest.raises(ValueError, match="empty"):
        refault.Trace([])
    with pytest.raises(ValueError, match="as many"):
        refault.Trace([1, 2], writes=[True])
    with pytest.raises(ValueError, match="name of its own"):
        refault.compare([loop(), loop()], "lru")
    with pytest.raises(ValueError, match="from 1 to 1024"):
        refault.compare(loop(), "lru", jobs=0)
    with pytest.raises(TypeError, match="names or a refault.PythonPolicy"):
        refault.compare(loop(), None)
    assert len(refault.compare([[1, 2, 3], np.arange(5)], "lru", "1p").rows) == 2
    with pytest.raises(FileNotFoundError) as missing:
        refault.Trace("/no/such/trace.u64")
    error = missing.value
    assert (error.errno, error.strerror, error.filename) == (2, os.strerror(2), "/no/such/trace.u64")
    assert str(error) == f"[Errno 2] {os.strerror(2)}: '/no/such/trace.u64'"


@pytest.mark.parametrize("number", [5, np.int64(5), np.array(5), 2.5])
def test_a_number_is_no_trace(number):
    for call in (refault.Trace, lambda trace: refault.compare(trace, "lru"), lambda trace: refault.sweep(trace, "lru")):
        with pytest.raises(TypeError, match="; not "):
            call(number)
    with pytest.raises(TypeError, match="of numbers alone make an array first"):
        refault.compare([1, 2, 1], "lru", "1p")
    with pytest.raises(TypeError, match="traces are paths, URLs, workloads or refault.Trace objects; not"):
        refault.sweep([number], "lru")


@pytest.mark.parametrize("memory", [None, 2.5, b"64M", object()])
def test_sizes_that_are_no_list_are_refused_in_words(memory):
    with pytest.raises(TypeError, match="memory is a size, such as '25%', '64M' or a number of bytes, or several; not"):
        refault.compare(loop(), "lru", memory)


@pytest.mark.parametrize("size", [None, 8192.5, b"64M", ["64M"]])
def test_what_is_no_size_among_sizes_is_refused_in_words(size):
    with pytest.raises(TypeError, match="a size is a text such as"):
        refault.compare(loop(), "lru", ["50%", size])


def test_sizes_may_be_numbers_of_numpy():
    expected = misses(refault.compare(loop(), "lru", [8192, 16384]))
    assert misses(refault.compare(loop(), "lru", np.array([8192, 16384]))) == expected
    assert misses(refault.compare(loop(), "lru", [np.uint32(8192), 16384.0])) == expected
    assert misses(refault.compare(loop(), "lru", np.int64(8192))).items() <= expected.items()


def test_a_policy_without_its_methods_is_refused_in_words():
    class Lazy(refault.PythonPolicy):
        def admit(self, page):
            pass

    class Foreign:
        pass

    for policy in (Lazy, Lazy(), ["lru", Lazy]):
        with pytest.raises(TypeError, match=r"policy 'Lazy' has no method evict\(self\), which says what page goes"):
            refault.compare(loop(), policy, "1p")
    for foreign in (Foreign, Foreign()):
        with pytest.raises(TypeError, match="a refault.PythonPolicy, not Foreign"):
            refault.compare(loop(), [foreign], "1p")


def test_curves_agree_with_comparisons():
    trace = refault.Trace.workload(SPEC)
    curves = refault.mrc(trace, ["lru", "mglru"], ["10%", "50%"])
    for row in refault.compare(trace, ["lru", "mglru"], ["10%", "50%"]).rows:
        assert curves.at(row["memory_pages"], row["policy"]) == row["miss_ratio"]
    enough = curves.memory_for(0.3)
    assert curves.at(enough) <= 0.3 < curves.at(enough - 1)
    assert curves.memory_for(1) >= 1 and curves.at(0) == 1
    for ratio in (float("nan"), -0.1, 5):
        with pytest.raises(ValueError, match="a miss ratio is from 0 to 1; not"):
            curves.memory_for(ratio)
    with pytest.raises(ValueError, match="0 pages or more; not nan"):
        curves.at(float("nan"))


def test_results_in_every_form():
    result = refault.compare(loop(), ["lru", "opt"], "50%")
    assert list(result.to_pandas()["misses"]) == [1000, 550]
    assert result.to_polars()["policy"].to_list() == ["lru", "opt"]
    assert result.to_arrow().num_rows == 2
    import polars

    assert polars.DataFrame(result).height == 2  # by Arrow's C interface
    import matplotlib

    matplotlib.use("Agg")
    page = result._repr_html_()
    assert "<svg" in page and "1,000" in page
    assert result.plot().get_xlabel() == "memory, MiB"
    assert "loop" in repr(result)


def test_estimates_of_a_live_cache_are_those_of_a_comparison():
    pages = np.random.default_rng(1).zipf(1.3, 40_000).clip(max=3000).astype(np.uint64)
    caches = [30, 300, 1500]
    estimator = refault.Estimator(["lru", "fifo", "clock", "s3fifo"], caches)
    estimator.access(int(pages[0]), 1)
    estimator.access_all(pages[1:], np.ones(len(pages) - 1, dtype=int))
    exact = refault.compare(
        refault.Trace(pages, kind="fd"), ["lru", "fifo", "clock", "s3fifo"], [f"{pages}p" for pages in caches]
    )
    assert estimator.rate == 1
    found = [row["miss_ratio"] for row in estimator.estimates()]
    assert found == [row["misses"] / len(pages) for row in exact.rows]
    estimator.restart()
    assert {row["miss_ratio"] for row in estimator.estimates()} == {0}
    with pytest.raises(ValueError, match="choose from lru"):
        refault.Estimator(["opt"], [10])
    with pytest.raises(ValueError, match="one size for each"):
        estimator.access_all([1, 2], [1])


def test_step_by_step():
    lru = refault.Policy("lru", memory_pages=3, pages=10)
    assert [lru.access(page) for page in (1, 2, 3, 1, 4)] == [False, False, False, True, False]
    assert lru.resident() == [1, 3, 4]
    assert lru.next_victims() == [3]
    assert lru.resident() == [1, 3, 4]  # looking changes nothing
    assert lru.counters()["misses"] == 4
    with pytest.raises(IndexError):
        lru.access(10)
    with pytest.raises(ValueError, match="all accesses to come"):
        refault.Policy("opt", 3)


def test_any_page_goes_step_by_step():
    lru = refault.Policy("lru", memory_pages=3)
    pages = [1 << 63, 5, (1 << 64) - 1, 1 << 63, 1024, 0]
    assert [lru.access(page) for page in pages] == [False, False, False, True, False, False]
    assert lru.resident() == sorted([1 << 63, 1024, 0]) and lru.next_victims() == [1 << 63]
    for wrong in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            lru.access(wrong)
    # More than there is room for at first: the same as where all are known beforehand, in the order in which they come.
    order = np.random.default_rng(4).zipf(1.2, 20_000) % 5000
    names = {}
    numbers = [names.setdefault(int(page), len(names)) for page in order]
    assert len(names) > 2048
    for name in ("lru", "mglru", "arc", "s3fifo", "classic", "adaptive"):
        for kind in ("fd", "anon"):
            known = refault.Policy(name, 500, pages=8192, kind=kind)
            grows = refault.Policy(name, 500, kind=kind)
            assert all(known.access(number) == grows.access(int(page) << 40) for number, page in zip(numbers, order)), name
            # Entries of tables are walked whether a page came or not, and there are more of them where all are known.
            assert {**known.counters(), "walk_entries": 0} == {**grows.counters(), "walk_entries": 0}
            held = set(known.resident())
            there = {int(page) << 40 for page in order if names[int(page)] in held}
            assert set(grows.resident()) == there
            outside = {number: page << 40 for page, number in names.items()}
            assert grows.next_victims() == sorted(outside[number] for number in known.next_victims())


def test_a_star_import_replaces_no_builtin():
    import builtins

    assert not set(refault.__all__) & set(dir(builtins)) and set(refault.__all__) <= set(dir(refault))
    names = {}
    exec("from refault import *", names)
    assert names.get("open", open) is open and refault.open is not open


@pytest.mark.parametrize("memory", [[], ()])
def test_no_size_is_refused_in_words(memory):
    with pytest.raises(ValueError, match="no size of memory"):
        refault.compare(np.arange(10, dtype=np.uint64), "lru", memory)
    with pytest.raises(ValueError, match="no size of memory"):
        refault.sweep([refault.Trace(np.arange(10, dtype=np.uint64))], "lru", memory)


def test_a_step_by_step_policy_counts_as_a_comparison_does():
    pages = refault.Trace.workload(SPEC).pages()
    for name in ("mglru", "arc", "s3fifo", "classic"):
        policy = refault.Policy(name, memory_pages=200, pages=2000)
        hits = sum(policy.access(int(page)) for page in pages)
        whole = refault.compare(refault.Trace(pages, kind="fd"), name, "200p").rows[0]
        assert hits == whole["hits"], name


def test_what_came_in_is_there_or_was_stolen():
    pages = refault.Trace.workload(SPEC).pages()
    for entry in refault.policies():
        if entry["family"] == "bound":
            continue
        policy = refault.Policy(entry["name"], memory_pages=200, pages=2000)
        for page in pages:
            policy.access(int(page))
        counters = policy.counters()
        came_in = counters["misses"] - counters["bypassed"] + counters["pages_reactivated"]
        assert came_in == len(policy.resident()) + counters["pgsteal"], entry["name"]


class PythonLru(refault.PythonPolicy):
    name = "python-lru"

    def start(self, memory_pages):
        self.order = {}

    def hit(self, page):
        self.order[page] = self.order.pop(page)

    def admit(self, page):
        self.order[page] = None

    def evict(self):
        page = next(iter(self.order))
        del self.order[page]
        return page


def test_a_policy_in_python_stands_beside_the_built_in_ones():
    trace = refault.Trace.workload(SPEC)
    found = misses(refault.compare(trace, ["lru", PythonLru], ["10%", "25%"]))
    sizes = {pages for _, pages in found}
    assert len(sizes) == 2
    assert all(found[("lru", pages)] == found[("python-lru", pages)] for pages in sizes)


def test_a_policy_in_python_that_evicts_what_is_not_there_is_named():
    class Wrong(PythonLru):
        def evict(self):
            return -1

    with pytest.raises(ValueError, match="not resident"):
        refault.compare(loop(), Wrong, "10%")


def test_ctrl_c_ends_a_comparison_at_once():
    # A background job of a shell is born deaf to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    trace = refault.Trace.workload("zipf:theta=1,pages=1000000,accesses=400000000")
    pressed = []

    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(1.0, press)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        refault.compare(trace, "all", "10%,20%,30%,40%,50%")
    # 0.2 s on a quiet machine; what is tested is that it does not wait for the work, which takes minutes.
    waited = time.monotonic() - pressed[0]
    signal.signal(signal.SIGINT, before)
    assert waited < 2


def test_the_interpreter_goes_on_meanwhile():
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.wait(0.01):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    refault.compare(refault.Trace.workload("zipf:theta=1,pages=100000,accesses=5000000"), ["mglru", "lirs"], "50%")
    stop.set()
    thread.join()
    assert len(ticks) > 5


def test_importing_it_is_cheap_and_pulls_in_nothing():
    code = "import sys, refault; print([name for name in ('pandas','polars','pyarrow','dask') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_decoded_trace_is_the_same_and_travels(tmp_path):
    mixed = refault.Trace.workload("mixed:apages=1000,fpages=500,accesses=20000,writes=0.25")
    sized = tmp_path / "sized.csv"
    sized.write_text("object,size\n" + "".join(f"{n * n % 97},{n % 7 * 1000 + 1}\n" for n in range(2000)))
    for trace, bytes_per_access in ((mixed, 8), (refault.Trace(sized), 16)):
        decoded = trace.decode()
        assert sys.getsizeof(decoded) >= decoded.counts()["accesses"] * bytes_per_access
        expected = refault.compare(trace, ["lru", "mglru"], "20%")
        for same in (decoded, pickle.loads(pickle.dumps(decoded)), pickle.loads(pickle.dumps(trace))):
            assert same.name == trace.name
            found = refault.compare(same, ["lru", "mglru"], "20%")
            times = ("wall_seconds", "accesses_per_second")
            plain = [
                [{key: value for key, value in row.items() if key not in times} for row in result.rows]
                for result in (found, expected)
            ]
            assert plain[0] == plain[1] and found.verdict == expected.verdict


def test_bytes_that_are_no_trace_are_refused():
    restore, (name, data, remarks) = refault.Trace(np.arange(3, dtype=np.uint64)).__reduce__()
    for wrong in (b"", data[:-1], data[:9], b"\x02" + data[1:], data[:9] + b"\xff" * 24, data[:1] + b"\xff" * 8 + data[9:]):
        with pytest.raises(ValueError, match="not a decoded trace"):
            restore(name, wrong, remarks)


def test_what_was_left_out_is_said_once_for_each_trace(tmp_path):
    path = tmp_path / "deletions.csv"
    path.write_text("page,op\n1,r\n2,delete\n1,r\n")
    said = "deletions: 1 deletion is left out: it is no access"
    for first in (
        lambda trace: trace.counts(),
        lambda trace: trace.pages(),
        lambda trace: trace.decode(),
        lambda trace: refault.compare(trace, ["lru"], "50%"),
        lambda trace: refault.compare(trace, PythonLru(), "50%"),
        lambda trace: refault.mrc(trace),
        lambda trace: refault.mrc(trace, "clock", sample=1.0),
    ):
        trace = refault.Trace(path)
        with pytest.warns(refault.TraceWarning) as warned:
            first(trace)
        assert [str(warning.message) for warning in warned] == [said] and warned[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trace.counts()
            decoded = trace.decode()
        for same in (trace, decoded, pickle.loads(pickle.dumps(trace)), pickle.loads(pickle.dumps(decoded))):
            assert [f"{same.name}: {remark}" for remark in same.remarks()] == [said]
    assert refault.Trace.workload(SPEC).remarks() == loop().remarks() == []
    with pytest.raises(ValueError, match="1 deletion"):
        refault.Trace(path, strict=True).counts()


def test_columns_are_named_as_for_the_command(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("when,what\n2000,7\n1000,9\n3000,7\n")
    named = {"page": "what", "time_us": "when", "operation": ""}
    with pytest.warns(refault.TraceWarning, match="times that go back, by up to 0.001 s, and are put in order"):
        assert refault.Trace(path, columns=named).pages().tolist() == [9, 7, 7]
    with pytest.warns(refault.TraceWarning):
        assert refault.Trace(path, columns=named, file_order=True).pages().tolist() == [7, 9, 7]
    with pytest.raises(ValueError, match="columns are page, address, "):
        refault.Trace(path, columns={"pages": "what"})
    with pytest.raises(ValueError, match="columns and strict: only for files"):
        refault.Trace([1, 2], columns=named, strict=True)
