//! `refault ask`: what real kernels do with a workload, beside what the model says.
//!
//! The crate `refault-ask` boots the kernels; this command says what to ask, and shows the answers.

mod args;
mod program;
mod pulse;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use refault_ask::answers::{self, Answer, Wanted};
use refault_ask::emulator;
use refault_ask::job::{COUNTERS, Counters, Job, Lists};
use refault_ask::kernel::Kernel;
use refault_ask::model::{self, Compared};
use refault_ask::published;
use refault_ask::sequence::Sequence;
use refault_console::text::{align_numbers, grouped, number, plain_table};
use refault_console::{Failure, Format, Progress, say, with_output};
use refault_lab::size::Size;
use refault_trace::{ObjectsAs, Source, WorkloadSpec};

pub use args::AskArgs;

/// What of a workload is in memory unless it is said.
const HALF: Size = Size::Share(500_000);

/// Counters that a table shows, if they are not 0 everywhere.
const SHOWN: [&str; 8] = [
    "loads",
    "pswpout",
    "pgscan",
    "pgsteal",
    "pgactivate",
    "pgdeactivate",
    "workingset_refault_file",
    "workingset_refault_anon",
];

/// Runs the command.
pub fn run(args: &AskArgs) -> Result<(), Failure> {
    if !args.program.is_empty() {
        return program::run(args);
    }
    if let Some(pulse) = args.workload.as_deref().and_then(|text| text.strip_prefix(pulse::PREFIX)) {
        return pulse::run(args, pulse);
    }
    let mut outputs = args.result.outputs();
    let (format, out) = args.result.claim(&mut outputs)?;
    let source = source(args)?;
    let sequence = Sequence::read(&source)?;
    let limit = args.memory.unwrap_or(HALF).pages(sequence.distinct);
    let job = job(args, &sequence, limit)?;
    if sequence.file_writes > 0 {
        say(format_args!("{} writes to file pages are asked as reads", grouped(sequence.file_writes)));
    }
    let cache = refault_ask::cache_directory();
    let name = source.name();
    let mut found = Vec::new();
    for kernel in &args.kernels {
        found.extend(answered(args, kernel, &cache, &name, &job, &sequence)?);
    }
    let rows = model::beside(&source, found, &Progress::new("replaying"))?;
    with_output(out, |out| match format {
        Format::Table => write_table(out, &source, &rows, args.all),
        Format::Csv => write_csv(out, &source, &rows),
        Format::Json => write_json(out, &source, &rows),
    })
}

/// What is asked about: a file if there is one of the name, else a generated workload.
fn source(args: &AskArgs) -> Result<Source, Failure> {
    let workload = args.workload.as_deref().unwrap_or_default();
    let path = PathBuf::from(workload);
    if path.exists() || !workload.contains(':') {
        return args.read.file(&path, true, ObjectsAs::OnePageEach);
    }
    let spec: WorkloadSpec = workload.parse()?;
    Ok(Source::workload(spec).part(args.read.part()))
}

fn job(args: &AskArgs, sequence: &Sequence, limit: u64) -> Result<Job, Failure> {
    let accesses = sequence.entries.len() as u64;
    if args.warm_up >= accesses {
        let remedy = format!("the workload has {} accesses", grouped(accesses));
        return Err(Failure::usage("nothing would be counted", format_args!("--warm-up {}", args.warm_up), remedy));
    }
    if sequence.file * refault_lab::size::PAGE_BYTES > refault_ask::iso::MAX_BYTES {
        let remedy = "ask about a smaller workload, or a sample of it";
        return Err(Failure::usage(
            "the guest's file would be larger than 4 GiB",
            args.workload.as_deref().unwrap_or_default(),
            remedy,
        ));
    }
    Ok(Job {
        limit,
        swappiness: args.swappiness,
        anon: sequence.anon,
        file: sequence.file,
        mapped: sequence.mapped,
        accesses,
        warm_up: args.warm_up,
    })
}

/// The answers of one kernel: those that are known, and the others asked for now.
fn answered(
    args: &AskArgs,
    kernel: &str,
    cache: &Path,
    workload: &str,
    job: &Job,
    sequence: &Sequence,
) -> Result<Vec<Answer>, Failure> {
    let kept = if args.again { Vec::new() } else { answers::kept(cache)? };
    let shipped = if args.again { &[] } else { answers::shipped() };
    let find = |kernel: &str, lists: Lists| {
        let wanted = Wanted {
            kernel,
            lists,
            digest: sequence.digest,
            limit: job.limit,
            swappiness: job.swappiness,
            warm_up: job.warm_up,
        };
        wanted.find(shipped.iter().chain(&kept)).cloned()
    };
    let lists = args.lists.all();
    let known: Vec<Answer> = lists.iter().filter_map(|lists| find(kernel, *lists)).collect();
    if known.len() == lists.len() {
        say(format_args!("kernel {kernel} was asked this before: its answer is shown (--again asks again)"));
        return Ok(known);
    }
    let found = Kernel::find(kernel, cache, args.again, &|line| say(line))?;
    let known: Vec<Answer> = lists.iter().filter_map(|lists| find(&found.release, *lists)).collect();
    if known.len() == lists.len() {
        return Ok(known);
    }
    say(format_args!("asking {} about {} accesses; that takes minutes", found.release, grouped(job.accesses)));
    let (progress, begun) = (Progress::part("asking"), Instant::now());
    let answered = emulator::ask(&found, job, &lists, &sequence.entries, &|part| progress.set(part))?;
    drop(progress);
    let by = answered.accelerator.name();
    say(format_args!("{} answered in {:.0} s ({by})", found.release, begun.elapsed().as_secs_f64()));
    let answer = |(lists, counters): (&Lists, Counters)| Answer {
        kernel: found.release.clone(),
        lists: *lists,
        workload: workload.to_owned(),
        digest: sequence.digest,
        accesses: job.accesses,
        distinct: sequence.distinct,
        warm_up: job.warm_up,
        limit: job.limit,
        swappiness: job.swappiness,
        by: by.to_owned(),
        counters,
    };
    let new: Vec<Answer> = lists.iter().zip(answered.counters).map(answer).collect();
    answers::keep(cache, &new)?;
    Ok(new)
}

fn write_table(out: &mut dyn Write, source: &Source, rows: &[Compared], all: bool) -> std::io::Result<()> {
    let mut table = plain_table();
    let names: &[&str] = if all { &COUNTERS } else { &SHOWN };
    let of = |row: &Compared, name: &str| published::counter(source, row.answer.lists, name);
    let is_published = rows.iter().any(|row| names.iter().any(|name| of(row, name).is_some()));
    let mut header = vec!["kernel", "lists", "counter", "kernel's", "model's", "off by"];
    header.extend(is_published.then_some("published"));
    table.set_header(header);
    for row in rows {
        for name in names {
            let (kernel, model) = (row.answer.counters.get(*name), row.model.get(*name));
            let of_document = of(row, name);
            if !all
                && of_document.is_none()
                && kernel.is_none_or(|value| *value == 0)
                && model.is_none_or(|value| *value == 0)
            {
                continue;
            }
            let text = |value: Option<&u64>| value.map_or("–".to_owned(), |value| grouped(*value));
            let off = row.off(name).map_or("–".to_owned(), |off| format!("{off:+.2} %"));
            let lists = row.answer.lists.name();
            let mut cells =
                [&row.answer.kernel, lists, name, &text(kernel), &text(model), &off].map(str::to_owned).to_vec();
            cells.extend(is_published.then(|| of_document.map_or("–".to_owned(), number)));
            table.add_row(cells);
        }
    }
    align_numbers(&mut table);
    writeln!(out, "{}", table.trim_fmt())?;
    let loads = rows.iter().filter_map(|row| row.off("loads"));
    if let Some(furthest) = loads.map(f64::abs).reduce(f64::max) {
        writeln!(
            out,
            "\nThe model's loads lie within {} % of the kernels'.",
            number((furthest * 100.0).ceil() / 100.0)
        )?;
    }
    if let Some(row) = rows.first() {
        let answer = &row.answer;
        let (limit, distinct) = (grouped(answer.limit), grouped(answer.distinct));
        writeln!(
            out,
            "{}: {} accesses, {limit} of {distinct} pages in memory.",
            answer.workload,
            grouped(answer.accesses)
        )?;
        if let Some(text) = not_held_text(answer.limit) {
            writeln!(out, "{text}")?;
        }
    }
    Ok(())
}

/// The least memory at which tests hold the model to kernels, in pages.
const MIN_HELD_PAGES: u64 = 4096;

/// That the model is not held to kernels at a limit.
fn not_held_text(limit: u64) -> Option<String> {
    (limit < MIN_HELD_PAGES).then(|| {
        format!(
            "Tests hold the model to kernels from {} of memory on. With less, a kernel's batches of pages are a large \
             part of it, and loads can differ by far more than 1 %.",
            refault_lab::size::bytes_text(MIN_HELD_PAGES * refault_lab::size::PAGE_BYTES)
        )
    })
}

fn write_csv(out: &mut dyn Write, source: &Source, rows: &[Compared]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "kernel",
        "lists",
        "workload",
        "accesses",
        "warm_up",
        "limit",
        "swappiness",
        "by",
        "counter",
        "value",
        "model",
        "policy",
        "published",
    ])?;
    for row in rows {
        let answer = &row.answer;
        for name in COUNTERS {
            let text = |value: Option<&u64>| value.map_or(String::new(), u64::to_string);
            csv.write_record([
                answer.kernel.clone(),
                answer.lists.name().to_owned(),
                answer.workload.clone(),
                answer.accesses.to_string(),
                answer.warm_up.to_string(),
                answer.limit.to_string(),
                answer.swappiness.to_string(),
                answer.by.clone(),
                name.to_owned(),
                text(answer.counters.get(name)),
                text(row.model.get(name)),
                row.policy.to_owned(),
                published::counter(source, answer.lists, name).map_or(String::new(), |value| value.to_string()),
            ])?;
        }
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, source: &Source, rows: &[Compared]) -> std::io::Result<()> {
    let row = |row: &Compared| {
        let answer = &row.answer;
        let published =
            COUNTERS.into_iter().filter_map(|name| Some((name, published::counter(source, answer.lists, name)?)));
        let published: std::collections::BTreeMap<&str, f64> = published.collect();
        serde_json::json!({
            "kernel": answer.kernel,
            "lists": answer.lists.name(),
            "workload": answer.workload,
            "accesses": answer.accesses,
            "warm_up": answer.warm_up,
            "limit": answer.limit,
            "swappiness": answer.swappiness,
            "by": answer.by,
            "counters": answer.counters,
            "published": published,
            "model": {"policy": row.policy, "counters": row.model},
        })
    };
    let rows: Vec<serde_json::Value> = rows.iter().map(row).collect();
    serde_json::to_writer(&mut *out, &serde_json::json!({ "answers": rows }))?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_memory_than_any_that_tests_hold_the_model_at_is_said() {
        let table = refault_testing::kernel_table("results.csv");
        let mut lines = table.lines();
        let at =
            lines.next().and_then(|head| head.split(',').position(|name| name == "limit_pages")).expect("a column");
        let least = lines.filter_map(|line| line.split(',').nth(at)?.parse::<u64>().ok()).min();
        assert_eq!(least, Some(MIN_HELD_PAGES));
        assert!(not_held_text(4096).is_none());
        assert!(not_held_text(100).is_some_and(|text| text.contains("from 16 MiB of memory on")));
    }
}
