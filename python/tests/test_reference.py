"""The API reference: pdoc makes it of what stands in the package, and nothing public is without words."""

import inspect
import subprocess
import sys

import pytest
import refault
import refault.fs


def public(owner):
    """Public names with what they are, of a module by what it exports, of a class by what it defines itself."""
    names = getattr(owner, "__all__", None) or [name for name in vars(owner) if not name.startswith("_")]
    return [(name, getattr(owner, name)) for name in names if not name.startswith("_")]


def test_everything_public_is_described():
    bare = []
    for owner, items in (("refault", public(refault)), ("refault.fs", [("CachedFileSystem", refault.fs.CachedFileSystem)])):
        for name, item in items:
            if not inspect.getdoc(item):
                bare.append(f"{owner}.{name}")
            if inspect.isclass(item):
                members = [(member, what) for member, what in public(item) if callable(what) or isinstance(what, property)]
                bare += [f"{owner}.{name}.{member}" for member, what in members if not inspect.getdoc(what)]
    assert not bare


def test_the_reference_can_be_made(tmp_path):
    pytest.importorskip("pdoc")
    out = tmp_path / "reference"
    words = [sys.executable, "-m", "pdoc", "--docformat", "numpy", "--output-directory", str(out), "refault", "refault.files", "refault.fs"]
    made = subprocess.run(words, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "Warn" not in made.stderr, made.stderr
    page = (out / "refault.html").read_text()
    for name, item in public(refault):
        assert f'id="{name}"' in page, name
    assert 'id="open"' in (out / "refault" / "files.html").read_text()  # no `import *` takes it along
    assert (out / "refault" / "fs.html").exists()
