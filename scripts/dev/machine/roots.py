"""Root file systems of Debian's releases, made from its packages alone. Part of scripts/dev/machines."""

import os
import re
import shutil
import subprocess

# Release, what is installed beside the base, and where its packages are.
RELEASES = {
    "2.31": ("bullseye", "http://deb.debian.org/debian"),
    "2.36": ("bookworm", "http://deb.debian.org/debian"),
    "2.41": ("trixie", "http://deb.debian.org/debian"),
    "newest": ("sid", "http://deb.debian.org/debian"),
}
PACKAGES = "bash,perl-base,python3-minimal,mawk,xz-utils,gzip,tar,musl,kmod"
# What builds the command, in a root whose glibc is older than that of this machine.
COMPILER = ",gcc,libc6-dev"
OLDEST = "2.31"
# Where a root has the programs of the probes.
PROBES = "/usr/local/lib/refault-probes"
HERE = os.path.dirname(os.path.abspath(__file__))


class RootError(Exception):
    """A root file system cannot be made, or nothing can be started in it."""


class FetchError(RootError):
    """Debian's packages cannot be had from here."""


def made(libc, work):
    """The directory of a root with this glibc, made if it is not there."""
    suite, mirror = RELEASES[libc]
    root = os.path.join(work, f"root-{suite}")
    if os.path.exists(f"{root}/.complete"):
        return root
    shutil.rmtree(root, ignore_errors=True)
    if not shutil.which("debootstrap"):
        raise RootError("debootstrap is not installed (package debootstrap)")
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}{COMPILER if libc == OLDEST else ''}", suite, root, mirror]
    with open(f"{work}/{suite}.log", "w") as log:
        if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode:
            raise FetchError(f"debootstrap {suite} failed: see {work}/{suite}.log")
    shutil.rmtree(f"{root}/var/cache/apt", ignore_errors=True)
    shutil.rmtree(f"{root}/var/lib/apt/lists", ignore_errors=True)
    open(f"{root}/.complete", "w").close()
    return root


def needs(refault):
    """The newest version of glibc that a command needs, as a pair of numbers."""
    symbols = subprocess.run(["objdump", "-T", refault], capture_output=True, text=True, check=True).stdout
    return max(tuple(int(part) for part in found.split(".")[:2]) for found in re.findall(r"GLIBC_([0-9.]+)", symbols))


def built(root, work):
    """The command and what proves it, built in a root whose glibc is older than this machine's: with this machine's toolchain
    and packages, which are mounted there. The probes are compiled there too."""
    release = os.path.join(work, "target", "release")
    toolchains = os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup"))
    packages = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    compiler = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    repository = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
    places = {toolchains: toolchains, packages: packages, repository: "/source", os.path.join(work, "target"): "/target"}
    os.makedirs(os.path.join(work, "target"), exist_ok=True)
    mounts = ["mount -t proc proc {0}/proc".format(root), "mount --rbind /dev {0}/dev".format(root)]
    for there, here in places.items():
        os.makedirs(root + here, exist_ok=True)
        mounts.append(f"mount --bind {there} {root}{here}")
    build = (f"cd /source && RUSTUP_HOME={toolchains} CARGO_HOME={packages} CARGO_TARGET_DIR=/target CARGO_INCREMENTAL=0"
             f" PATH={compiler}/bin:/usr/bin:/bin cargo build --release --locked --offline -p refault-cli -p refault-proof"
             f" && rm -rf {PROBES} && /target/release/refault-proof compile {PROBES}")
    inside = " && ".join(mounts + [f"exec chroot {root} sh -c '{build}'"])
    if subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", inside]).returncode:
        raise RootError(f"refault cannot be built in {root}")
    return os.path.join(release, "refault"), os.path.join(release, "refault-proof")


def fill_probes(root, proof):
    """Puts what proves the command into a root, and the probes, compiled by this machine's compiler."""
    fill_proof(root, proof)
    shutil.rmtree(root + PROBES, ignore_errors=True)
    if subprocess.run([proof, "compile", root + PROBES]).returncode:
        raise RootError("the probes cannot be compiled")


def fill_proof(root, proof):
    """Puts what proves the command into a root that has the probes already."""
    shutil.copy(proof, f"{root}/usr/local/bin/refault-proof")
    os.chmod(f"{root}/usr/local/bin/refault-proof", 0o755)


def fill(root, refault):
    """Puts the command and the checks into a root."""
    os.makedirs(f"{root}/usr/local/bin", exist_ok=True)
    shutil.copy(refault, f"{root}/usr/local/bin/refault")
    shutil.copy(f"{HERE}/checks.sh", f"{root}/usr/local/bin/checks.sh")
    helper = f"{root}/usr/local/bin/unprivileged"
    with open(helper, "w") as file:
        file.write('#!/bin/sh\nchmod 1777 /tmp; cd /tmp; HOME=/tmp XDG_RUNTIME_DIR=/tmp exec setpriv --reuid 65534'
                   ' --regid 65534 --clear-groups "$@"\n')
    if shutil.which("musl-gcc"):
        subprocess.run(["musl-gcc", "-O1", "-o", f"{root}/usr/local/bin/of-musl", f"{HERE}/musl.c"], check=True)
    for name in ["refault", "checks.sh", "unprivileged"]:
        os.chmod(f"{root}/usr/local/bin/{name}", 0o755)


def check(root, which):
    """Runs the checks in a root, in a namespace of mounts of its own; yields the lines as they come."""
    inside = (
        f"mount -t proc proc {root}/proc && mount --rbind /sys {root}/sys && mount --rbind /dev {root}/dev"
        f" && exec chroot {root} /usr/local/bin/checks.sh {which}"
    )
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        yield from process.stdout
    if process.returncode:
        raise RootError(f"the checks end with exit code {process.returncode}")


def libc_of(root):
    """The version of glibc in a root, as its own loader says it."""
    shown = subprocess.run(["chroot", root, "ldd", "--version"], capture_output=True, text=True).stdout
    return shown.splitlines()[0].rsplit(" ", 1)[-1] if shown else "unknown"
