#!/bin/sh
# fsspec 2026.9.0 (PyPI): `ukey` of http, and `rm` of local files.
#
# Behaviour that a user would not guess: `ukey`, by which fsspec's caches tell that a file has changed, is of http a hash of the
# address alone, though `info` has the ETag. And `rm("dir/*")` removes what matches in most file systems, but not of local
# files: there the pattern is a name.
# Exit 0: as described; 1: it has changed; 77: the package cannot be installed.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 77
python3 -m venv v && v/bin/pip -q install fsspec==2026.9.0 aiohttp >/dev/null 2>&1 || exit 77
exec v/bin/python - <<'END'
import os, sys, fsspec
http = fsspec.filesystem("http")
address_only = http.ukey("http://127.0.0.1:1/nothing") == http.ukey("http://127.0.0.1:1/nothing")
memory, local, here = fsspec.filesystem("memory"), fsspec.filesystem("file"), os.getcwd() + "/files"
memory.pipe("/files/a", b"a")
local.makedirs(here)
local.pipe(here + "/a", b"a")
memory.rm("/files/*")
try:
    local.rm(here + "/*")
    said = "removed"
except FileNotFoundError:
    said = "no such file"
print(f"ukey without asking anything: {address_only}; rm of a pattern: memory {memory.find('/files')}, local: {said}")
sys.exit(not address_only or memory.find("/files") != [] or said != "no such file")
END
