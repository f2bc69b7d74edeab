//! `refault trace info`: what can be told of a trace by itself.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use refault_console::{Contents, Failure, ForceArgs, Outputs, Progress, say, with_output};
use refault_trace::heat_map::HeatMap;
use refault_trace::statistics::{Resolution, TraceStatistics};
use refault_trace::{Kind, ObjectsAs};
use serde_json::{Value, json};

use crate::source::{ReadArgs, memory_text, require_file, say_remarks};
use refault_console::text::{align_numbers, grouped, number, plain_table};
use refault_lab::size::bytes_text;
use refault_trace::{Format, FoundBy};

/// Spans of time and regions of pages; a terminal shows half as many of each.
const RESOLUTION: Resolution = Resolution { columns: 128, rows: 40 };
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const BAR: usize = 40;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault trace info app.u64.zst
  refault trace info --format json app.rft
  refault trace info --report app.html lackey.log.gz")]
/// Say what a trace holds: sizes, kinds, reuse distances, footprint, heat map
pub struct InfoArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    read: ReadArgs,
    /// How to write it
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: InfoFormat,
    /// Write pictures and tables as one HTML file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum InfoFormat {
    /// Text and pictures for people.
    Table,
    /// One object.
    Json,
}

/// Runs the command.
pub fn run(args: &InfoArgs) -> Result<(), Failure> {
    require_file(&args.file)?;
    let mut outputs = Outputs::new(args.force);
    outputs.reads(&args.file);
    let report = outputs.claim("--report", args.report.as_deref(), Contents::Html)?;
    let source = args.read.file(&args.file, true, ObjectsAs::OnePageEach)?;
    args.read.check_effect(std::slice::from_ref(&source))?;
    let format = source.format()?;
    let progress = Progress::part("reading");
    let statistics = TraceStatistics::of(&source, RESOLUTION, |part| progress.set(part))?;
    drop(progress);
    if statistics.accesses == 0 {
        return Err(Failure::usage("trace is empty", args.file.display(), "a trace has at least one access"));
    }
    let name = source.name();
    say_remarks(&name, &statistics.reading);
    with_output(None, |out| match args.format {
        InfoFormat::Table => write_text(out, &name, format, &statistics),
        InfoFormat::Json => write_json(out, &name, format, &statistics),
    })?;
    if let Some(report) = report {
        let path = report.path().display().to_string();
        crate::report::write_info(report, &name, &statistics)?;
        say(format_args!("report written to {path}"));
    }
    Ok(())
}

fn write_text(
    out: &mut dyn Write,
    name: &str,
    format: Option<(Format, FoundBy)>,
    statistics: &TraceStatistics,
) -> std::io::Result<()> {
    let share = |part: u64| 100.0 * part as f64 / statistics.accesses as f64;
    writeln!(out, "{name}\n")?;
    if let Some((format, found_by)) = format {
        writeln!(out, "{:<15} {} ({})", "format", format.name(), found_by.words())?;
    }
    for (what, how) in &statistics.details {
        writeln!(out, "{what:<15} {how}")?;
    }
    if let Some(time) = statistics.time {
        let took = took_text(time.last_ns.saturating_sub(time.first_ns));
        writeln!(out, "{:<15} {took} from the first access to the last", "time")?;
    }
    if let Some(bytes) = statistics.bytes {
        writeln!(out, "{:<15} {} in all accesses", "bytes", bytes_text(bytes))?;
    }
    writeln!(out, "accesses        {}", grouped(statistics.accesses))?;
    writeln!(
        out,
        "distinct pages  {} ({}): {} anonymous, {} file",
        grouped(statistics.distinct_pages),
        memory_text(&statistics.reading, statistics.distinct_pages),
        grouped(statistics.distinct_anon_pages),
        grouped(statistics.distinct_file_pages)
    )?;
    let (low, high) = statistics.page_range;
    writeln!(out, "page numbers    {low} to {high}")?;
    writeln!(out, "reads, writes   {:.2} %, {:.2} %\n", share(statistics.reads()), share(statistics.writes()))?;

    let mut kinds = plain_table();
    kinds.set_header(["kind", "reads", "writes", "% of accesses"]);
    for kind in [Kind::Anon, Kind::Fd, Kind::Mapped] {
        let count = statistics.kinds[kind as usize];
        let all = count.reads + count.writes;
        kinds.add_row([
            kind.name().to_string(),
            grouped(count.reads),
            grouped(count.writes),
            format!("{:.2}", share(all)),
        ]);
    }
    align_numbers(&mut kinds);
    write_lines(out, kinds.lines())?;

    writeln!(out, "\nReuse distance: distinct other pages since the last access to the page")?;
    write_lines(out, reuse_lines(statistics).into_iter())?;
    writeln!(out, "\nFootprint over time: distinct pages so far, and in each span of time")?;
    write_lines(out, footprint_lines(statistics).into_iter())?;
    writeln!(out, "\nHeat map: accesses by page number (down) and time (across), darkest most")?;
    write_lines(out, heat_lines(&statistics.heat_map).into_iter())
}

fn write_lines(out: &mut dyn Write, mut lines: impl Iterator<Item = String>) -> std::io::Result<()> {
    lines.try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}

/// The span of distances of a bucket of [`refault_trace::reuse::DistanceHistogram::log2_buckets`].
pub fn bucket_range(bucket: usize) -> (u64, u64) {
    if bucket == 0 { (0, 0) } else { (1 << (bucket - 1), (1u64 << bucket) - 1) }
}

fn reuse_lines(statistics: &TraceStatistics) -> Vec<String> {
    let buckets = statistics.reuse.log2_buckets();
    let cold = statistics.reuse.cold();
    let most = buckets.iter().copied().max().unwrap_or(0).max(cold).max(1);
    let line = |name: String, count: u64| {
        let bar = "█".repeat((count as f64 / most as f64 * BAR as f64).round() as usize);
        format!("  {name:>24} {:>6.2} %  {bar}", 100.0 * count as f64 / statistics.accesses as f64)
    };
    let mut lines: Vec<String> = buckets
        .iter()
        .enumerate()
        .map(|(bucket, count)| {
            let (low, high) = bucket_range(bucket);
            let name = if low == high { grouped(low) } else { format!("{} – {}", grouped(low), grouped(high)) };
            line(name, *count)
        })
        .collect();
    lines.push(line("first access".to_string(), cold));
    lines
}

fn footprint_lines(statistics: &TraceStatistics) -> Vec<String> {
    let sparkline = |values: Vec<u64>| {
        let most = values.iter().copied().max().unwrap_or(0).max(1);
        let level = |value: &u64| LEVELS[(*value as f64 / most as f64 * 8.0).ceil() as usize];
        (values.iter().map(level).collect::<String>(), most)
    };
    // Two spans make one column; what is distinct in both together is not known, so the larger stands for them.
    let pairs = statistics.footprint.chunks(2);
    let (so_far, most) = sparkline(pairs.clone().map(|pair| pair[pair.len() - 1].distinct_pages).collect());
    let (window, most_at_once) =
        sparkline(pairs.map(|pair| pair.iter().map(|point| point.window_pages).max().unwrap_or(0)).collect());
    let span = statistics.heat_map.accesses_per_column;
    vec![
        format!("  so far  {so_far}  up to {}", memory_text(&statistics.reading, most)),
        format!(
            "  a span  {window}  up to {} in {} accesses",
            memory_text(&statistics.reading, most_at_once),
            grouped(span)
        ),
    ]
}

fn heat_lines(heat: &HeatMap) -> Vec<String> {
    let halved: Vec<Vec<u64>> = heat
        .rows
        .chunks(2)
        .map(|rows| {
            let mut sums: Vec<u64> = rows[0].counts.clone();
            // Rows of different types stay apart in the report; here the half that is hotter stands for both.
            for row in &rows[1..] {
                sums.iter_mut().zip(&row.counts).for_each(|(sum, count)| *sum = (*sum).max(*count));
            }
            sums.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect()
        })
        .collect();
    let most = halved.iter().flatten().copied().max().unwrap_or(0).max(1);
    let shade = |count: &u64| SHADES[heat_level(*count, most, SHADES.len() - 1)];
    let labels = heat.rows.chunks(2).map(|rows| (rows[0].file, rows[0].first_page));
    labels
        .zip(&halved)
        .map(|((file, page), cells)| {
            let kind = if file { "file" } else { "anon" };
            format!("  {kind} {page:>12} │{}│", cells.iter().map(shade).collect::<String>())
        })
        .collect()
}

/// The shade of a count: 0 for none, then by equal factors up to `levels` for `most`.
pub fn heat_level(count: u64, most: u64, levels: usize) -> usize {
    if count == 0 {
        return 0;
    }
    let part = (count as f64).ln_1p() / (most as f64).ln_1p().max(f64::MIN_POSITIVE);
    ((part * levels as f64).ceil() as usize).clamp(1, levels)
}

fn write_json(
    out: &mut dyn Write,
    name: &str,
    format: Option<(Format, FoundBy)>,
    statistics: &TraceStatistics,
) -> std::io::Result<()> {
    let details: serde_json::Map<String, Value> =
        statistics.details.iter().map(|(what, how)| (what.replace(' ', "_"), json!(how))).collect();
    let kinds: Vec<Value> = [Kind::Anon, Kind::Fd, Kind::Mapped]
        .into_iter()
        .map(|kind| {
            let count = statistics.kinds[kind as usize];
            json!({ "kind": kind.name(), "reads": count.reads, "writes": count.writes })
        })
        .collect();
    let reuse: Vec<Value> = statistics
        .reuse
        .log2_buckets()
        .iter()
        .enumerate()
        .map(|(bucket, count)| {
            let (low, high) = bucket_range(bucket);
            json!({ "distance_low": low, "distance_high": high, "accesses": count })
        })
        .collect();
    let footprint: Vec<Value> = statistics
        .footprint
        .iter()
        .map(|point| {
            json!({
                "accesses": point.accesses,
                "distinct_pages": point.distinct_pages,
                "window_pages": point.window_pages,
            })
        })
        .collect();
    let heat: Vec<Value> = statistics
        .heat_map
        .rows
        .iter()
        .map(|row| {
            let kind = if row.file { "file" } else { "anon" };
            json!({ "type": kind, "first_page": row.first_page, "last_page": row.last_page, "accesses": row.counts })
        })
        .collect();
    let reading = statistics.reading.to_json();
    let object = json!({
        "trace": name,
        "remarks": reading["remarks"],
        "objects": reading["objects"],
        "format": format.map(|(format, _)| format.name()),
        "format_found": format.map(|(_, found_by)| found_by.words()),
        "read_as": details,
        "first_access_ns": statistics.time.map(|time| time.first_ns),
        "last_access_ns": statistics.time.map(|time| time.last_ns),
        "bytes": statistics.bytes,
        "accesses": statistics.accesses,
        "distinct_pages": statistics.distinct_pages,
        "distinct_anon_pages": statistics.distinct_anon_pages,
        "distinct_file_pages": statistics.distinct_file_pages,
        "first_page": statistics.page_range.0,
        "last_page": statistics.page_range.1,
        "reads": statistics.reads(),
        "writes": statistics.writes(),
        "kinds": kinds,
        "first_accesses": statistics.reuse.cold(),
        "reuse_distances": reuse,
        "footprint": footprint,
        "heat_map": { "accesses_per_column": statistics.heat_map.accesses_per_column, "rows": heat },
    });
    serde_json::to_writer(&mut *out, &object)?;
    writeln!(out)
}

/// Nanoseconds in a unit in which they are no 0: traces of microseconds are not traces of no time.
fn took_text(ns: u64) -> String {
    match ns as f64 {
        few if few < 1e3 => format!("{few} ns"),
        few if few < 1e6 => format!("{} µs", number(few / 1e3)),
        few if few < 1e9 => format!("{} ms", number(few / 1e6)),
        many => format!("{} s", number(many / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_of_microseconds_took_some_time() {
        let texts = [0, 15_000, 2_500_000, 90_000_000_000].map(took_text);
        assert_eq!(texts, ["0 ns", "15 µs", "2.5 ms", "90 s"]);
    }

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3].map(bucket_range), [(0, 0), (1, 1), (2, 3), (4, 7)]);
    }

    #[test]
    fn shades_grow_by_factors() {
        assert_eq!([0, 1, 10, 100, 1000].map(|count| heat_level(count, 1000, 4)), [0, 1, 2, 3, 4]);
        assert_eq!(heat_level(1, 1, 4), 4);
    }
}
