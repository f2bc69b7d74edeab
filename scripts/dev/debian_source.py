"""Source packages of Debian, for the scripts here that run other people's suites."""

import glob
import os
import subprocess


def fetch(package, name, work):
    """Downloads and unpacks a package's source into `work`, from where this machine has its packages; returns its directory,
    whose name begins with `name`.

    Raises subprocess.CalledProcessError if there is none.
    """
    parts = os.path.join(work, "sources")
    lists = os.path.join(work, "lists")
    os.makedirs(parts, exist_ok=True)
    os.makedirs(os.path.join(lists, "partial"), exist_ok=True)
    # The machine's own list, asked for sources instead.
    for path in [*glob.glob("/etc/apt/sources.list.d/*"), "/etc/apt/sources.list"]:
        if not os.path.exists(path):
            continue
        with open(path) as old, open(os.path.join(parts, os.path.basename(path)), "w") as new:
            for line in old:
                new.write("Types: deb-src\n" if line.startswith("Types:") else line.replace("deb ", "deb-src ", 1))
    options = [f"Dir::Etc::SourceParts={parts}", "Dir::Etc::SourceList=/nonexistent", f"Dir::State::Lists={lists}"]
    apt = ["apt-get", *(word for option in options for word in ("-o", option))]
    quiet = {"cwd": work, "stdout": subprocess.DEVNULL}
    subprocess.run([*apt, "update"], check=True, **quiet)
    with open("/etc/os-release") as file:
        suite = dict(line.strip().split("=", 1) for line in file if "=" in line)["VERSION_CODENAME"]
    # A mirror may lack the sources of the newest.
    if subprocess.run([*apt, "source", "--download-only", package], **quiet).returncode != 0:
        subprocess.run([*apt, "source", "--download-only", f"{package}/{suite}"], check=True, **quiet)
    archive = max(glob.glob(os.path.join(work, f"{package}_*.orig.tar.[gx]z")), key=os.path.getmtime)
    subprocess.run(["tar", "-xf", archive, "-C", work], check=True)
    (source,) = glob.glob(os.path.join(work, f"{name}-*/"))
    return source.rstrip("/")
