//! Options that do not exist: the one that was meant is named.
//!
//! Commands that end with a program take all behind its name for the program's. In front of the program, clap would
//! take an option that it does not know for the program itself. Here the command line is looked through first. What
//! other tools call an option is in [`SYNONYMS`]; else the most similar name is meant.

pub mod absent;

use clap::{ArgAction, Command};
use refault_console::Failure;
use refault_trace::similar::most_similar;

/// What others call it, and what it is called here, the first that the command has.
const SYNONYMS: &[(&[&str], &[&str])] = &[
    (
        &["-m", "--mem", "--ram", "--limit", "--budget", "--memory-limit", "--mem-limit", "--max-memory"],
        &["memory", "budgets"],
    ),
    (&["--memory-max", "--cache-size", "--size", "--capacity", "--rss", "--as"], &["memory", "budgets"]),
    (&["--memory-low", "--memory-reservation", "--reservation", "--soft-limit"], &["low"]),
    (&["--memory-min"], &["min"]),
    (&["-o", "--output", "--out-file", "--outfile", "--file", "--write"], &["out", "summary"]),
    (&["--export-json", "--json"], &["format", "summary"]),
    (&["--csv", "--export-csv", "-f", "--output-format"], &["format"]),
    (&["-p", "--process", "--process-id", "--pids", "--attach"], &["pid"]),
    (&["--group", "--cg", "--control-group"], &["cgroup"]),
    (&["-i", "--period", "--every", "--delay", "-d"], &["interval", "stats-interval"]),
    (&["-n", "-r", "--repeat", "--iterations", "--times", "--min-runs"], &["runs"]),
    (&["--html"], &["report"]),
    (&["-a", "--algorithm", "--algo", "--algorithms", "--eviction", "--eviction-algo"], &["policy"]),
    (&["-j", "--threads", "--num-thread", "--num-threads"], &["jobs"]),
    (&["-q", "--silent"], &["quiet"]),
    (&["--log", "--metrics", "--statistics"], &["stats"]),
    (&["--swap", "--swapfile", "--backing"], &["store"]),
    (&["--timeout"], &["give-up", "load-timeout", "wait"]),
    (&["--trace-type", "--input-format"], &["trace-format"]),
    (&["--window", "--windows", "--age", "--for", "--duration"], &["ages", "for"]),
    (&["-t", "--live"], &["watch"]),
];

/// The option of a command that was meant by one that it does not have.
pub fn meant(command: &Command, given: &str) -> Option<String> {
    let name = given.split('=').next().unwrap_or(given);
    let has = |long: &&str| command.get_arguments().any(|argument| argument.get_long() == Some(long));
    let synonym = SYNONYMS.iter().find(|(others, _)| others.contains(&name)).map(|(_, own)| own.iter().copied());
    let synonym = synonym.and_then(|mut own| own.find(has));
    let longs = || {
        command.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(|argument| argument.get_long())
    };
    let similar = || most_similar(name.strip_prefix("--")?, longs());
    synonym.or_else(similar).map(|long| format!("--{long}"))
}

/// Refuses an option that the command does not have and that stands where its program would begin.
///
/// # Errors
/// Names the option, and the one that was meant.
pub fn check(root: &Command, arguments: &[String]) -> Result<(), Failure> {
    let (mut command, mut rest) = (root, arguments);
    while let Some((first, behind)) = rest.split_first() {
        let Some(found) = command.find_subcommand(first) else { break };
        (command, rest) = (found, behind);
    }
    if !command.get_arguments().any(clap::Arg::is_trailing_var_arg_set) {
        return Ok(());
    }
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        let (name, value) =
            argument.split_once('=').map_or((argument.as_str(), None), |(name, value)| (name, Some(value)));
        if argument == "--" || argument == "-" || !argument.starts_with('-') {
            return Ok(());
        }
        let is_known = |known: &&clap::Arg| match name.strip_prefix("--") {
            Some(long) => known.get_long() == Some(long),
            // A letter may have its value behind it.
            None => known.get_short().is_some_and(|short| name[1..].starts_with(short)),
        };
        let Some(known) = command.get_arguments().find(is_known) else {
            let tip = match meant(command, argument) {
                Some(meant) => format!("; tip: a similar argument exists: '{meant}'"),
                None => "; tip: what begins with '-' and is the program's own goes behind the program, or behind '--'"
                    .to_owned(),
            };
            let remedy = format!("see 'refault {} --help'", command.get_name());
            return Err(Failure::usage("wrong usage", format!("unexpected argument '{name}' found{tip}"), remedy));
        };
        let takes_value = matches!(known.get_action(), ArgAction::Set | ArgAction::Append);
        if takes_value && value.is_none() && name.starts_with("--") {
            rest.next();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn told(line: &str) -> Option<String> {
        let mut root = crate::Cli::command();
        root.build();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        check(&root, &words).err().map(|failure| failure.line().to_owned())
    }

    #[test]
    fn an_option_before_the_program_is_the_commands() {
        for (line, meant) in [
            ("run --mem 1G true", "'--memory'"),
            ("run --mem=1G -- true", "'--memory'"),
            ("run -m 1G true", "'--memory'"),
            ("run --memroy 1G true", "'--memory'"),
            ("run --memory 1G --output x true", "'--summary'"),
            ("run --watch --algorithm lru true", "'--policy'"),
            ("size --budget 1G true", "'--budgets'"),
            ("wss --age 1s true", "'--ages'"),
            ("wss --for 1s true", "'--ages'"),
            ("record --output x true", "'--out'"),
            ("run --memory 1G --zzzz true", "behind '--'"),
        ] {
            let said = told(line).unwrap_or_else(|| panic!("{line} is taken"));
            assert!(said.contains("unexpected argument") && said.contains(meant), "{line}: {said}");
        }
        for line in [
            "run --memory 1G true --mem 1G",
            "run --memory 1G -- --mem",
            "run --memory=1G true",
            "run --help",
            "size -h",
            "run --slowdown 5% --memory 1G --quiet sh -c x",
            "compare --mem 1G",
            "",
        ] {
            assert_eq!(told(line), None, "{line}");
        }
    }

    #[test]
    fn synonyms_are_of_options_that_some_command_has() {
        let mut root = crate::Cli::command();
        root.build();
        let mut commands: Vec<&Command> = root.get_subcommands().collect();
        commands.extend(root.get_subcommands().flat_map(Command::get_subcommands));
        let has =
            |long: &str| commands.iter().any(|command| command.get_arguments().any(|one| one.get_long() == Some(long)));
        for (others, own) in SYNONYMS {
            assert!(own.iter().all(|long| has(long)), "{own:?}");
            assert!(others.iter().all(|other| other.starts_with('-')), "{others:?}");
        }
    }
}
