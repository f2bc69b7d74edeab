//! The row of a process that does nothing: what it costs to manage one.

use std::process::{Command, Stdio};
use std::time::Instant;

use refault_console::Failure;

use super::backend::{Backend, refault};
use super::{Measured, Plan};

/// Programs that a shell starts one after the other.
const EXECS: u32 = 200;
/// More than enough.
const BUDGET: u64 = 256 << 20;

/// Under `refault run`, or alone: an operation is the start and end of one process by a shell; the memory is private to
/// such a process.
pub fn measure(managed: Option<Backend>, plan: &Plan) -> Result<Measured, Failure> {
    let start = |script: String| -> Result<(f64, String), Failure> {
        let mut command = match managed {
            Some(backend) => refault(&plan.with, backend, BUDGET)?,
            None => Command::new("env"),
        };
        if managed.is_some() {
            command.arg("--");
        }
        command.args(["sh", "-c", &script]).stdin(Stdio::null());
        let begin = Instant::now();
        let output = command.output().map_err(|error| Failure::failed("cannot run", "sh", error))?;
        Ok((begin.elapsed().as_secs_f64(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let execs = if plan.quick { EXECS / 10 } else { EXECS };
    // Not `env true`, which is two programs one after the other.
    let loops = |times: u32| format!("i=0; while [ $i -lt {times} ]; do env > /dev/null; i=$((i+1)); done");
    let (once, _) = start(loops(1))?;
    let (often, _) = start(loops(execs + 1))?;
    let (_, rollup) = start("exec cat /proc/self/smaps_rollup".to_owned())?;
    let private: f64 = rollup
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok())
        .sum();
    let exec_seconds = (often - once) / f64::from(execs);
    Ok(Measured { operations_per_second: 1.0 / exec_seconds, resident_bytes: private * 1024.0, ..Measured::unknown() })
}
