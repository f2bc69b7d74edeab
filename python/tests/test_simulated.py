"""Simulated machines and published experiments: the command's figures, in every form."""

import json
import os
import pickle
import subprocess
from pathlib import Path

import pytest
import refault

COMMAND = os.environ.get("REFAULT")
command = pytest.mark.skipif(COMMAND is None, reason="REFAULT does not name the command")

SMALL = Path(__file__).with_name("small_machine.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def found():
    return refault.scenario(SMALL, ["classic", "mglru"], ["4M", "50%"])


@pytest.fixture(scope="module")
def experiment():
    return refault.reproduce("freepool", small=True)


@command
def test_the_command_says_the_same_of_a_scenario_to_the_last_digit(found, tmp_path):
    path = tmp_path / "machine.toml"
    path.write_text(SMALL)
    asked = ["--policy", "classic,mglru", "--memory", "4M,50%", "--format", "json"]
    text = subprocess.run([COMMAND, "scenario", path, *asked], capture_output=True, check=True).stdout
    assert json.loads(text) == json.loads(found.to_json())
    assert refault.scenario(path, "classic,mglru", "4M,50%").runs == found.runs


@command
def test_the_command_says_the_same_of_an_experiment_to_the_last_digit(experiment, tmp_path):
    asked = ["reproduce", "freepool", "--small", "--format", "json", "--report", tmp_path / "report.html"]
    text = subprocess.run([COMMAND, *asked], capture_output=True, check=True).stdout
    assert json.loads(text) == json.loads(experiment.to_json())


@command
def test_the_list_of_experiments_is_the_command_s():
    text = subprocess.run([COMMAND, "reproduce", "list"], capture_output=True, check=True, text=True).stdout
    assert dict(line.split(maxsplit=1) for line in text.splitlines()) == refault.experiments()


def test_a_scenario_in_every_form(found):
    assert [(run["policy"], run["memory_bytes"]) for run in found.runs] == [
        (policy, memory << 20) for policy in ("classic", "mglru") for memory in (4, 2)
    ]
    assert all(run["file_reads"] > 0 for run in found.rows)
    assert len(found.to_pandas()) == len(found.to_polars()) == found.to_arrow().num_rows == len(found) == 4
    import polars

    assert polars.DataFrame(found).height == 4  # by Arrow's C interface
    assert {row["name"] for row in found.tasks} == {"reader"}
    again = pickle.loads(pickle.dumps(found))
    assert again.runs == found.runs and again.pictures == found.pictures
    assert "reader" in repr(found)
    import matplotlib

    matplotlib.use("Agg")
    axes = found.plot()
    assert len(axes) == sum(len(picture["charts"]) for picture in found.pictures)
    assert axes[0].get_xlabel() == "simulated time, s"
    page = found._repr_html_()
    assert "<svg" in page and "reader" in page


def test_an_experiment_in_every_form(experiment):
    rows = experiment.rows
    assert {"name", "published_ratio", "ours_ratio", "null_ratio", "judgement"} <= set(rows[0])
    assert len(experiment.to_pandas()) == len(experiment.to_polars()) == experiment.to_arrow().num_rows == len(rows)
    import polars

    assert polars.DataFrame(experiment).height == len(rows)
    again = pickle.loads(pickle.dumps(experiment))
    assert again.rows == rows and again.verdict == experiment.verdict and again.charts == experiment.charts
    assert experiment.verdict and experiment.verdict in repr(experiment)
    import matplotlib

    matplotlib.use("Agg")
    assert len(experiment.plot()) == len(experiment.charts)
    assert "<svg" in experiment._repr_html_()


def test_seeds_are_runs_with_random_numbers_of_their_own():
    runs = refault.scenario(SMALL, seeds=2).runs
    assert [run["run"] for run in runs] == [1, 2]
    assert {run["policy"] for run in runs} == {"classic"}  # the file's
    figures = [{name: value for name, value in run.items() if name != "run"} for run in runs]
    assert figures[0] != figures[1]


def test_the_example_can_be_run():
    assert refault.scenario(refault.example_scenario(), memory="50%").runs[0]["end"] == "finished"


def test_without_samples_there_is_nothing_to_draw():
    with pytest.raises(ValueError, match="nothing is sampled"):
        refault.scenario(SMALL.replace('sample = "50ms"\n', "")).plot()


def test_wrong_requests_are_refused_in_words(tmp_path):
    with pytest.raises(ValueError, match="scenario:3: memory"):
        refault.scenario('\n[machine]\nmemory = "four"\n')
    with pytest.raises(ValueError, match="did you mean 'mglru'"):
        refault.scenario(SMALL, "mrglu")
    with pytest.raises(ValueError, match="named twice"):
        refault.scenario(SMALL, memory=["4M", "4M"])
    with pytest.raises(ValueError, match="from 1 to 1000"):
        refault.scenario(SMALL, seeds=0)
    with pytest.raises(FileNotFoundError):
        refault.scenario(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="no UTF-8"):
        refault.scenario(tmp_path / "binary.toml")
    with pytest.raises(ValueError, match="choose from shadow-lru"):
        refault.reproduce("freepol")
    with pytest.raises(ValueError, match="exclude each other"):
        refault.reproduce("freepool", small=True, full=True)
    with pytest.raises(ValueError, match="seed"):
        refault.reproduce("freepool", seed=-1)
