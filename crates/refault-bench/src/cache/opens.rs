//! `refault-bench opens`: what it costs to open a file in a page cache and to close it, beside the same without a cache.
//!
//! Both do the same to the same files, one round after the other, so that what disturbs one disturbs the other; the ratio is
//! of each pair of rounds, and the median of these is shown.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use refault_cache::{CacheOptions, PageCache};
use refault_console::text::{align_numbers, plain_table};
use refault_console::{Failure, with_output};

use crate::median;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault-bench opens
  refault-bench opens --directory /mnt/disk --runs 51")]
/// Measure what opening and closing a file in the page cache costs, beside open(2) and close(2)
pub struct OpensArgs {
    /// Pairs of rounds of each row; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=9999))]
    runs: u32,
    /// Files that a round opens and closes
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    files: u32,
    /// Directory of the files, which are removed afterwards
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
}

/// What is done to each file by one call, with a cache and without.
type Pair<'a> = (&'static str, Box<dyn Fn(&PathBuf) + 'a>, Box<dyn Fn(&PathBuf) + 'a>);

const OPENED: &str = "invariant: it was opened before, by this program";

/// Runs the command.
pub fn run(args: &OpensArgs) -> Result<(), Failure> {
    let unwritable = |error: &std::io::Error| Failure::write(args.directory.display(), error);
    let directory = tempfile::tempdir_in(&args.directory).map_err(|error| unwritable(&error))?;
    let paths: Vec<PathBuf> = (0..args.files).map(|number| directory.path().join(format!("file{number}"))).collect();
    for path in &paths {
        std::fs::write(path, [1; 4096]).map_err(|error| unwritable(&error))?;
    }
    let cache =
        PageCache::new(&CacheOptions::default()).map_err(|error| Failure::failed("no cache", "64 MiB", error))?;
    let held: Result<Vec<_>, _> = paths.iter().map(|path| cache.open(path)).collect();
    // They can all be opened, so that what is measured needs no errors of its own.
    let held = held.map_err(|error| Failure::failed("no direct I/O", args.directory.display(), error))?;
    let again = measure(&pair("open again", &cache, false), &paths, args.runs);
    drop(held);
    let rows = [
        measure(&pair("open to read", &cache, false), &paths, args.runs),
        measure(&pair("open to write", &cache, true), &paths, args.runs),
        again,
    ];
    with_output(None, |out| write(out, &rows))
}

/// Opens a file and closes it.
fn pair<'a>(name: &'static str, cache: &'a PageCache, writes: bool) -> Pair<'a> {
    let cached = move |path: &PathBuf| drop(cache.options().write(writes).open(path).expect(OPENED));
    let plain = move |path: &PathBuf| drop(File::options().read(true).write(writes).open(path).expect(OPENED));
    (name, Box::new(cached), Box::new(plain))
}

/// Name, microseconds with a cache and without, and their ratio.
type Row = (&'static str, f64, f64, f64);

fn measure((name, cached, plain): &Pair<'_>, paths: &[PathBuf], runs: u32) -> Row {
    let round = |call: &dyn Fn(&PathBuf)| {
        let begun = Instant::now();
        paths.iter().for_each(call);
        begun.elapsed().as_secs_f64() * 1e6 / paths.len() as f64
    };
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first pair warms up.
    for run in 0..=runs {
        let (cached, plain) = match run % 2 {
            0 => (round(cached), round(plain)),
            _ => {
                let plain = round(plain);
                (round(cached), plain)
            }
        };
        if run > 0 {
            with.push(cached);
            without.push(plain);
            ratios.push(cached / plain);
        }
    }
    (name, median(with), median(without), median(ratios))
}

fn write(out: &mut dyn Write, rows: &[Row]) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header(["", "in a cache, µs", "plain, µs", "times"]);
    for (name, cached, plain, ratio) in rows {
        table.add_row([(*name).to_owned(), format!("{cached:.2}"), format!("{plain:.2}"), format!("{ratio:.2}")]);
    }
    align_numbers(&mut table);
    writeln!(out, "{table}")
}
