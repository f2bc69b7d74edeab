"""The parts of refault that run on every Linux, tested as aarch64 under qemu's user mode. Part of scripts/dev/machines."""

import os
import shutil
import subprocess

TARGET = "aarch64-unknown-linux-gnu"
CRATES = ["refault-core", "refault-trace", "refault-sim", "refault-lab", "refault-store", "refault-cache"]
NEEDED = {"qemu-aarch64": "qemu-user", "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", "rustup": "rustup"}
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def check(work):
    """Builds the tests of each crate and runs them; yields a line per crate."""
    subprocess.run(["rustup", "target", "add", TARGET], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    capitals = TARGET.upper().replace("-", "_")
    environment = os.environ | {
        "CARGO_INCREMENTAL": "0",
        "CARGO_TARGET_DIR": os.path.join(work, "aarch64"),
        f"CC_{TARGET.replace('-', '_')}": "aarch64-linux-gnu-gcc",
        f"CARGO_TARGET_{capitals}_LINKER": "aarch64-linux-gnu-gcc",
        f"CARGO_TARGET_{capitals}_RUNNER": "qemu-aarch64 -L /usr/aarch64-linux-gnu",
    }
    for crate in CRATES:
        command = ["cargo", "test", "--quiet", "--target", TARGET, "-p", crate]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        passed = sum(int(line.split(". ")[1].split()[0]) for line in done.stdout.splitlines() if line.startswith("test result: ok"))
        last = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        yield f"{crate}\t{f'right ({passed} tests)' if done.returncode == 0 and passed else f'WRONG: {last}'}\n"


def missing():
    """Packages that are not installed."""
    return [package for program, package in NEEDED.items() if not shutil.which(program)]
