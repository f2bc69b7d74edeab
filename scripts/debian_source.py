"""Source packages of Debian, for the scripts here that run other people's suites."""

import glob
import os
import subprocess

SUITES = """\
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {suite} main
"""


def fetch(package, name, work):
    """Downloads and unpacks a package's source into `work`; returns its directory, whose name begins with `name`.

    Raises subprocess.CalledProcessError if there is none.
    """
    with open("/etc/os-release") as file:
        suite = dict(line.strip().split("=", 1) for line in file if "=" in line)["VERSION_CODENAME"]
    lists = os.path.join(work, "lists")
    os.makedirs(os.path.join(lists, "partial"), exist_ok=True)
    sources = os.path.join(work, "sources.list")
    with open(sources, "w") as file:
        file.write(SUITES.format(suite=suite))
    options = [f"Dir::Etc::SourceList={sources}", "Dir::Etc::SourceParts=/nonexistent", f"Dir::State::Lists={lists}"]
    apt = ["apt-get", *(word for option in options for word in ("-o", option))]
    subprocess.run([*apt, "update"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*apt, "source", "--download-only", package], check=True, cwd=work, stdout=subprocess.DEVNULL)
    (archive,) = glob.glob(os.path.join(work, f"{package}_*.orig.tar.xz"))
    subprocess.run(["tar", "-xf", archive, "-C", work], check=True)
    (source,) = glob.glob(os.path.join(work, f"{name}-*/"))
    return source.rstrip("/")
