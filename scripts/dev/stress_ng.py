#!/usr/bin/env python3
"""stress-ng's stressors under `refault run`: what ends differently from alone.

usage: scripts/dev/stress_ng.py REFAULT [--memory 64M] [--seconds 1] [--classes vm,memory,...] [--with=OPTION]... [STRESSOR...]

Each stressor runs with --verify, one instance, alone and then under the tool. The result is a table of those whose exit
status or complaints differ, and of how much work each did per second (its bogo operations). Stressors that do not run alone
(no permission, not supported here) are counted and left out. Exit status: 0 nothing differs, 1 something does, 2 wrong usage.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

import bounded

CLASSES = "memory,vm,scheduler,pipe,os,interrupt"
# They take all memory or processors of the machine, change it for longer than they run, need hardware, or look for faults
# of the kernel by arguments at random. By name they run all the same.
LEFT_OUT = set("""
    bigheap cpu-online memhotplug mlockmany oom-pipe reboot suspend swap watchdog
    sysinval sysbadaddr sysfs loop binderfs rtc physpage pageswap idle-page pci efivar klog icmp-flood umount bind-mount
    apparmor x86syscall landlock plugin iomix hdd revio verity kvm softlockup resched smi clock
""".split())


def stressors(classes):
    """Names in the order of their classes, each once."""
    names = {}
    for name in classes.split(","):
        text = subprocess.run(["stress-ng", "--class", name + "?"], capture_output=True, text=True).stdout
        found = re.search(r"stressors: (.*)", text)
        if not found:
            sys.exit(f"stress-ng has no class {name}")
        names.update(dict.fromkeys(found.group(1).split()))
    return [name for name in names if name not in LEFT_OUT]


class Run:
    """One run of a stressor: how it ended, what it complained of, how much it did."""

    def __init__(self, prefix, name, seconds, limit):
        home = tempfile.mkdtemp(prefix="stress-")
        command = [*prefix, "stress-ng", f"--{name}", "1", "--timeout", str(seconds), "--verify", "--metrics-brief",
                   "--temp-path", home, "--no-rand-seed"]
        self.text, self.end, self.seconds = bounded.run(command, limit, home)
        shutil.rmtree(home, ignore_errors=True)
        rate = re.search(rf"metrc:.*\] {re.escape(name)} +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)", self.text)
        self.rate = float(rate.group(1)) if rate else None

    def complaints(self):
        """Its lines that say that something is wrong, without process numbers."""
        lines = re.findall(r"(?:fail|error):\s+\[\d+\] (.*)", self.text)
        return {re.sub(r"\d+|0x[0-9a-f]+", "N", line) for line in lines}

    def last_words(self):
        lines = [line for line in self.text.splitlines() if re.search(r"fail|error|refault|signal|terminated", line)]
        return (lines or self.text.splitlines() or [""])[0][:160]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("refault")
    parser.add_argument("--memory", default="64M")
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--classes", default=CLASSES)
    parser.add_argument("--with", dest="options", action="append", default=[], metavar="OPTION")
    parser.add_argument("stressor", nargs="*")
    arguments = parser.parse_intermixed_args()
    if not shutil.which("stress-ng"):
        parser.error("stress-ng is not installed")
    prefix = [os.path.abspath(arguments.refault), "run", "--memory", arguments.memory, *arguments.options, "--"]
    unusable, same, differ = [], 0, 0
    for name in arguments.stressor or stressors(arguments.classes):
        alone = Run([], name, arguments.seconds, 30 + 10 * arguments.seconds)
        if alone.end != 0:
            unusable.append(f"{name} ({alone.end})")
            continue
        managed = Run(prefix, name, arguments.seconds, 60 + 3 * alone.seconds)
        new = managed.complaints() - alone.complaints()
        ratio = f"{managed.rate / alone.rate:8.2f} x work" if managed.rate and alone.rate else "       no figure"
        if managed.end == 0 and not new:
            same += 1
            print(f"{name:20} same     {ratio}", flush=True)
        else:
            differ += 1
            print(f"{name:20} DIFFERS  {ratio}  status {managed.end}: {managed.last_words()}", flush=True)
    print(f"{same} the same, {differ} differ, {len(unusable)} do not run alone here: {', '.join(unusable)}")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
