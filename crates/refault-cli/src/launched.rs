//! Process ids that people give: `$!` after `refault run … &` is that of `refault`, and its program is meant.
//!
//! Cost: a look at the state of every process of the machine, where the id is of `refault` itself.

use std::path::Path;
use std::time::{Duration, Instant};

use refault_console::say;
use refault_pool::wss::with_children;

/// A program may not have begun when its id is asked about.
const WITHIN: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The program that a process runs which is `refault`; waits a moment for one that is about to begin.
pub fn program_of(pid: u32) -> Option<u32> {
    let until = Instant::now() + WITHIN;
    while is_refault(pid) {
        // Until it executes the program, a child is this program too.
        if let Some(program) = with_children(pid).into_iter().skip(1).find(|child| !is_refault(*child)) {
            return Some(program);
        }
        if Instant::now() > until {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    None
}

/// Whether a process runs `refault`, or has not yet a file that can be seen.
fn is_refault(pid: u32) -> bool {
    let Ok(file) = std::fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    let name =
        |path: &Path| path.file_name().map(|name| name.to_string_lossy().trim_end_matches(" (deleted)").to_owned());
    name(&file)
        .is_some_and(|file| file == "refault" || std::env::current_exe().is_ok_and(|own| name(&own) == Some(file)))
}

/// A process id on the command line: of `refault run` the one of its program, which is said.
///
/// # Errors
/// It is no number.
pub fn process(text: &str) -> Result<u32, String> {
    let pid = text.parse::<u32>().map_err(|error| error.to_string())?;
    Ok(match program_of(pid) {
        Some(program) => {
            say(format_args!("process {pid} is refault itself: its program is meant, process {program}"));
            program
        }
        None => pid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_not_ours_is_itself() {
        assert_eq!((process("1"), process("4000000000")), (Ok(1), Ok(4_000_000_000)));
        assert!(process("x").is_err() && process("-1").is_err());
    }
}
