"""fsspec's side of `scripts/dev/beside-remote`: one run. Reads a job as JSON, prints seconds as JSON.

The clock runs from before the file system is made until the last byte was compared with what the object has; the time
that Python and its imports take does not count. Ranges that are wanted at the same time are asked for by `cat_ranges`
where there is no cache, at the same time; files with a cache have no such call and read one after the other.
"""

import json
import mmap
import platform
import sys
import time

import aiohttp
import fsspec
import fsspec.implementations.cached
import fsspec.implementations.http


def open_file(job):
    if job["cache"] == "disk":
        system = fsspec.filesystem("blockcache", target_protocol="http", cache_storage=job["directory"])
        return system.open(job["url"], block_size=job["block"])
    options = {} if job["blocks"] is None else {"maxblocks": job["blocks"]}
    system = fsspec.filesystem("http")
    return system.open(job["url"], block_size=job["block"], cache_type=job["cache"], cache_options=options)


def run(job):
    with open(job["object"], "rb") as file:
        expected = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    begun = time.perf_counter()
    with open_file(job) as file:
        for step in job["steps"]:
            if job["cache"] == "none" and len(step) > 1:
                starts, ends = zip(*step)
                came = file.fs.cat_ranges([job["url"]] * len(step), starts, ends, on_error="raise")
                for (start, end), seen in zip(step, came):
                    if seen != expected[start:end]:
                        sys.exit(f"wrong bytes at {start}")
                continue
            for start, end in step:
                file.seek(start)
                if file.read(end - start) != expected[start:end]:
                    sys.exit(f"wrong bytes at {start}")
        seconds = time.perf_counter() - begun
    return {"seconds": seconds}


def main():
    job = json.load(sys.stdin)
    versions = f"fsspec {fsspec.__version__}, aiohttp {aiohttp.__version__}, Python {platform.python_version()}"
    print(json.dumps(run(job) if job else {"versions": versions}))


main()
