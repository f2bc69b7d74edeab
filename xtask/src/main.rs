//! `cargo xtask TASK`: tasks of those who change refault.
//!
//! Each task is a module. A task runs the tools that a person would, shows each command before it, and ends with the
//! first that fails.

mod deny;
mod publish;
mod quick;
mod release;
mod sbom;
mod steps;

use std::io::Write;
use std::process::ExitCode;

const TASKS: &str = "\
cargo xtask quick              format, lints and tests of what changed against main, and of core, trace and sim
cargo xtask deny               licences and sources of all dependencies by deny.toml
cargo xtask publish --dry-run [--verify]
                               what the registry would be given, in order; --verify builds each from its package
cargo xtask release [--quick]  tarball, .deb, wheel, sdist, SBOM and checksums in target/release-VERSION
                               --quick: without the wheel and the sdist
cargo xtask sbom               the SBOM alone, to standard output: CycloneDX 1.5 in JSON";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["quick"] => quick::run(),
        ["deny"] => deny::run(),
        ["publish", "--dry-run"] => publish::dry_run(false),
        ["publish", "--dry-run", "--verify"] => publish::dry_run(true),
        ["release"] => release::run(true),
        ["release", "--quick"] => release::run(false),
        ["sbom"] => sbom::of_workspace().and_then(|sbom| {
            writeln!(std::io::stdout(), "{sbom:#}").map_err(|error| format!("standard output: {error}"))
        }),
        _ => {
            eprintln!("{TASKS}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
