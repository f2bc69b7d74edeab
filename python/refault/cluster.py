"""What ``refault compare --dask ADDRESS`` hands its sweep to.

The request comes as one JSON text on standard input; the answer goes to standard output: ``runs`` as
``refault compare --format json`` has them and ``remarks``, or a sentence under ``missing`` (a package), ``refused`` (the
request) or ``failed`` (the work). Everything else that is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

from . import _refault
from .sources import Source
from .sweep import sweep
from .traces import TraceWarning

#: Seconds until a scheduler that does not answer is given up.
PATIENCE = 10


def main() -> None:
    """Answers one request."""
    answer_to = os.dup(1)
    os.dup2(2, 1)  # What libraries print must not stand in the answer.
    request = json.loads(sys.stdin.buffer.read())
    try:
        answer = answered(request)
    except ImportError as error:
        answer = {"missing": str(error)}
    except ValueError as error:
        answer = {"refused": str(error)}
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # Whatever a cluster may say is told in a sentence.
        answer = {"failed": f"{type(error).__name__}: {error}"}
    with open(answer_to, "w", encoding="utf-8") as out:
        json.dump(answer, out)


def answered(request: dict[str, Any]) -> dict[str, Any]:
    """The runs that a request asks for."""
    import distributed

    if request["version"] != _refault.VERSION:
        raise ValueError(
            f"the Python package is refault {_refault.VERSION}, the command {request['version']}: install the same"
        )
    try:
        client: Any = distributed.Client(request["address"], timeout=PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers: {request['address']}: {error or 'start one, or name it'}") from error
    with client, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", TraceWarning)
        found = sweep(
            [source_of(trace) for trace in request["traces"]],
            request["policies"],
            request["memory"],
            client=client,
            swap=request["swap"],
            warm_up=request["warm_up"],
        )
    for other in told:
        if not issubclass(other.category, TraceWarning):
            warnings.showwarning(other.message, other.category, other.filename, other.lineno)
    remarks = [str(warning.message) for warning in told if issubclass(warning.category, TraceWarning)]
    return {"runs": found.rows, "remarks": remarks}


def source_of(trace: dict[str, Any]) -> Source:
    """A trace of the request as tasks have it."""
    return ("workload" if "workload" in trace else "file"), trace
