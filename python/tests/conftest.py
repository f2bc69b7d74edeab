"""What tests share: a store; and one that is skipped is counted with those of the crates, in the file that REFAULT_SKIPS names."""

import os
import socket
import subprocess
import sys
import time

import pytest
import refault


def pytest_runtest_logreport(report):
    log = os.environ.get("REFAULT_SKIPS")
    if report.skipped and log:
        _, _, why = report.longrepr
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}: {why.removeprefix('Skipped: ')}\n")


@pytest.fixture
def memory():
    """fsspec's file system in memory, empty before and after."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An empty bucket, and what its server was asked for."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    fsspec = pytest.importorskip("fsspec")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("store") / "log"
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "user", "secret": "nothing"}
    before = dict(fsspec.config.conf)
    with open(log, "wb") as out:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        for _ in range(300):
            if server.poll() is not None:
                pytest.fail(f"the server has ended: {log.read_text()}")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        fsspec.config.conf["s3"] = options
        fsspec.filesystem("s3").mkdir("bucket")
        yield lambda path: log.read_text().count(f"GET /bucket/{path} ")
    finally:
        fsspec.config.conf.clear()
        fsspec.config.conf.update(before)
        server.terminate()
        server.wait()


@pytest.fixture
def whole_seconds(tmp_path):
    """A directory where times are whole seconds."""
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    mounted.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    try:
        # Inodes of 128 bytes have no room for more.
        subprocess.run(["mkfs.ext4", "-q", "-F", "-I", "128", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted: {error}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


@pytest.fixture
def path(tmp_path):
    """A file of 3,000 lines, where there is direct I/O."""
    path = tmp_path / "data"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(3000)))
    try:
        refault.open(path, memory="1M").close()
    except OSError as error:
        if os.environ.get("REFAULT_REQUIRE"):
            raise
        pytest.skip(str(error))
    return path
