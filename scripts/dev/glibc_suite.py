#!/usr/bin/env python3
"""glibc's own tests under `refault run`: what ends differently from alone.

usage: scripts/dev/glibc_suite.py REFAULT [--memory 16M] [--source DIR] [--work DIR] [--classes nptl,malloc,posix] [NAME...]

The tests are compiled against the C library that is installed, not against one of their own, so that no library has to
be built: those that need what only a build has (internal headers and functions, helper libraries) do not compile, and are
counted. Without --source, Debian's source package of the installed library is fetched into --work. Each test runs alone,
and if it passes there, under the tool. One that ends otherwise is tried again, alone and under the tool, with nothing beside it.
Exit status: 0 nothing differs, 1 something does, 2 wrong usage.
"""

import argparse
import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys
import tempfile

import bounded
import debian_source

# Tests of a class lie in these directories of the source.
CLASSES = {
    "nptl": ["nptl", "sysdeps/pthread", "sysdeps/unix/sysv/linux"],
    "malloc": ["malloc"],
    "posix": ["posix"],
}
# Small headers of the source that tests use and that stand by themselves.
HEADERS = ["array_length.h", "libc-diag.h", "libc-pointer-arith.h", "list.h", "list_t.h", "intprops.h", "verify.h"]
HEADERS = [os.path.join("include", name) for name in HEADERS] + ["sysdeps/x86_64/stackinfo.h"]
PRELUDE = """
#define attribute_hidden
#define libc_hidden_proto(name, attrs...)
#define libc_hidden_def(name)
#define PREPARE_LOOP
"""
PASSED, UNSUPPORTED = 0, 77
ALONE_SECONDS = 100


class Compiler:
    """Compiles tests of a source tree against the system's library."""

    def __init__(self, source, work):
        self.source, self.built = source, os.path.join(work, "built")
        headers = os.path.join(self.built, "headers")
        os.makedirs(headers, exist_ok=True)
        for name in HEADERS:
            shutil.copy(os.path.join(source, name), headers)
        with open(os.path.join(headers, "config.h"), "w"):
            pass
        prelude = os.path.join(headers, "prelude.h")
        with open(prelude, "w") as file:
            file.write(PRELUDE)
        self.flags = ["-std=gnu11", "-O2", "-w", "-D_GNU_SOURCE", "-fno-builtin", "-include", prelude, "-I", headers]
        self.flags += ["-iquote", source, "-idirafter", source, "-idirafter", os.path.join(source, "support")]
        # Where a build would have put things: nothing of it is there.
        paths = {"SRCDIR_PATH": source, "OBJDIR_PATH": self.built, "SLIBDIR_PATH": "/lib"}
        paths |= {"INSTDIR_PATH": "/usr", "LIBDIR_PATH": "/usr/lib", "BINDIR_PATH": "/usr/bin", "SBINDIR_PATH": "/usr/sbin"}
        paths |= {"COMPLOCALEDIR_PATH": "/usr/lib/locale", "OBJDIR_ELF_LDSO_PATH": "/lib64/ld-linux-x86-64.so.2", "ROOTSBINDIR_PATH": "/sbin"}
        self.flags += [f'-D{name}="{path}"' for name, path in paths.items()]
        self.flags.append("-DTIMEOUTFACTOR=1")
        self.library = os.path.join(self.built, "libsupport.a")

    def build_support(self, workers):
        objects = os.path.join(self.built, "support")
        os.makedirs(objects, exist_ok=True)

        def compile_one(path):
            out = os.path.join(objects, os.path.basename(path)[:-2] + ".o")
            return out if self.run(["-c", path, "-o", out]) else None

        paths = [path for path in glob.glob(os.path.join(self.source, "support", "*.c")) if "/tst-" not in path]
        compiled = [out for out in workers.map(compile_one, paths) if out]
        if not compiled:
            sys.exit("the source has no support library that compiles")
        if os.path.exists(self.library):
            os.remove(self.library)
        subprocess.run(["ar", "rcs", self.library, *compiled], check=True)
        return len(compiled), len(paths)

    def build(self, path):
        """The program of a test, or None if it does not compile."""
        name = os.path.relpath(path, self.source).replace("/", "-")[:-2]
        out = os.path.join(self.built, name)
        place = os.path.dirname(path)
        linked = self.run(["-I", place, path, "-o", out, self.library, "-rdynamic", "-lpthread", "-lrt", "-ldl", "-lm"])
        return out if linked else None

    def run(self, arguments):
        command = ["gcc", *self.flags, *arguments]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def end_of(command, seconds):
    """The exit status of a test, its output, and how long it took."""
    with tempfile.TemporaryDirectory(prefix="glibc-", ignore_cleanup_errors=True) as home:
        return bounded.run(command, seconds, home)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("refault")
    parser.add_argument("--memory", default="16M")
    parser.add_argument("--source")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "glibc-suite"))
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("name", nargs="*")
    arguments = parser.parse_intermixed_args()
    unknown = set(arguments.classes.split(",")) - set(CLASSES)
    if unknown:
        parser.error(f"no such class: {', '.join(sorted(unknown))}")
    os.makedirs(arguments.work, exist_ok=True)
    source = os.path.abspath(arguments.source) if arguments.source else debian_source.fetch("glibc", "glibc", arguments.work)
    prefix = [os.path.abspath(arguments.refault), "run", "--memory", arguments.memory, "--quiet", "--"]
    # The tests end themselves after some seconds; under the tool they may take longer.
    os.environ["TIMEOUTFACTOR"] = "4"
    differ = []
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as workers:
        compiler = Compiler(source, arguments.work)
        print("support library: %d of %d files compile" % compiler.build_support(workers), flush=True)
        for name in arguments.classes.split(","):
            paths = sorted(
                path
                for place in CLASSES[name]
                for pattern in ("tst-*.c", "bug-*.c", "bug*.c")
                for path in set(glob.glob(os.path.join(source, place, pattern)))
                if not arguments.name or os.path.basename(path)[:-2] in arguments.name
            )
            paths = sorted(set(paths))
            programs = {path: program for path, program in zip(paths, workers.map(compiler.build, paths)) if program}
            alone = dict(zip(programs, workers.map(lambda program: end_of([program], ALONE_SECONDS), programs.values())))
            passed = [path for path, (_, end, _) in alone.items() if end in (PASSED, UNSUPPORTED)]
            limit = lambda path: 60 + 5 * alone[path][2]
            managed = dict(
                zip(passed, workers.map(lambda path: end_of([*prefix, programs[path]], limit(path)), passed))
            )
            changed = [path for path in passed if managed[path][1] != alone[path][1]]
            print(
                f"{name}: {len(paths)} tests, {len(programs)} compile, {len(passed)} pass alone, "
                f"{len(passed) - len(changed)} the same under the tool",
                flush=True,
            )
            for path in changed:
                first = f"{alone[path][1]} alone, {managed[path][1]} under the tool"
                _, end, seconds = end_of([programs[path]], ALONE_SECONDS)
                text, again, longer = end_of([*prefix, programs[path]], limit(path))
                said = text.strip().splitlines()[-3:]
                print(f"  {os.path.relpath(path, source)}: {first}; again {end} ({seconds:.1f} s), {again} ({longer:.1f} s)")
                for line in said if again != end else []:
                    print(f"      {line[:160]}", flush=True)
                if again != end:
                    differ.append(path)
    print(f"{len(differ)} end otherwise twice")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
