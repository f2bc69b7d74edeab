#!/bin/sh
# pandas 3.1.1 (PyPI): compression of chained URLs of fsspec.
#
# Behaviour that a user would not guess: from "memory://a.csv.gz" pandas infers gzip, from "simplecache::memory://a.csv.gz"
# nothing, since it looks at what stands before the "::". So it writes plain text under that name without a word, and reads
# packed bytes as text.
# Exit 0: as described; 1: it has changed; 77: the packages cannot be installed.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 77
python3 -m venv v && v/bin/pip -q install pandas==3.1.1 fsspec==2026.9.0 >/dev/null 2>&1 || exit 77
exec v/bin/python - <<'END'
import sys, fsspec, pandas
memory, frame, begins = fsspec.filesystem("memory"), pandas.DataFrame({"a": range(100)}), []
for name in ("memory://a.csv.gz", "simplecache::memory://b.csv.gz"):
    frame.to_csv(name)
    begins.append(memory.cat_file("/" + name[-8:])[:2])
frame.to_csv("memory://c.csv.gz")
try:
    pandas.read_csv("simplecache::memory://c.csv.gz")
    said = "read"
except UnicodeDecodeError:
    said = "no text"
print(f"written begin with {begins}; a packed one behind a chain: {said}")
sys.exit(begins != [b"\x1f\x8b", b",a"] or said != "no text")
END
