"""The README's example runs as it stands."""

import os
import re
from pathlib import Path

import pytest
import refault

README = Path(__file__).parents[1] / "README.md"


def test_the_example_of_the_readme_runs(monkeypatch, capsys):
    try:
        refault.Budget("1M")
        refault.open(README, memory="1M").close()
    except OSError as error:
        if os.environ.get("REFAULT_REQUIRE"):
            raise
        pytest.skip(str(error))
    monkeypatch.chdir(README.parents[1])
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    exec(example, {})
    printed = capsys.readouterr().out
    assert "lru" in printed and "MiB" in printed and "# refault for Python" in printed


def test_docstrings_say_what_happens():
    import doctest

    from refault import lab

    for module in (refault, lab):
        failed, tried = doctest.testmod(module)
        assert tried and not failed, module
