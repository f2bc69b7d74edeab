#!/bin/sh
# h5py 3.16.0 (PyPI): `h5py.File(file, "w")` with a file object of Python.
#
# Behaviour that a user would not guess: with a path "w" begins an empty file; with a file object what lies in it stays, as with
# "r+".
# Exit 0: as described; 1: it has changed; 77: the package cannot be installed.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 77
python3 -m venv v && v/bin/pip -q install h5py==3.16.0 >/dev/null 2>&1 || exit 77
exec v/bin/python - <<'END'
import sys, h5py
with h5py.File("data", "w") as made:
    made["old"] = 1
with open("data", "r+b", buffering=0) as file, h5py.File(file, "w") as made:
    made["new"] = 2
with h5py.File("data", "r") as made:
    names = sorted(made)
print("in the file:", names)
sys.exit(names != ["new", "old"])
END
