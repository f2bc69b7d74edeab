"""A program that may hang, for the scripts here that run other people's suites."""

import os
import signal
import subprocess
import time


def run(command, limit, home):
    """Runs a command in the directory `home`, for `limit` seconds at most.

    Returns what it printed, how it ended (a status, or "not ended"), and how many seconds it took. It and what it has
    started are killed when the time is over.
    """
    start = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace", start_new_session=True, cwd=home)
    try:
        text, _ = child.communicate(timeout=limit)
        end = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        text, _ = child.communicate()
        end = "not ended"
    return text, end, time.monotonic() - start
