//! `refault completions` and `refault man`: what shells and manuals need, generated from the command line itself.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use refault_console::Failure;
use refault_console::with_output;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault completions bash > ~/.local/share/bash-completion/completions/refault
  refault completions zsh > ~/.zfunc/_refault")]
/// Print a completion script for a shell
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault man --out ~/.local/share/man/man1         then: man refault-compare")]
/// Write a manual page for each command
pub struct ManArgs {
    /// The output directory; created if missing
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
}

/// Runs `refault completions`.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "refault", &mut script);
    with_output(None, |out| out.write_all(&script))
}

/// Runs `refault man`.
pub fn run_man(args: &ManArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.out).map_err(|error| Failure::write(args.out.display(), &error))?;
    clap_mangen::generate_to(crate::Cli::command(), &args.out)
        .map_err(|error| Failure::write(args.out.display(), &error))
}
