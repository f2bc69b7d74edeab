"""Linux-grade page reclaim for Python.

Three things, each usable alone:

* the lab: :func:`compare` policies over :class:`Trace`\\ s, draw miss-ratio curves with :func:`mrc`, look at one
  :class:`Policy` step by step, run a simulated machine (:func:`scenario`) or a published experiment
  (:func:`reproduce`);
* arrays that page themselves: :func:`zeros`, :func:`array_like`, :func:`from_file`, and :func:`budget`, which puts
  NumPy's own allocations under one;
* cached files: :func:`refault.open`, which ``from refault import *`` leaves out, and an fsspec file system in :mod:`refault.fs`.

Sizes are texts as on the command line (``"25%"`` of a trace's distinct pages, ``"4096p"`` pages of 4 KiB, ``"64M"``)
or whole numbers of bytes. Figures are those of the command ``refault``, made by the same code.

>>> import numpy as np, refault
>>> loop = np.tile(np.arange(100, dtype=np.uint64), 10)
>>> result = refault.compare(refault.Trace(loop, name="loop"), ["lru", "opt"], "50%")
>>> [(row["policy"], row["misses"]) for row in result.rows]
[('lru', 1000), ('opt', 550)]
"""

from ._refault import VERSION as __version__
from .arrays import Budget, array_like, budget, empty, from_file, full, pinned, prefetch, zeros
from .estimate import Estimator
from .files import Cache, CachedFile
from .files import open as open
from .lab import Policy, PythonPolicy, compare, mrc, policies
from .results import Comparison, Curves
from .simulated import Reproduction, Scenario, example_scenario, experiments, reproduce, scenario
from .sweep import sweep, sweep_mrc
from .traces import Trace, TraceWarning

__all__ = [
    "Budget",
    "Cache",
    "CachedFile",
    "Comparison",
    "Curves",
    "Estimator",
    "Policy",
    "PythonPolicy",
    "Reproduction",
    "Scenario",
    "Trace",
    "TraceWarning",
    "__version__",
    "array_like",
    "budget",
    "compare",
    "empty",
    "example_scenario",
    "experiments",
    "from_file",
    "full",
    "mrc",
    "pinned",
    "policies",
    "prefetch",
    "reproduce",
    "scenario",
    "sweep",
    "sweep_mrc",
    "zeros",
]
