//! C programs written for a test, under `refault run`.
#![allow(dead_code)] // Each test file uses a part of it.

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::text;

/// A C program; `PAGES(p, n)` loops over the pages of `n` bytes at `p`.
pub struct Program {
    pub directory: TempDir,
    pub path: PathBuf,
}

const HEAD: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libintl.h>
#include <locale.h>
#include <pthread.h>
#include <malloc.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define MIB (1ul << 20)
#define FAIL(what) do { printf("%s: %s\n", what, strerror(errno)); return 1; } while (0)
#define CHECK(what) do { if (!(what)) { printf("%s is false: %s\n", #what, strerror(errno)); exit(1); } } while (0)
static unsigned char *map(unsigned long n) { return mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void fill(unsigned char *p, unsigned long n) { for (unsigned long i = 0; i < n; i += 8) *(unsigned long *)(p + i) = i * 0x9e3779b97f4a7c15ul + 1; }
static int whole(unsigned char *p, unsigned long n) { for (unsigned long i = 0; i < n; i += 8) if (*(unsigned long *)(p + i) != i * 0x9e3779b97f4a7c15ul + 1) return 0; return 1; }
static int zero(unsigned char *p, unsigned long n) { for (unsigned long i = 0; i < n; i += 8) if (*(unsigned long *)(p + i)) return 0; return 1; }
static int resident(unsigned char *p, unsigned long n) { static unsigned char v[1 << 16]; int c = 0; if (mincore(p, n, v)) return -1; for (unsigned long i = 0; i < n / 4096; i++) c += v[i] & 1; return c; }
"#;

impl Program {
    pub fn new(body: &str) -> Program {
        let directory = TempDir::new().expect("a directory");
        let source = directory.path().join("program.c");
        std::fs::write(&source, format!("{HEAD}{body}")).expect("writes");
        let path = directory.path().join("program");
        let gcc = Command::new("gcc")
            .args(["-O1", "-w", "-pthread", "-o"])
            .arg(&path)
            .arg(&source)
            .output()
            .expect("gcc starts");
        assert!(gcc.status.success(), "{}", text(&gcc.stderr));
        Program { directory, path }
    }

    /// As [`Program::succeeds`], of a program that might hang: it is ended after a minute.
    #[track_caller]
    pub fn comes_through(&self, memory: &str, flags: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60", env!("CARGO_BIN_EXE_refault"), "run", "--memory", memory]).args(flags);
        command.arg("--").arg(&self.path).current_dir(self.directory.path());
        let output = command.output().expect("timeout starts");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out.ends_with("done\n"), "{flags:?} {:?}\n{out}\n{err}", output.status);
        err
    }

    pub fn run(&self, memory: &str, flags: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
        command
            .args(["run", "--memory", memory])
            .args(flags)
            .arg("--")
            .arg(&self.path)
            .current_dir(self.directory.path());
        command.output().expect("refault starts")
    }

    #[track_caller]
    pub fn succeeds(&self, memory: &str, flags: &[&str]) -> String {
        let output = self.run(memory, flags);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && out.ends_with("done\n"), "{:?}\n{out}\n{err}", output.status);
        err
    }
}
