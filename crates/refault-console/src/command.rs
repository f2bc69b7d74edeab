//! What a command line's parser says, as every command says it: help in the terminal's width, refusals in one line.

use clap::error::ErrorKind;
use clap::{Command, Error};

/// The command with the prose below its help, and that of its subcommands, in lines as long as paragraphs: the
/// terminal's width breaks them then, and nothing else.
pub fn reflowed(command: Command) -> Command {
    let below = command.get_after_help().map(|text| paragraphs(&text.to_string()));
    let command = command.mut_subcommands(reflowed);
    match below {
        Some(below) => command.after_help(below),
        None => command,
    }
}

/// Whether an error is no refusal but help or a version that was asked for.
pub fn is_answer(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// Why a command line is refused, without what clap says of usage and help.
///
/// ```
/// use clap::{Arg, Command};
///
/// let command = Command::new("dig").arg(Arg::new("depth").long("depth"));
/// let error = command.try_get_matches_from(["dig", "--wide"]).unwrap_err();
/// assert_eq!(refault_console::command::refusal(&error), "unexpected argument '--wide' found");
/// ```
pub fn refusal(error: &Error) -> String {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let first = lines.next().unwrap_or("").trim_start_matches("error: ").to_string();
    let rest: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    let what = match first.strip_suffix(':') {
        _ if rest.is_empty() => first,
        Some(first) => format!("{first}: {}", rest.join("; ")),
        None => format!("{first}; {}", rest.join("; ")),
    };
    // The standard library's words for a number with a sign or letters.
    what.replace("invalid digit found in string", "it must be a whole number, 0 or more")
}

/// Joins lines of prose; headings, which end with a colon, and what is indented stay lines.
fn paragraphs(text: &str) -> String {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut joined = String::new();
    let mut last = "";
    for line in text.lines() {
        if !joined.is_empty() {
            let goes_on = is_prose(last) && !last.ends_with(':') && is_prose(line);
            joined.push(if goes_on { ' ' } else { '\n' });
        }
        joined.push_str(line);
        last = line;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_below_help_is_broken_by_the_terminal_alone() {
        let text = "Examples:\n  refault a\n  refault b\n\nOne sentence that\ngoes on.\n\nColumns:\na, b";
        assert_eq!(
            paragraphs(text),
            "Examples:\n  refault a\n  refault b\n\nOne sentence that goes on.\n\nColumns:\na, b"
        );
    }
}
