//! `refault bench`: the benchmarks are a program of their own, `refault-bench`; this says how to get it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use refault_console::Failure;

/// What the program is called.
const BENCH: &str = "refault-bench";

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  cargo build --release && cargo run --release -p refault-bench -- pager --against nothing     in a clone
  cargo install --path crates/refault-bench                                                    then: refault-bench --help")]
/// Say how to get refault-bench, which measures speed
pub struct BenchArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Runs the command: a refusal with the way to the program.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let rest: Vec<_> = args.rest.iter().map(|word| word.to_string_lossy()).collect();
    let wanted = if rest.is_empty() { "pager".to_owned() } else { rest.join(" ") };
    Err(Failure::usage("benchmarks are a program of their own", BENCH, way(&wanted)))
}

/// The program beside this one, or on the path.
///
/// # Errors
/// There is none; says how to get it.
pub fn find() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(BENCH))).filter(|path| path.is_file());
    let found = beside.or_else(|| super::find(BENCH.as_ref()));
    found.ok_or_else(|| Failure::usage("cannot find the benchmarks", BENCH, way("pager")))
}

fn way(wanted: &str) -> String {
    format!(
        "in a clone, 'cargo run --release -p {BENCH} -- {wanted}', or 'cargo install --path crates/{BENCH}' and \
         '{BENCH} {wanted}'"
    )
}
