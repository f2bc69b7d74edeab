//! `refault report`: the statistics of a run as one HTML file.

use std::path::PathBuf;

use clap::Args;
use refault_console::{Contents, Failure, ForceArgs, Outputs, say};

use crate::history::History;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault run --memory 512M --stats run.jsonl -- python3 analysis.py
  refault report run.jsonl                   writes run.html
  refault report run.jsonl --out paper.html")]
/// Make an HTML page of the statistics of a run
pub struct ReportArgs {
    /// The file that `refault run --stats` wrote
    #[arg(value_name = "FILE")]
    source: PathBuf,
    /// Where to write the page [default: the name of the statistics with .html]
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

/// Runs the command.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::new(args.force);
    outputs.reads(&args.source);
    let history = History::read(&args.source)?;
    if history.lives.is_empty() {
        let remedy = "wait for its first line, which comes after --stats-interval";
        return Err(Failure::usage("no statistics yet", args.source.display(), remedy));
    }
    let out = args.out.clone().unwrap_or_else(|| args.source.with_extension("html"));
    let output = outputs.claim("--out", Some(&out), Contents::Html)?.expect("invariant: a path was given");
    crate::report::write_run(output, &args.source.display().to_string(), &history)?;
    say(format_args!("report written to {}", out.display()));
    Ok(())
}
