//! The results as table, CSV and JSON.

use std::io::Write;

use refault_console::Format;
use refault_console::text::{align_numbers, grouped, number, plain_table};
use refault_core::statistics;
use refault_lab::size::bytes_text;
use serde_json::{Value, json};

use super::Study;
use super::ladder::{Estimate, Row, Rung};
use super::words::rung_text;

/// Writes everything.
///
/// # Errors
/// Of the writer.
pub fn write(out: &mut dyn Write, study: &Study, format: Format) -> std::io::Result<()> {
    match format {
        Format::Table => write_table(out, study),
        Format::Csv => write_csv(out, study),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &to_json(study))?;
            writeln!(out)
        }
    }
}

/// The heads of the table.
pub const HEADS: [&str; 8] = [
    "memory",
    "time (s)",
    "longer",
    statistics::FAULTS.word,
    statistics::REFAULTS.word,
    "waited (s)",
    statistics::PEAK.word,
    "predicted",
];

/// All rows, the program alone first.
pub fn rows(study: &Study) -> impl Iterator<Item = &Row> {
    [&study.ladder.alone].into_iter().chain(&study.ladder.ample).chain(&study.ladder.budgets)
}

/// A row as the table shows it, under [`HEADS`].
pub fn cells(study: &Study, row: &Row) -> [String; 8] {
    let none = || "–".to_owned();
    let count = |value: Option<f64>| value.map_or_else(none, |value| grouped(value.round() as u64));
    let longer = match row.rung {
        rung if rung == study.ladder.baseline().rung => none(),
        // A run that was looked at is no measure of one that was not.
        Rung::Alone if study.ladder.is_looked_at() => none(),
        _ if row.is_given_up() => format!("> {} times", number(study.give_up)),
        _ => part_text(study.ladder.longer(row).part),
    };
    let mut name = rung_text(row.rung);
    if study.ladder.needs().is_some_and(|needs| needs.rung == row.rung) {
        name.push('*');
    }
    [
        name,
        match row {
            row if row.is_given_up() => "given up".to_owned(),
            row if row.is_unfinished() => format!("{}, ended", seconds_text(row.seconds())),
            row => seconds_text(row.seconds()),
        },
        longer,
        count(row.mean(|summary| summary.faults as f64)),
        count(row.mean(|summary| summary.refaults as f64)),
        row.mean(|summary| summary.waited_seconds).map_or_else(none, |waited| format!("{waited:.2}")),
        row.peak_bytes().map_or_else(none, bytes_text),
        study.predicted(row.rung).map_or_else(none, |(pages, part)| {
            let part = part.map_or_else(String::new, |part| format!(", {}", part_text(part)));
            format!("{}{part}", grouped(pages.round() as u64))
        }),
    ]
}

fn seconds_text(seconds: Estimate) -> String {
    let digits = if seconds.mean < 1.0 { 3 } else { 2 };
    match seconds.deviation {
        Some(deviation) => format!("{:.digits$} ± {deviation:.digits$}", seconds.mean),
        None => format!("{:.digits$}", seconds.mean),
    }
}

/// `+4.2 %`, or `2.3 times` from twice as long on.
pub fn part_text(part: f64) -> String {
    if part >= 1.0 { format!("{} times", number(1.0 + part)) } else { format!("{:+.1} %", part * 100.0) }
}

fn write_table(out: &mut dyn Write, study: &Study) -> std::io::Result<()> {
    for line in study.verdict() {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    let mut table = plain_table();
    table.set_header(HEADS);
    for row in rows(study) {
        table.add_row(cells(study, row));
    }
    align_numbers(&mut table);
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out)?;
    let times = times(study);
    let than = match study.ladder.is_looked_at() {
        true => "by what threads waited".to_owned(),
        false => format!("than {}", rung_text(study.ladder.baseline().rung)),
    };
    writeln!(
        out,
        "{times}; longer: {than}; refaults: pages\n\
         brought back, then as predicted with the time; waited: seconds that threads waited for pages, those\n\
         touched first included, summed over threads; peak: the most that was used. * the smallest that is enough.",
    )?;
    writeln!(out)?;
    study.comparison().iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// What times are of.
pub fn times(study: &Study) -> String {
    match rows(study).map(|row| row.outcomes.len()).max().unwrap_or(0) {
        0 | 1 => "Times are of one run each".to_owned(),
        runs => format!("Times are mean ± standard deviation of up to {runs} runs, taken in turn"),
    }
}

fn write_csv(out: &mut dyn Write, study: &Study) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "memory",
        "memory_bytes",
        "runs",
        "given_up",
        "unfinished",
        "seconds",
        "seconds_sd",
        "longer",
        "longer_standard_error",
        "enough",
        "faults",
        statistics::REFAULTS.name,
        statistics::STORED.name,
        statistics::WAITED.name,
        "peak_bytes",
        "predicted_refaults",
        "predicted_longer",
    ])?;
    let text = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for row in rows(study) {
        let (seconds, longer) = (row.seconds(), study.ladder.longer(row));
        let predicted = study.predicted(row.rung);
        csv.write_record([
            name(row.rung).to_owned(),
            bytes(row.rung).map_or(String::new(), |bytes| bytes.to_string()),
            row.outcomes.len().to_string(),
            row.is_given_up().to_string(),
            row.is_unfinished().to_string(),
            seconds.mean.to_string(),
            text(seconds.deviation),
            longer.part.to_string(),
            text(longer.standard_error),
            enough(study, row).map_or(String::new(), |enough| enough.to_string()),
            text(row.mean(|summary| summary.faults as f64)),
            text(row.mean(|summary| summary.refaults as f64)),
            text(row.mean(|summary| summary.stored as f64)),
            text(row.mean(|summary| summary.waited_seconds)),
            row.peak_bytes().map_or(String::new(), |peak| peak.to_string()),
            text(predicted.map(|(pages, _)| pages)),
            text(predicted.and_then(|(_, part)| part)),
        ])?;
    }
    csv.flush()
}

fn name(rung: Rung) -> &'static str {
    match rung {
        Rung::Alone => "alone",
        Rung::Ample(_) => "ample",
        Rung::Budget(_) => "budget",
    }
}

fn bytes(rung: Rung) -> Option<u64> {
    match rung {
        Rung::Alone => None,
        Rung::Ample(bytes) | Rung::Budget(bytes) => Some(bytes),
    }
}

fn enough(study: &Study, row: &Row) -> Option<bool> {
    matches!(row.rung, Rung::Budget(_)).then(|| study.ladder.is_enough(row))
}

fn to_json(study: &Study) -> Value {
    let baseline = study.ladder.baseline();
    json!({
        "program": study.program,
        "load": study.load,
        "policy": study.policy,
        "slowdown": study.ladder.slowdown,
        "baseline": name(baseline.rung),
        "thorough": study.thorough,
        "measurable": study.is_measurable,
        "stands": study.ladder.stands(),
        "needs_bytes": study.ladder.needs().and_then(|row| bytes(row.rung)),
        "too_little_bytes": study.ladder.too_little().and_then(|row| bytes(row.rung)),
        "predicted_needs_bytes": study.predicted_need(),
        "verdict": study.verdict(),
        "comparison": study.comparison(),
        "prediction": study.prediction.as_ref().ok().map(|prediction| json!({
            "interval_ms": prediction.interval_ms,
            "recordings": prediction.recordings().len(),
            "footprint_bytes": prediction.footprint_bytes(),
            "knee_bytes": prediction.knee_bytes(),
            "seconds_per_page": prediction.seconds_per_page,
        })),
        "runs": rows(study).map(|row| json_row(study, row)).collect::<Vec<_>>(),
    })
}

fn json_row(study: &Study, row: &Row) -> Value {
    let (seconds, longer) = (row.seconds(), study.ladder.longer(row));
    let predicted = study.predicted(row.rung);
    json!({
        "memory": name(row.rung),
        "memory_bytes": bytes(row.rung),
        "seconds": row.outcomes.iter().map(|outcome| outcome.seconds).collect::<Vec<_>>(),
        "given_up": row.is_given_up(),
        "unfinished": row.is_unfinished(),
        "seconds_mean": seconds.mean,
        "seconds_sd": seconds.deviation,
        "longer": longer.part,
        "longer_standard_error": longer.standard_error,
        "enough": enough(study, row),
        "noisy": study.ladder.is_noisy(row),
        "faults": row.mean(|summary| summary.faults as f64),
        "refaults": row.mean(|summary| summary.refaults as f64),
        "stored": row.mean(|summary| summary.stored as f64),
        "waited_seconds": row.mean(|summary| summary.waited_seconds),
        "peak_bytes": row.peak_bytes(),
        "predicted_refaults": predicted.map(|(pages, _)| pages),
        "predicted_longer": predicted.and_then(|(_, part)| part),
    })
}
