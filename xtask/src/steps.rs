//! Running commands from the repository's root, each shown with the time that it took.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Why a task ended early: one line.
pub type Failure = String;

/// The repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in the repository").to_owned()
}

/// Runs a command, and says how long it took.
///
/// # Errors
/// It cannot be started, or fails.
pub fn step(words: &[&str]) -> Result<(), Failure> {
    let line = words.join(" ");
    println!("== {line}");
    let began = Instant::now();
    let status = command(words).status().map_err(|error| format!("{}: {error}", words[0]))?;
    println!("== took {:.1} s", began.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("failed: {line}")) }
}

/// What a command writes to standard output.
///
/// # Errors
/// It cannot be started, or fails.
pub fn output(words: &[&str]) -> Result<String, Failure> {
    let output = command(words).stderr(Stdio::inherit()).output().map_err(|error| format!("{}: {error}", words[0]))?;
    if !output.status.success() {
        return Err(format!("failed: {}", words.join(" ")));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{}: {error}", words[0]))
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(root());

    command
}
