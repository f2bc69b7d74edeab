//! What `refault host` writes: a table of at most 100 columns, CSV or JSON.

use std::io::Write;
use std::time::Duration;

use refault_console::text::{align_numbers, plain_table};
use refault_host::host::{Report, Row};
use refault_host::name::Kind;

/// Columns of a terminal that the table fits into.
const MAX_COLUMNS: usize = 100;
/// Columns that a name has at least.
const MIN_NAME: usize = 12;

/// Writes the table.
pub(super) fn table(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    let mut table = plain_table();
    let compressed = report.groups.iter().any(|row| row.figures.stat.compressed_bytes.is_some_and(|bytes| bytes > 0));
    let header = header(compressed, &report.ages_seconds);
    table.set_header(&header);
    let mut rows: Vec<&Row> = report.groups.iter().collect();
    rows.sort_by(|one, two| two.figures.usage_bytes.cmp(&one.figures.usage_bytes).then(one.path.cmp(&two.path)));
    let all = |digits| rows.iter().map(|row| cells(row, compressed, digits)).collect::<Vec<_>>();
    let mut cells = all(1);
    let mut room = room_for_names(&header, &cells);
    if room < MIN_NAME {
        cells = all(0);
        room = room_for_names(&header, &cells);
    }
    let name = room.max(MIN_NAME);
    for mut cells in cells {
        cells[0] = shortened(&cells[0], name);
        table.add_row(cells);
    }
    align_numbers(&mut table);
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out, "\naccesses: {}; looks take {:.2} % of a processor", report.source, report.processor_share * 100.0)
}

fn header(compressed: bool, ages_seconds: &[f64]) -> Vec<String> {
    let mut header = vec!["group".to_owned(), "usage".into(), "anon".into(), "file".into(), "shm".into()];
    header.extend(compressed.then(|| "zip".to_owned()));
    header.extend(ages_seconds.iter().map(|age| age_text(*age)));
    header.extend(["rf/s", "psi", "high", "saves"].map(String::from));
    header
}

/// The columns that numbers leave to names.
fn room_for_names(header: &[String], rows: &[Vec<String>]) -> usize {
    let width = |column: usize| {
        let all = rows.iter().map(|cells| cells[column].chars().count());
        all.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    // A blank on both sides of each column.
    let others: usize = (1..header.len()).map(|column| width(column) + 2).sum();
    MAX_COLUMNS.saturating_sub(others + 2)
}

/// A row's cells; sizes of two digits before the point have `digits` behind it.
fn cells(row: &Row, compressed: bool, digits: usize) -> Vec<String> {
    let stat = &row.figures.stat;
    let short = |bytes| short(bytes, digits);
    let mut cells = vec![
        name(row),
        short(row.figures.usage_bytes),
        short(stat.anonymous_bytes),
        short(stat.file_bytes),
        short(stat.shared_bytes),
    ];
    cells.extend(compressed.then(|| stat.compressed_bytes.map_or("–".into(), short)));
    cells.extend(row.working_sets.iter().map(|set| set.map_or("–".into(), |set| short(set.bytes))));
    let proposal = row.proposal.as_ref();
    cells.push(row.refaults_per_second.map_or("–".into(), rate));
    cells.push(row.pressure.map_or("–".into(), |share| percent(share * 100.0)));
    cells.push(proposal.map_or("–".into(), |proposal| short(proposal.high_bytes)));
    cells.push(proposal.map_or("–".into(), |proposal| short(proposal.saves_bytes)));
    cells
}

/// A group's name: that of a unit, container or pod with what its orchestrator or kernel calls it, else its path.
fn name(row: &Row) -> String {
    match row.name.kind {
        Kind::Host => "host".to_owned(),
        Kind::Group => row.path.clone(),
        Kind::Unit => row.name.text.clone(),
        Kind::Container | Kind::Pod => {
            let other = row.hostname.as_ref().or(row.program.as_ref());
            other.map_or_else(|| row.name.text.clone(), |other| format!("{other} {}", row.name.text))
        }
    }
}

/// A text in this many columns; of a longer one the end is left, which differs most between groups.
pub(super) fn shortened(text: &str, columns: usize) -> String {
    let count = text.chars().count();
    if count <= columns {
        return text.to_owned();
    }
    "…".chars().chain(text.chars().skip(count + 1 - columns)).collect()
}

/// Bytes in at most five columns, in four without digits behind the point of 10 and more.
fn short(bytes: u64, digits: usize) -> String {
    let mut value = bytes as f64 / 1024.0;
    for unit in ["K", "M", "G", "T"] {
        if value < 9.95 {
            let digits = usize::from(value > 0.0 && unit != "K");
            return format!("{value:.digits$}{unit}");
        }
        if value < 99.95 {
            let digits = if unit == "K" { 0 } else { digits };
            return format!("{value:.digits$}{unit}");
        }
        if value < 999.5 {
            return format!("{value:.0}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.0}P")
}

/// A number per second in at most four columns below ten million.
fn rate(per_second: f64) -> String {
    let (value, unit) = [(1.0, ""), (1e3, "k")]
        .into_iter()
        .map(|(unit, name)| (per_second / unit, name))
        .find(|(value, name)| *value < if name.is_empty() { 9999.5 } else { 999.5 })
        .unwrap_or((per_second / 1e6, "M"));
    format!("{value:.0}{unit}")
}

/// Percent in at most four columns.
fn percent(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn age_text(seconds: f64) -> String {
    humantime::format_duration(Duration::from_secs_f64(seconds)).to_string()
}

/// Writes a row for each group.
pub(super) fn csv(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let names = [
        "time_seconds",
        "path",
        "name",
        "usage_bytes",
        "anonymous_bytes",
        "file_bytes",
        "shared_bytes",
        "compressed_bytes",
        "inactive_file_bytes",
        "refaults_per_second",
        "pressure",
        "high_bytes",
        "max_bytes",
        "saves_bytes",
        "kubelet_working_set_bytes",
        "vpa_target_bytes",
    ];
    let ages = report.ages_seconds.iter().map(|age| format!("within_{}_bytes", age_text(*age).replace(' ', "")));
    csv.write_record(names.iter().map(|name| (*name).to_owned()).chain(ages))?;
    let text = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    let fraction = |number: Option<f64>| number.map_or(String::new(), |number| number.to_string());
    for row in &report.groups {
        let (stat, proposal) = (&row.figures.stat, row.proposal.as_ref());
        let cells = [
            report.time_seconds.to_string(),
            row.path.clone(),
            row.name.text.clone(),
            row.figures.usage_bytes.to_string(),
            stat.anonymous_bytes.to_string(),
            stat.file_bytes.to_string(),
            stat.shared_bytes.to_string(),
            text(stat.compressed_bytes),
            stat.inactive_file_bytes.to_string(),
            fraction(row.refaults_per_second),
            fraction(row.pressure),
            text(proposal.map(|proposal| proposal.high_bytes)),
            text(proposal.map(|proposal| proposal.max_bytes)),
            text(proposal.map(|proposal| proposal.saves_bytes)),
            row.kubelet_working_set_bytes.to_string(),
            text(row.vpa_target_bytes),
        ];
        let sets = row.working_sets.iter().map(|set| text(set.map(|set| set.bytes)));
        csv.write_record(cells.into_iter().chain(sets))?;
    }
    csv.flush()
}

/// Writes the report.
pub(super) fn json(out: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_numbers_leave_room_for_names() {
        let header = header(true, &[1.0, 10.0, 60.0, 600.0, 3600.0]);
        let rates = [rate(123_456.7), percent(100.0)];
        let numbers = (0..header.len() - 1).map(|_| short(640 << 30, 0)).chain(rates);
        let cells: Vec<String> = ["name".to_owned()].into_iter().chain(numbers.skip(2)).collect();
        assert_eq!(cells.len(), header.len());
        assert_eq!(room_for_names(&header, &[cells]), MIN_NAME);
    }

    #[test]
    fn sizes_take_five_columns_and_names_keep_their_ends() {
        for (bytes, text, in_four) in [
            (0, "0K", "0K"),
            (4096, "4K", "4K"),
            (1023 << 10, "1.0M", "1.0M"),
            (99 << 20, "99.0M", "99M"),
            (102_340 << 10, "99.9M", "100M"),
            (512 << 20, "512M", "512M"),
            (1023 << 20, "1.0G", "1.0G"),
            (64 << 30, "64.0G", "64G"),
            (u64::MAX, "16384P", "16384P"),
        ] {
            assert_eq!((short(bytes, 1).as_str(), short(bytes, 0).as_str()), (text, in_four), "{bytes}");
        }
        for (digits, columns) in [(1, 5), (0, 4)] {
            assert!((0..60).all(|bit| short(1 << bit, digits).chars().count() <= columns));
        }
        for (per_second, text) in [(0.4, "0"), (9999.4, "9999"), (9999.5, "10k"), (999_499.0, "999k"), (2e6, "2M")] {
            assert_eq!(rate(per_second), text);
        }
        assert_eq!((percent(99.94), percent(100.0)), ("99.9".into(), "100".into()));
        assert_eq!(shortened("/a/very/long/path", 8), "…ng/path");
        assert_eq!(shortened("größe", 5), "größe");
    }
}
