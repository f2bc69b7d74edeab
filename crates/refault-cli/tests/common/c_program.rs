//! C programs written for a test, under `refault run`.
#![allow(dead_code)] // Each test file uses a part of it.

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::text;

/// A C program of `tests/c`, compiled into a directory of its own.
pub struct Program {
    pub directory: TempDir,
    pub path: PathBuf,
}

/// What they share.
const HEAD: &str = include_str!("../c/program.h");

impl Program {
    pub fn new(source: &str) -> Program {
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("program.c");
        std::fs::write(&file, source).expect("writes");
        std::fs::write(directory.path().join("program.h"), HEAD).expect("writes");
        let path = directory.path().join("program");
        let gcc = Command::new("gcc")
            .args(["-O1", "-w", "-pthread", "-o"])
            .arg(&path)
            .arg(&file)
            .output()
            .expect("gcc starts");
        assert!(gcc.status.success(), "{}", text(&gcc.stderr));
        Program { directory, path }
    }

    /// As [`Program::succeeds`], of a program that might hang: it is ended after a minute.
    #[track_caller]
    pub fn comes_through(&self, memory: &str, flags: &[&str]) -> String {
        self.comes_through_with(memory, flags, &[])
    }

    /// The same with arguments for the program.
    #[track_caller]
    pub fn comes_through_with(&self, memory: &str, flags: &[&str], arguments: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "60", env!("CARGO_BIN_EXE_refault"), "run", "--memory", memory]).args(flags);
        command.arg("--").arg(&self.path).args(arguments).current_dir(self.directory.path());
        let output = command.output().expect("timeout starts");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let done = output.status.success() && out.ends_with("done\n");
        assert!(done, "{flags:?} {arguments:?} {:?}\n{out}\n{err}", output.status);
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
