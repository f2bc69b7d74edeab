"""Kernels of Debian's packages under full emulation, with a root file system in memory. Part of scripts/dev/machines."""

import glob
import os
import re
import shutil
import subprocess

# The name of the package that has the kernel, and the release of Debian that has the package.
KERNELS = {
    "6.1": (r"linux-image-6\.1\.0-\d+-amd64-unsigned|linux-image-6\.1\.0-\d+-amd64", "bookworm"),
    "6.12": (r"linux-image-6\.12\.\d+\+deb13-amd64-unsigned|linux-image-6\.12\.\d+\+deb13-amd64", "trixie"),
    "7.2": (r"linux-(image|binary|modules|base)-7\.2\.\d+\+deb\d+-amd64", "sid"),
}
# What the pager says on a kernel that is too old for it.
REFUSALS = {"6.1": "use Linux 6.8 or later"}
# What the checks need of a kernel that may be a module.
MODULES = ["zram", "zstd", "lz4", "lzo_rle"]
MEMORY = "1536M"
# An emulator that says nothing for this long is stuck.
SILENCE_SECONDS = 1200
INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null; mount -t tmpfs none /tmp; mount -t tmpfs none /run
mount -t debugfs none /sys/kernel/debug 2>/dev/null
for module in $(cat /modules/order); do insmod /modules/$module 2>/dev/null; done
echo y >/sys/kernel/mm/lru_gen/enabled 2>/dev/null
echo SETTING >/sys/module/zswap/parameters/enabled 2>/dev/null
echo 0 >/proc/sys/vm/unprivileged_userfaultfd 2>/dev/null
if modprobe_free=$(cat /sys/class/zram-control/hot_add 2>/dev/null) || [ -e /sys/block/zram0 ]; then
    echo 256M >/sys/block/zram0/disksize; mkswap /dev/zram0 >/dev/null 2>&1; swapon /dev/zram0 2>/dev/null
fi
echo "== checks begin"
checks.sh WHICH
echo "== checks end"
sync
echo o >/proc/sysrq-trigger
sleep 60
"""


class KernelError(Exception):
    """A kernel cannot be had or does not boot."""


class FetchError(KernelError):
    """Debian's packages cannot be had from here."""


def unpacked(version, work):
    """A tree of the newest kernel of a version, fetched if it is not there."""
    tree = os.path.join(work, f"kernel-{version}")
    if os.path.isdir(f"{tree}/complete"):
        return tree
    pattern, suite = KERNELS[version]
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(f"{tree}/packages")
    lists = os.path.join(work, f"lists-{suite}")
    os.makedirs(f"{lists}/partial", exist_ok=True)
    source = os.path.join(work, f"{suite}.list")
    with open(source, "w") as file:
        for part in [suite, *([f"{suite}-updates"] if suite != "sid" else [])]:
            file.write(f"deb [trusted=yes] http://deb.debian.org/debian {part} main\\n".replace("\\n", "\n"))
    options = [f"Dir::Etc::SourceList={source}", "Dir::Etc::SourceParts=/nonexistent", f"Dir::State::Lists={lists}"]
    apt = [word for option in options for word in ("-o", option)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    failed = subprocess.run(["apt-get", *apt, "update"], **quiet)
    if failed.returncode:
        raise FetchError(f"the list of packages of {suite} cannot be fetched: {failed.stderr.strip()[-200:]}")
    names = subprocess.run(["apt-cache", *apt, "pkgnames", "linux-"], capture_output=True, text=True).stdout.split()
    numbers = lambda name: [int(part) for part in re.findall(r"\d+", name)]  # noqa: E731
    fitting = sorted((name for name in names if re.fullmatch(pattern, name)), key=numbers)
    if not fitting:
        raise FetchError(f"{suite} has no package of a kernel {version}")
    newest = numbers(fitting[-1])
    # A kernel in parts has several packages of one number; one with and without a signature is needed once.
    wanted = [name for name in fitting if numbers(name) == newest]
    if any(name.endswith("-amd64") and "image" in name for name in wanted):
        wanted = [name for name in wanted if not name.endswith("-unsigned")]
    for name in wanted:
        if subprocess.run(["apt-get", *apt, "download", name], cwd=f"{tree}/packages", **quiet).returncode:
            raise FetchError(f"the package {name} cannot be fetched")
    for package in glob.glob(f"{tree}/packages/*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
    if not os.path.exists(f"{tree}/lib") and os.path.exists(f"{tree}/usr/lib"):
        os.symlink("usr/lib", f"{tree}/lib")
    os.makedirs(f"{tree}/complete")
    return tree


def image(tree):
    """The image and the release of an unpacked kernel."""
    (release,) = os.listdir(f"{tree}/lib/modules")
    places = [f"{tree}/boot/vmlinuz-{release}", f"{tree}/lib/modules/{release}/vmlinuz"]
    found = next((place for place in places if os.path.exists(place)), None)
    if not found:
        raise KernelError(f"{tree} has no image of {release}")
    return found, release


def put_modules(tree, release, root):
    """Puts the modules that the checks need into a root, unpacked and in order."""
    subprocess.run(["depmod", "-b", os.path.abspath(tree), release], stderr=subprocess.DEVNULL)
    order = []
    for module in MODULES:
        command = ["modprobe", "-d", os.path.abspath(tree), "-S", release, "--show-depends", module]
        shown = subprocess.run(command, capture_output=True, text=True).stdout
        order += [line.split()[1] for line in shown.splitlines() if line.startswith("insmod ")]
    names = []
    for path in dict.fromkeys(order):
        name = os.path.basename(path).removesuffix(".xz")
        with open(f"{root}/modules/{name}", "wb") as file:
            packed = path.endswith(".xz")
            file.write(subprocess.run(["xz" if packed else "cat", *(["-dc"] if packed else []), path],
                                      capture_output=True, check=True).stdout)
        names.append(name)
    with open(f"{root}/modules/order", "w") as file:
        file.write("\n".join(names) + "\n")


# What a root in memory does without.
LEFT_OUT = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/lib/x86_64-linux-gnu/gconv",
            "var/cache", "var/lib/apt", "var/lib/dpkg/info", "usr/share/zoneinfo", "usr/share/perl5"]


def initial(root, tree, release, which, zswap, work):
    """An archive with the root, the modules and what is run."""
    copy = os.path.join(work, "initial")
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-a", root, copy], check=True)
    for part in LEFT_OUT:
        shutil.rmtree(f"{copy}/{part}", ignore_errors=True)
    for directory in ["modules", "proc", "sys", "dev", "tmp", "run"]:
        os.makedirs(f"{copy}/{directory}", exist_ok=True)
    put_modules(tree, release, copy)
    with open(f"{copy}/init", "w") as file:
        file.write(INIT.replace("WHICH", which).replace("SETTING", "Y" if zswap else "N"))
    os.chmod(f"{copy}/init", 0o755)
    archive = os.path.join(work, f"initial-{release}")
    with open(archive, "wb") as file:
        find = subprocess.Popen(["find", ".", "-print0"], cwd=copy, stdout=subprocess.PIPE)
        subprocess.run(["cpio", "--null", "-o", "-H", "newc", "--quiet"], cwd=copy, stdin=find.stdout, stdout=file, check=True)
    shutil.rmtree(copy)
    return archive


def check(kernel, archive):
    """Boots and yields the checks' lines as they come."""
    command = [
        "qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio", "-cpu", "max", "-smp", "2",
        "-accel", "tcg,thread=multi",
        "-m", MEMORY, "-kernel", kernel, "-initrd", archive,
        "-append", "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on",
    ]
    began = ended = False
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as guest:
        for line in guest.stdout:
            line = line.strip("\r\n")
            if line.startswith("== checks "):
                began, ended = True, line.endswith("end")
            elif began and not ended and "\t" in line:
                yield line + "\n"
        guest.wait()
    if not ended:
        raise KernelError("the guest ended before the checks did" if began else "the guest did not begin the checks")
