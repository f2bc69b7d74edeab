"""What the lab found, in the forms that people work with."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import _refault

Row = dict[str, Any]

#: The columns that :meth:`Comparison._repr_html_` and ``repr`` show; all others are in :attr:`Comparison.rows`.
SHOWN = ("trace", "policy", "memory_pages", "misses", "miss_ratio")


class Table:
    """A result that is rows of named values, in the forms that tables have."""

    if TYPE_CHECKING:

        @property
        def rows(self) -> list[Row]: ...

    def columns(self) -> dict[str, list[Any]]:
        """Column by column; a row without a field has None there."""
        return _columns(self.rows)

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``."""
        import pandas

        return pandas.DataFrame(self.columns())

    def to_polars(self) -> Any:
        """A ``polars.DataFrame``."""
        import polars

        return polars.DataFrame(self.columns())

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``."""
        import pyarrow

        return pyarrow.table(self.columns())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's C stream interface, by pyarrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class Comparison(Table):
    """Runs as rows, one per trace, policy and size, with the fields of ``refault compare --format json``.

    Attributes
    ----------
    rows : list of dict
        ``trace``, ``policy``, ``memory_pages`` (4 KiB each), ``accesses``, ``distinct_pages``, ``hits``, ``misses``,
        ``miss_ratio`` (0 to 1), the policy's counters, ``wall_seconds``, ``accesses_per_second``.
    verdict : dict or None
        The best policy at each size that does not know the future, and over several traces each policy's mean reduction
        of misses against the baseline, its worst case and its mean rank.
    """

    def __init__(
        self, rows: Iterable[Row], verdict: dict[str, Any] | None = None, *, baseline: str | None = None
    ) -> None:
        self._rows = list(rows)
        self._verdict = verdict
        self._baseline = baseline

    @property
    def verdict(self) -> dict[str, Any] | None:
        """See the class. Of a sweep it is found when it is asked for: it costs a pass over all rows."""
        if self._verdict is None and self._baseline is not None:
            self._verdict = json.loads(_refault.judge_runs(json.dumps({"runs": self.rows}), self._baseline))
        return self._verdict

    @property
    def rows(self) -> list[Row]:
        """A row per trace, policy and size, in the order asked for."""
        return self._rows

    def __len__(self) -> int:
        return len(self.rows)

    def to_json(self) -> str:
        """The text of ``refault compare --format json``."""
        return json.dumps({"runs": self.rows, "verdict": self.verdict})

    def plot(self, ax: Any = None) -> Any:
        """Miss ratio against memory, a line per policy, drawn by matplotlib; one picture per trace. Returns the axes, or a
        list of them if there are several traces."""
        return _plot(
            [
                (trace, [(policy, *_points(runs)) for policy, runs in _groups(rows, "policy").items()])
                for trace, rows in _groups(self.rows, "trace").items()
            ],
            ax,
        )

    def __repr__(self) -> str:
        return _text(self.rows)

    def _repr_html_(self) -> str:
        return _table(self.rows) + _picture(self)


class Curves(Table):
    """Miss-ratio curves.

    Attributes
    ----------
    traces : list of dict
        ``trace``, ``accesses``, ``distinct_pages``, ``sampled`` (the share of the pages, or None), and ``curves``: each with
        ``policy``, ``exact``, ``knee_pages``, ``memory_pages``, ``miss_ratio`` and ``standard_error``.
    """

    def __init__(self, traces: Sequence[dict[str, Any]]) -> None:
        self.traces = list(traces)

    @property
    def rows(self) -> list[Row]:
        """A row per point: ``trace``, ``policy``, ``memory_pages``, ``miss_ratio``, ``standard_error``."""
        return [
            {
                "trace": trace["trace"],
                "policy": curve["policy"],
                "memory_pages": pages,
                "miss_ratio": ratio,
                "standard_error": error,
            }
            for trace in self.traces
            for curve in trace["curves"]
            for pages, ratio, error in zip(
                curve["memory_pages"], curve["miss_ratio"], curve["standard_error"], strict=True
            )
        ]

    def at(self, memory_pages: int, policy: str = "lru", trace: str | None = None) -> float:
        """The miss ratio with ``memory_pages``: that of the largest known size not above it; 1 below the smallest."""
        if not memory_pages >= 0:
            raise ValueError(f"memory is 0 pages or more; not {memory_pages}")
        ratio = 1.0
        curve = self._curve(policy, trace)
        for pages, known in zip(curve["memory_pages"], curve["miss_ratio"], strict=True):
            if pages > memory_pages:
                break
            ratio = known
        return ratio

    def memory_for(self, miss_ratio: float, policy: str = "lru", trace: str | None = None) -> int | None:
        """The smallest known size in pages from which on no more than this share of the accesses misses; None: there is
        none."""
        if not 0 <= miss_ratio <= 1:
            raise ValueError(f"a miss ratio is from 0 to 1; not {miss_ratio}")
        found = None
        curve = self._curve(policy, trace)
        for pages, known in zip(reversed(curve["memory_pages"]), reversed(curve["miss_ratio"]), strict=True):
            if known > miss_ratio:
                break
            found = int(pages)
        return found

    def _curve(self, policy: str, trace: str | None) -> dict[str, Any]:
        for known in self.traces:
            if trace is None or known["trace"] == trace:
                for curve in known["curves"]:
                    if curve["policy"] == policy:
                        return dict(curve)
        raise KeyError(f"no curve of {policy!r}" + ("" if trace is None else f" on {trace!r}"))

    def plot(self, ax: Any = None) -> Any:
        """Miss ratio against memory, drawn by matplotlib; one picture per trace. Returns the axes, or a list of them."""
        return _plot(
            [
                (
                    trace["trace"],
                    [
                        # To the right end, where all pages fit.
                        (
                            curve["policy"],
                            [*curve["memory_pages"], trace["distinct_pages"]],
                            [*curve["miss_ratio"], curve["miss_ratio"][-1]],
                        )
                        for curve in trace["curves"]
                    ],
                )
                for trace in self.traces
            ],
            ax,
            steps=True,
        )

    def __repr__(self) -> str:
        names = ", ".join(f"{curve['policy']} on {trace['trace']}" for trace in self.traces for curve in trace["curves"])
        return f"Curves({names})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>" + _picture(self)


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return {name: [row.get(name) for row in rows] for name in names}


def _groups(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def _points(runs: Sequence[Row]) -> tuple[list[int], list[float]]:
    ordered = sorted(runs, key=lambda run: run["memory_pages"])
    return [run["memory_pages"] for run in ordered], [run["miss_ratio"] for run in ordered]


def _plot(
    traces: Sequence[tuple[str, Sequence[tuple[str, Sequence[int], Sequence[float]]]]], ax: Any, steps: bool = False
) -> Any:
    import matplotlib.pyplot as plt

    if ax is None:
        _, grid = plt.subplots(len(traces), 1, squeeze=False, figsize=(7, 4 * len(traces)), layout="constrained")
        axes = [row[0] for row in grid]
    else:
        axes = list(ax) if isinstance(ax, Sequence) else [ax]
    if len(axes) != len(traces):
        raise ValueError(f"{len(traces)} traces need {len(traces)} axes, not {len(axes)}")
    for axis, (trace, lines) in zip(axes, traces, strict=True):
        for policy, pages, ratios in lines:
            mebibytes = [count * 4096 / 2**20 for count in pages]
            style = "steps-post" if steps else "default"
            marker = "." if len(pages) < 50 and not steps else None
            axis.plot(mebibytes, [100 * ratio for ratio in ratios], marker=marker, drawstyle=style, label=policy)
        axis.set_title(trace)
        axis.set_xlabel("memory, MiB")
        axis.set_ylabel("misses, % of accesses")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize="small", ncols=2 if len(lines) > 8 else 1)
    return axes[0] if len(axes) == 1 else axes


def _picture(result: Any) -> str:
    """The plot as SVG, or nothing if matplotlib is not installed."""
    try:
        import io

        import matplotlib.pyplot as plt
    except ImportError:
        return ""
    axes = result.plot()
    figure = (axes[0] if isinstance(axes, list) else axes).figure
    out = io.StringIO()
    figure.savefig(out, format="svg")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _text(rows: Sequence[Row]) -> str:
    lines = [list(SHOWN)] + [[_cell(row.get(name)) for name in SHOWN] for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(SHOWN))]
    left = (True, True, False, False, False)
    return "\n".join(
        "  ".join(cell.ljust(width) if first else cell.rjust(width) for cell, width, first in zip(line, widths, left))
        for line in lines
    )


def _table(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{name}</th>" for name in SHOWN)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(row.get(name)))}</td>" for name in SHOWN) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
