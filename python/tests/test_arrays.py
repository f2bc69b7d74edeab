"""Arrays that page themselves."""

import errno
import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import refault

BUDGET = 4 << 20


@pytest.fixture
def budget():
    try:
        return refault.Budget(BUDGET)
    except OSError as error:
        if os.environ.get("REFAULT_REQUIRE"):
            raise
        pytest.skip(str(error))


def test_an_array_larger_than_its_budget_holds_what_was_written(budget):
    array = refault.zeros((3000, 1000), np.int64, budget=budget)
    assert isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable
    array[...] = np.arange(array.size).reshape(array.shape)
    assert array.nbytes > 5 * BUDGET
    stats = budget.stats()
    assert stats["resident_bytes"] <= BUDGET and stats["stored"] > 0
    assert (array.sum(axis=1) == np.arange(array.size).reshape(array.shape).sum(axis=1)).all()
    assert budget.stats()["faults"] > 0


def test_who_reads_a_file_as_an_array_is_no_writer_of_it(budget, tmp_path):
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    array = refault.from_file(program, budget=budget)
    assert subprocess.run([program]).returncode == 0, "what others may write to cannot be run"
    assert array[:4].tobytes() == b"\x7fELF"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        refault.from_file(tmp_path / "pipe", budget=budget)


def test_memory_is_given_back_with_the_last_view(budget):
    array = refault.full((1 << 20,), 7, budget=budget)
    view = array[10:20].reshape(2, 5)
    del array
    gc.collect()
    assert (view == 7).all() and budget.stats()["resident_bytes"] > 0
    del view
    gc.collect()
    assert budget.stats()["resident_bytes"] == 0


def test_several_arrays_share_a_budget_that_can_change(budget):
    arrays = [refault.full(1 << 18, value, np.int64, budget=budget) for value in range(8)]
    budget.resize("1M")
    assert budget.size == 1 << 20 and budget.stats()["resident_bytes"] <= 1 << 20
    assert [int(array.sum()) for array in arrays] == [value << 18 for value in range(8)]


def test_a_file_as_an_array_is_not_changed(tmp_path, budget):
    path = tmp_path / "numbers"
    numbers = np.arange(2_000_000)
    numbers.tofile(path)
    array = refault.from_file(path, np.int64, (1000, 2000), budget=budget)
    assert (array.ravel() == numbers).all()
    array[0, 0] = -1
    assert np.fromfile(path, np.int64)[0] == 0
    path.write_bytes(b"12345")
    with pytest.raises(ValueError, match="whole number"):
        refault.from_file(path, np.int64, budget=budget)


def test_unmodified_code_allocates_in_the_budget(budget):
    with refault.budget(budget) as shared:
        squares = np.arange(3_000_000) ** 2
        inside = shared.stats()
        assert inside["resident_bytes"] > BUDGET // 2 and inside["stored"] > 1000
        small = np.arange(10)
    before = budget.stats()
    outside = np.arange(3_000_000)
    assert budget.stats()["first_touches"] == before["first_touches"]  # what is made outside lies outside
    assert (squares == outside**2).all() and small.sum() == 45
    squares.resize(4_000_000, refcheck=False)
    assert squares[2_999_999] == 2_999_999**2 and squares[-1] == 0
    del squares
    gc.collect()
    assert budget.stats()["resident_bytes"] < 1 << 20


def test_pandas_and_sorting_work_on_it(budget):
    import pandas

    random = np.random.default_rng(1)
    keys = refault.array_like(random.integers(0, 1000, 1_000_000), budget=budget)
    values = refault.array_like(random.random(1_000_000), budget=budget)
    frame = pandas.DataFrame({"key": keys, "value": values}, copy=False)
    expected = pandas.DataFrame({"key": np.array(keys), "value": np.array(values)}).groupby("key")["value"].sum()
    assert frame.groupby("key")["value"].sum().equals(expected)
    keys.sort()
    assert (np.diff(keys) >= 0).all()


def test_pickling_copies(budget):
    array = refault.full(100_000, 3, budget=budget)
    copy = pickle.loads(pickle.dumps(array))
    copy[0] = 4
    assert array[0] == 3 and (copy[1:] == 3).all()


def child(array, total, queue):
    array[0] = -1
    queue.put(int(array[1:].sum()) == total)


def test_a_forked_child_has_the_arrays_as_they_were(budget):
    array = refault.full(2_000_000, 5, np.int64, budget=budget)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(array, 5 * (array.size - 1), queue))
    process.start()
    assert queue.get(timeout=60) is True
    process.join(60)
    assert process.exitcode == 0 and (array == 5).all()


def test_a_forked_child_has_arrays_whose_budgets_nobody_else_has(budget):
    first, second = refault.full(2_000_000, 7, np.int64, budget="4M"), refault.full(2_000_000, 8, np.int64, budget="4M")
    gc.collect()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            right = bool((first == 7).all() and (second == 8).all())
            first[:] = 1
            os._exit(0 if right and (first == 1).all() else 3)
        assert os.waitpid(child, 0)[1] == 0
    assert (first == 7).all() and (second == 8).all()


def test_direct_reads_into_pinned_parts_are_whole(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(np.random.default_rng(1).bytes(8 << 20))
    wanted = np.fromfile(path, np.uint8)
    budget = refault.Budget("4M")
    array = refault.full(wanted.size, 1, np.uint8, budget=budget)
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        pytest.skip(f"no direct I/O in {tmp_path}: {error}")
    piece = 1 << 20
    for at in range(0, wanted.size, piece):
        part = array[at : at + piece]
        # Pins overlap: the page in the middle stays until both are gone.
        with refault.pinned(part), refault.pinned(part[: piece // 2 + 1]):
            assert os.preadv(file, [part], at) == piece
    os.close(file)
    assert (array == wanted).all()
    # Nothing is pinned any more, so that as much can be again.
    for _ in range(3):
        with refault.pinned(array[: 3 << 20]):
            pass


def test_more_addresses_than_there_can_be_are_refused():
    with pytest.raises(ValueError, match="16 TiB at most"):
        refault.Budget("4M", address_space="64T")


def test_what_cannot_be_pinned_is_refused(budget):
    small = refault.Budget("1M")
    array = refault.zeros(4 << 20, np.uint8, budget=small)
    with pytest.raises(RuntimeError, match="pinned than the budget"), refault.pinned(array):
        pass
    with refault.pinned(array[: 1 << 19]):
        pass
    with pytest.raises(ValueError, match="not one of refault's"), refault.pinned(np.zeros(10)):
        pass


def test_a_file_that_gets_shorter_ends_who_reads_what_is_gone(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"A" * (1 << 20))
    code = f"""
import os, numpy as np, refault
array = refault.from_file({str(path)!r}, budget="1M")
os.truncate({str(path)!r}, 4196)
assert (array[:4196] == 65).all() and not array[4196:8192].any()
print("the rest", flush=True)
print(array[1 << 19])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (-signal.SIGBUS, "the rest\n"), ran
    assert "made shorter" in ran.stderr


def test_prefetch(budget):
    array = refault.full(1 << 17, 1, np.int64, budget=budget)
    assert refault.prefetch(array) == array.nbytes
    with pytest.raises(ValueError, match="not one of refault"):
        refault.prefetch(np.zeros(10))


def test_wrong_requests_are_refused_in_words(budget):
    with pytest.raises(ValueError, match="Python objects"):
        refault.zeros(10, object, budget=budget)
    with pytest.raises(ValueError, match="negative"):
        refault.zeros(-1, budget=budget)
    with pytest.raises(ValueError, match="is not a size"):
        refault.Budget("lots")
    for wrong in (0, -1, 2**70):
        with pytest.raises(ValueError, match="at least a page"):
            refault.Budget(wrong)
    with pytest.raises(TypeError, match="number of bytes or a text"):
        refault.zeros(3, budget=None)
    with pytest.raises(ValueError, match="accesses to mapped memory"):
        refault.Budget("4M", policy="lru")
    for huge in (1 << 45, (1 << 40, 1 << 40), (1 << 62,) * 3):
        with pytest.raises(MemoryError, match="at most 16 TiB"):
            refault.zeros(huge, np.uint8, budget=budget)
    with pytest.raises(MemoryError, match="larger address_space"):
        refault.zeros(1 << 37, np.uint8, budget=budget)
    for wrong in (float("nan"), 2.5, (2.5, 3), "3", None):
        with pytest.raises(TypeError, match="a shape is a whole number or a sequence of them"):
            refault.zeros(wrong, budget=budget)
    for empty in ("S0", "U0", "V0"):
        with pytest.raises(ValueError, match="have no bytes: say how many"):
            refault.zeros(3, empty, budget=budget)


def test_an_array_with_a_budget_of_its_own_may_be_larger_than_what_budgets_have_otherwise(
    budget, monkeypatch
):
    monkeypatch.setattr(refault.arrays, "ADDRESS_SPACE", 1 << 24)
    array = refault.zeros(1 << 25, np.uint8, budget=BUDGET)
    array[-1] = 1
    assert array[-1] == 1 and array[1 << 24] == 0
    assert refault.zeros(1 << 25, np.uint8, budget=refault.Budget(BUDGET, address_space="64M")).sum() == 0


def test_files_that_make_no_array_are_refused_in_words(tmp_path, budget):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(1001))
    with pytest.raises(ValueError, match="not a whole number of elements of 8 bytes"):
        refault.from_file(path, float, budget=budget)
    with pytest.raises(ValueError, match=r"bytes: 1001 elements do not make the shape \(3, 3\)"):
        refault.from_file(path, shape=(3, 3), budget=budget)
    with pytest.raises(ValueError, match="have no bytes"):
        refault.from_file(path, "S0", budget=budget)
    with pytest.raises(ValueError, match="Python objects"):
        refault.from_file(path, object, budget=budget)
    with pytest.raises(TypeError, match="a shape is"):
        refault.from_file(path, shape=2.5, budget=budget)
    assert refault.from_file(path, shape=(7, -1), budget=budget).shape == (7, 143)
    with pytest.raises(FileNotFoundError) as missing:
        refault.from_file(tmp_path / "none", budget=budget)
    assert (missing.value.strerror, missing.value.filename) == (os.strerror(2), str(tmp_path / "none"))
    assert str(missing.value).count(os.strerror(2)) == 1 and "os error" not in str(missing.value)
    (tmp_path / "empty").touch()
    assert refault.from_file(tmp_path / "empty", budget=budget).size == 0
    # Its contents are made while they are read.
    with pytest.raises(OSError, match="said to be 0, but it has contents: copy them") as made:
        refault.from_file("/proc/cpuinfo", budget=budget)
    assert (made.value.errno, made.value.filename) == (errno.EINVAL, "/proc/cpuinfo")
    # The first touch of a directory's pages ended the interpreter.
    with pytest.raises(IsADirectoryError):
        refault.from_file(tmp_path, budget=budget)
    with pytest.raises(OSError, match="not a regular file"):
        refault.from_file("/dev/zero", budget=budget)


def test_a_budget_can_count_what_is_compressed(budget):
    total = refault.Budget(BUDGET, count_stored=True)
    array = refault.zeros(BUDGET * 3 // 2 // 8, np.int64, budget=total)
    array[::2] = np.random.default_rng(1).integers(0, 1000, array.size // 2)  # a third or so when compressed
    stats = total.stats()
    assert stats["budget_bytes"] == total.size == BUDGET and stats["compressed_bytes"] > BUDGET // 8
    assert stats["resident_bytes"] + stats["compressed_bytes"] <= BUDGET + BUDGET // 16
    assert int(array.max()) == 999


#: Ends the program with a traceback if it hangs, and begins with what all of the programs below need.
WATCHED = """
import faulthandler, os, threading
faulthandler.dump_traceback_later(60, exit=True)
import numpy as np, refault
"""

#: Programs in which a thread uses arrays while another forks; each ends with status 0 if all children were right.
FORKS = {
    "a thread touches an array": """
array = refault.full(1_000_000, 1.0, budget="1M")
def work():
    at = 0
    while True:
        at = (at + 4096 * 7 + 13) % len(array)
        array[at] += 1
threading.Thread(target=work, daemon=True).start()
for _ in range(100):
    if (child := os.fork()) == 0:
        os._exit(0 if (array >= 1).all() else 3)
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
""",
    "a thread makes arrays with budgets of their own": """
kept = refault.full(100_000, 1.0, budget="1M")
def work():
    while True:
        refault.full(100_000, 1.0, budget="1M")
threading.Thread(target=work, daemon=True).start()
for _ in range(50):
    if (child := os.fork()) == 0:
        os._exit(0 if (kept == 1).all() else 3)
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
""",
    "a pool is made while a thread works": """
import multiprocessing
budget = refault.Budget("4M")
array = refault.full(1_000_000, 1.0, budget=budget)
def work():
    while True:
        copy = refault.array_like(array, budget=budget)
        copy += 1
threading.Thread(target=work, daemon=True).start()
def total(part):
    return float(array[part * 1000 : part * 1000 + 1000].sum())
for _ in range(5):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(total, range(4)) == [1000.0] * 4
os._exit(0)
""",
    "threads allocate in a routed budget": """
stop = False
def work():
    with refault.budget("2M"):
        while not stop:
            doubled = np.ones(400_000) * 2
            np.sort(doubled)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
budget = refault.Budget("1M")
array = refault.full(300_000, 2.0, budget=budget)
for _ in range(20):
    if (child := os.fork()) == 0:
        copy = refault.zeros(300_000, budget=budget)
        copy[:] = array
        with refault.budget("1M"):
            ones = np.ones(300_000)
        os._exit(0 if copy.sum() == 600_000 and ones.sum() == 300_000 else 3)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads: thread.join()
""",
    "a command is run with something to do before it, and a child forks": """
import subprocess
array = refault.full(1_000_000, 1.0, budget="1M")
def work():
    at = 0
    while True:
        at = (at + 28685) % len(array)
        array[at] += 1
threading.Thread(target=work, daemon=True).start()
for _ in range(20):
    subprocess.run(["true"], check=True, preexec_fn=lambda: None)
    if (child := os.fork()) == 0:
        if (grandchild := os.fork()) == 0:
            os._exit(0 if (array >= 1).all() else 3)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
""",
}


@pytest.mark.parametrize("what", FORKS)
def test_forks_while_other_threads_use_arrays(budget, what):
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", WATCHED + FORKS[what]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_budgets_that_are_left_out_of_order_leave_no_routing_behind(budget):
    other = refault.Budget(BUDGET)

    def who():
        before = budget.stats()["first_touches"], other.stats()["first_touches"]
        kept = np.ones(1 << 18)
        after = budget.stats()["first_touches"], other.stats()["first_touches"]
        del kept
        return after[0] > before[0], after[1] > before[1]

    first, second, third = refault.budget(budget), refault.budget(other), refault.budget(budget)
    assert who() == (False, False)
    first.__enter__()
    second.__enter__()
    assert who() == (False, True)
    first.__exit__(None, None, None)
    assert who() == (False, True), "the one that is not over has them"
    third.__enter__()
    assert who() == (True, False)
    third.__exit__(None, None, None)
    assert who() == (False, True)
    second.__exit__(None, None, None)
    assert who() == (False, False)
    with refault.budget(budget), refault.budget(other):
        assert who() == (False, True)
    assert who() == (False, False)
