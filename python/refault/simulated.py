"""Simulated machines described in files, and published experiments run again.

What comes out is what ``refault scenario`` and ``refault reproduce`` print as JSON, made by the same code. Cost: one thread
per scenario, one per core for an experiment; a scenario of some simulated seconds takes about as many real ones.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from . import _refault
from .lab import _bar, _sizes
from .results import Row, Table, _cell, _picture

#: The columns that ``_repr_html_`` shows of tasks, and of an experiment's figures; all others are in the rows.
SHOWN_OF_TASKS = tuple(
    "policy memory_bytes run name tasks operations_per_second latency_p50_ns latency_p99_ns major_faults stalled_ns".split()
)
SHOWN_OF_FIGURES = tuple(
    "name metric unit published_before published_after published_ratio ours_before ours_after ours_ratio spread null_ratio "
    "judgement".split()
)


class Scenario(Table):
    """Runs of a simulated machine.

    Attributes
    ----------
    runs : list of dict
        As ``refault scenario --format json``: ``policy``, ``memory_bytes``, ``run`` (from 1; the seed), ``end``
        (``"finished"``, ``"duration"`` or ``"out_of_memory"``), every counter, and ``groups``, ``tasks``, ``task_sets``,
        ``events``, ``kills``, ``lruvecs``, ``listings``.
    pictures : list of dict
        Counters over simulated time, for each policy and size those of the first seed: ``policy``, ``memory`` and
        ``charts``. Empty unless the scenario has ``sample = "…"``.
    """

    def __init__(self, runs: Iterable[dict[str, Any]], pictures: Iterable[dict[str, Any]] = ()) -> None:
        self.runs = list(runs)
        self.pictures = list(pictures)

    @property
    def rows(self) -> list[Row]:
        """A row per run: everything in :attr:`runs` that is one number or word."""
        return [
            {name: value for name, value in run.items() if not isinstance(value, (dict, list))} for run in self.runs
        ]

    @property
    def tasks(self) -> list[Row]:
        """A row per run and set of alike tasks: ``name``, ``tasks``, ``operations_per_second``, latencies in ns."""
        return [
            {**{name: run[name] for name in ("policy", "memory_bytes", "run")}, **_flat(tasks)}
            for run in self.runs
            for tasks in run["task_sets"]
        ]

    def to_json(self) -> str:
        """The text of ``refault scenario --format json``."""
        return json.dumps({"runs": self.runs})

    def plot(self, axes: Any = None) -> Any:
        """The report's pictures, drawn by matplotlib: counters over simulated time. Returns the list of axes.

        Raises ValueError if nothing was sampled.
        """
        charts = [
            {**chart, "title": f"{picture['policy']}, {picture['memory']}: {chart['title']}"}
            for picture in self.pictures
            for chart in picture["charts"]
        ]
        if not charts:
            raise ValueError('nothing is sampled over time: add sample = "1s" to [machine]')
        return _draw(charts, axes)

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return "\n".join(
            f"{run['policy']}, {run['memory_bytes'] / 2**20:,.0f} MiB, run {run['run']}: {run['end']}; "
            + "; ".join(f"{tasks['name']} {tasks['operations_per_second']:,.0f} operations/s" for tasks in run["task_sets"])
            for run in self.runs
        )

    def _repr_html_(self) -> str:
        return _html_table(SHOWN_OF_TASKS, self.tasks) + (_picture(self) if self.pictures else "")


class Reproduction(Table):
    """A published experiment, run again.

    Attributes
    ----------
    experiment, about : str
        Its name, and what it is about.
    seed : int
        The first of the seeds.
    scale : float
        Simulated size over published size.
    figures : list of dict
        As ``rows`` of ``refault reproduce --format json``: ``name``, ``metric``, ``unit``; ``published``, ``ours`` and
        ``null``, each with ``before``, ``after`` and ``ratio``; ``spread``, ``agrees``, ``judgement``.
    verdict : str
        Whether direction and size agree, in sentences.
    remarks : list of str
        Inputs that differ from the published ones.
    charts : list of dict
        Pictures: ``title``, ``x_axis``, ``y_axis``, ``stacked``, and ``series`` of ``name`` and ``points``.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        self.experiment = str(found["experiment"])
        self.about = str(found["about"])
        self.seed = int(found["seed"])
        self.scale = float(found["scale"])
        self.figures: list[dict[str, Any]] = list(found["rows"])
        self.verdict = str(found["verdict"])
        self.remarks = [str(remark) for remark in found["remarks"]]
        self.charts: list[dict[str, Any]] = list(found["charts"])

    @property
    def rows(self) -> list[Row]:
        """A row per figure; ``published``, ``ours`` and ``null`` as columns of their own, such as ``ours_ratio``."""
        return [_flat(figure) for figure in self.figures]

    def to_json(self) -> str:
        """The text of ``refault reproduce --format json``."""
        head = {"experiment": self.experiment, "seed": self.seed, "scale": self.scale}
        return json.dumps({**head, "rows": self.figures})

    def plot(self, axes: Any = None) -> Any:
        """The report's pictures, drawn by matplotlib. Returns the list of axes."""
        if not self.charts:
            raise ValueError(f"{self.experiment} has no pictures")
        return _draw(self.charts, axes)

    def __len__(self) -> int:
        return len(self.figures)

    def __repr__(self) -> str:
        lines = [f"{self.experiment}: scale {self.scale:.4g}, first seed {self.seed}"]
        for row in self.rows:
            ratios = ", ".join(
                f"{words} {'–' if row[name] is None else format(row[name], '.3g')}"
                for words, name in (("published", "published_ratio"), ("ours", "ours_ratio"), ("null", "null_ratio"))
            )
            lines.append(f"{row['name']}, {row['metric']}: after over before {ratios}; {row['judgement']}")
        return "\n".join([*lines, self.verdict])

    def _repr_html_(self) -> str:
        remarks = "".join(f"<li>{html.escape(remark)}</li>" for remark in self.remarks)
        head = f"<p><b>{html.escape(self.experiment)}</b>: {html.escape(self.about)}</p><p>{html.escape(self.verdict)}</p>"
        return head + _html_table(SHOWN_OF_FIGURES, self.rows) + f"<ul>{remarks}</ul>" + (_picture(self) if self.charts else "")


def scenario(
    source: str | PathLike[str],
    policies: str | Iterable[str] = (),
    memory: str | int | Iterable[str | int] = (),
    *,
    seeds: int = 1,
    progress: bool | None = None,
) -> Scenario:
    """Runs a simulated machine: tasks, groups, devices and events, described in TOML.

    Parameters
    ----------
    source : a path, or the TOML itself (a text of several lines); :func:`example_scenario` is one to begin with
    policies : instead of the file's, such as ``"classic,mglru{tiers=1}"``
    memory : instead of the file's: ``"64M"``, or ``"50%"`` of the file's; every policy runs at every size
    seeds : runs of each with random numbers of their own, from 1 to 1000
    progress : as :func:`refault.compare`

    Raises
    ------
    ValueError
        The scenario, a policy or a size cannot be used; the sentence says where, with the line.
    OSError
        The file cannot be read.
    """
    if not 1 <= seeds <= 1000:
        raise ValueError(f"seeds are runs of each, from 1 to 1000; not {seeds}")
    if isinstance(source, str) and "\n" in source:
        text, file = source, "scenario"
    else:
        file = fspath(source)
        try:
            text = Path(file).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"cannot read the scenario: {file}: it is no UTF-8 text") from error
    named = [policies] if isinstance(policies, str) else list(policies)
    with _bar(progress, "simulating", " parts") as tell:
        found = json.loads(_refault.scenario(text, file, named, _sizes(memory), seeds, tell))
    return Scenario(found["runs"], found["pictures"])


def example_scenario() -> str:
    """A scenario in TOML to begin with, as ``refault scenario init`` prints it."""
    return _refault.example_scenario()


def experiments() -> dict[str, str]:
    """The published experiments that :func:`reproduce` runs: names, and what each is about."""
    return dict(_refault.experiments())


def reproduce(
    name: str, *, small: bool = False, full: bool = False, null: bool = False, seed: int = 1, progress: bool | None = None
) -> Reproduction:
    """Runs a published experiment again, beside its figures. Takes some minutes.

    Parameters
    ----------
    name : one of :func:`experiments`
    small : at a scale that ends within seconds; its figures say little
    full : at a larger scale; takes long
    null : the run with the mechanism under test switched off in the place of ours: what agrees then is no evidence
    seed : the first of the seeds of all random choices
    progress : as :func:`refault.compare`

    Raises
    ------
    ValueError
        There is no such experiment; the sentence lists them.
    """
    if small and full:
        raise ValueError("small and full exclude each other: choose one")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed is a whole number from 0 to 2^63 - 1; not {seed}")
    size = "small" if small else "full" if full else "quick"
    with _bar(progress, "simulating", " parts") as tell:
        return Reproduction(json.loads(_refault.reproduce(name, size, null, seed, tell)))


def _flat(nested: dict[str, Any]) -> Row:
    """Objects within as columns: ``{"ours": {"ratio": 1}}`` is ``ours_ratio``."""
    flat: Row = {}
    for name, value in nested.items():
        flat.update({f"{name}_{inner}": deep for inner, deep in value.items()} if isinstance(value, dict) else {name: value})
    return flat


def _draw(charts: Sequence[dict[str, Any]], axes: Any) -> Any:
    import matplotlib.pyplot as plt

    if axes is None:
        columns = min(len(charts), 2)
        lines = -(-len(charts) // columns)
        figure, grid = plt.subplots(
            lines, columns, squeeze=False, figsize=(6.5 * columns, 3.4 * lines), layout="constrained"
        )
        axes = list(grid.flat)
        for spare in axes[len(charts) :]:
            figure.delaxes(spare)
        axes = axes[: len(charts)]
    axes = list(axes) if isinstance(axes, Iterable) else [axes]
    if len(axes) != len(charts):
        raise ValueError(f"{len(charts)} pictures need {len(charts)} axes, not {len(axes)}")
    for axis, chart in zip(axes, charts, strict=True):
        series = [line for line in chart["series"] if line["points"]]
        if chart["stacked"] and series:
            heights = [[point[1] for point in line["points"]] for line in series]
            moments = [point[0] for point in series[0]["points"]]
            axis.stackplot(moments, heights, labels=[line["name"] for line in series])
        for line in () if chart["stacked"] else series:
            axis.plot(*zip(*line["points"], strict=True), label=line["name"])
        axis.set_title(chart["title"], fontsize="medium")
        axis.set_xlabel(chart["x_axis"])
        axis.set_ylabel(chart["y_axis"])
        axis.set_ylim(bottom=0)
        if series:
            axis.legend(fontsize="small")
    return axes


def _html_table(shown: Sequence[str], rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in shown)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_shown(row.get(name)))}</td>" for name in shown) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return _cell(value)
