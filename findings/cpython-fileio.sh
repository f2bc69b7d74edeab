#!/bin/sh
# CPython 3.11, `io.FileIO`.
#
# Behaviour that a user would not guess: a file whose first seek fails says for good that it cannot seek, though it can; and
# `readall()` does not look at the mode: of a file that is only written it says EBADF, where `read()` says UnsupportedOperation.
# Exit 0: as described; 1: it has changed.
set -u
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
exec python3 - "$place/file" <<'END'
import errno, io, sys
with io.FileIO(sys.argv[1], "w") as file:
    try:
        file.seek(-1)
    except OSError as error:
        assert error.errno == errno.EINVAL
    seekable, moved = file.seekable(), file.seek(5)
    try:
        file.readall()
    except io.UnsupportedOperation:
        said = "unsupported"
    except OSError as error:
        said = errno.errorcode[error.errno]
print(f"seekable() is {seekable} and seek(5) moves to {moved}; readall() says {said}")
sys.exit((seekable, moved, said) != (False, 5, "EBADF"))
END
