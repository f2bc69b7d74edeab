"""Ctrl-C: a real SIGINT to a process of its own ends each long call."""

import signal
import subprocess
import sys
import time

import pytest

#: What the interpreter itself takes to be asked, wake and print, on a machine that does other work too.
MAX_SECONDS = 0.2
TRIES = 5

CALLS = {
    "compare": "refault.compare(TRACE, 'all', '10%,20%,30%')",
    "mrc": "refault.mrc(TRACE, ['lru', 'arc', 'mglru'])",
    "counts": "TRACE.counts()",
    "sweep": "refault.sweep(['zipf:theta=1,pages=1000000,accesses=400000000'], 'lru', '10%')",
    "scenario": "refault.scenario(refault.example_scenario().replace('accesses=1000000', 'accesses=4000000000'))",
    "reproduce": "refault.reproduce('mglru-v1', full=True)",
    "a store that does not answer": "open_slow().read()",
    "views of it": "open_slow().views(0, 4096)",
    "python policy": "refault.compare(np.tile(np.arange(1000), 20000), Fifo, '50%')",
}

PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np, refault
TRACE = refault.Trace.workload('zipf:theta=1,pages=1000000,accesses=400000000')
class Fifo(refault.PythonPolicy):
    def start(self, memory_pages): self.order = {{}}
    def admit(self, page): self.order[page] = None
    def evict(self):
        page = next(iter(self.order))
        del self.order[page]
        return page
def open_slow():
    import fsspec
    behind = fsspec.filesystem('memory')
    behind.pipe_file('/slow', b'x' * 10000)
    behind.cat_file = lambda path, start=None, end=None: time.sleep(60) or b''
    return fsspec.open('refault::memory://slow', refault={{'memory': '1M'}}).open()
print('begins', flush=True)
try:
    {call}
    print('ended by itself', flush=True)
except KeyboardInterrupt:
    print('interrupted', time.monotonic(), flush=True)
    import os
    os._exit(0)
"""


def seconds_until_it_hears(call):
    program = subprocess.Popen([sys.executable, "-c", PROGRAM.format(call=call)], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "begins\n"
        time.sleep(0.7)
        pressed = time.monotonic()
        program.send_signal(signal.SIGINT)
        words = program.stdout.readline().split()
        assert words and words[0] == "interrupted", words
        return float(words[1]) - pressed
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_it_within_a_fifth_of_a_second(name):
    # The best of some tries: other work on the machine may keep the interpreter from running at all.
    taken = []
    for _ in range(TRIES):
        taken.append(seconds_until_it_hears(CALLS[name]))
        if taken[-1] <= MAX_SECONDS:
            return
    raise AssertionError(f"{name}: {taken} s")
