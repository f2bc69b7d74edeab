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
  refault man run | man -l -
  refault man --out ~/.local/share/man/man1         then: man refault-compare")]
/// Print the manual page of a command, or write those of all
pub struct ManArgs {
    /// Write a page for each command to this directory; created if missing
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// The command whose page is printed, such as 'run' or 'trace info' [default: refault itself]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
}

/// Runs `refault completions`.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "refault", &mut script);
    with_output(None, |out| out.write_all(&script))
}

/// Runs `refault man`.
pub fn run_man(args: &ManArgs) -> Result<(), Failure> {
    let Some(out) = &args.out else { return print_page(&args.command) };
    std::fs::create_dir_all(out).map_err(|error| Failure::write(out.display(), &error))?;
    clap_mangen::generate_to(crate::Cli::command(), out).map_err(|error| Failure::write(out.display(), &error))
}

fn print_page(path: &[String]) -> Result<(), Failure> {
    let mut command = crate::Cli::command();
    command.build();
    for name in path {
        let Some(found) = command.find_subcommand(name) else {
            let remedy = format!("'{} --help' lists the commands", command.get_bin_name().unwrap_or("refault"));
            return Err(Failure::usage("no such command", path.join(" "), remedy));
        };
        command = found.clone();
    }
    let title = command.get_bin_name().unwrap_or("refault").replace(' ', "-");
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).title(title).render(&mut page);
    rendered.map_err(|error| Failure::write("a manual page", &error))?;
    with_output(None, |out| out.write_all(&page))
}
