//! `refault pool status`: who has what in a pool.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clap::Args;
use refault_console::text::{align_numbers, plain_table};
use refault_console::{Failure, Format, ResultArgs, with_output};
use refault_core::statistics;
use refault_host::text::printable;
use refault_lab::size::bytes_text;
use refault_pool::shared::place::{DEFAULT_NAME, Place};
use refault_pool::shared::protocol::{Answer, MemberStatus, Request, Status, mins_exceed, receive, send};
use serde_json::{Value, json};

/// The longest answer: that of some thousand members.
const MAX_ANSWER: u64 = 64 << 20;
/// A daemon answers within this.
const WITHIN: Duration = Duration::from_secs(2);

/// What CSV has of a member.
const COLUMNS: [&str; 24] = [
    "name",
    "program",
    "pid",
    "answers",
    statistics::GRANT.name,
    statistics::COMMITTED.name,
    "min_bytes",
    "low_bytes",
    "max_bytes",
    "budget_bytes",
    "weight",
    statistics::CHARGE.name,
    statistics::PEAK.name,
    statistics::RESIDENT.name,
    statistics::COMPRESSED.name,
    statistics::STORED_BYTES.name,
    statistics::FAULTS.name,
    statistics::REFAULTS.name,
    statistics::WAITED.name,
    statistics::PRESSURE.name,
    statistics::FAULT_P50.name,
    statistics::FAULT_P99.name,
    "processes",
    statistics::ADVICE_BYTES.name,
];

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault pool status             the pool 'default', or the only one
  refault pool status web --format json")]
/// Say who has what in a pool, and how old it is
pub struct StatusArgs {
    /// The pool
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    result: ResultArgs,
}

/// Runs the command.
pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let (format, out) = args.result.claim(&mut args.result.outputs())?;
    let name = args.name.clone().unwrap_or_else(|| match &Place::all()[..] {
        [only] => only.clone(),
        _ => DEFAULT_NAME.to_owned(),
    });
    let status = status(&super::place(&name)?)?;
    with_output(out, |out| match format {
        Format::Table => write_table(out, &status),
        Format::Csv => write_csv(out, &status),
        Format::Json => write_json(out, &status),
    })
}

/// Asks a pool's daemon.
///
/// # Errors
/// There is none, or it does not answer.
pub fn ask(place: &Place, request: &Request) -> Result<Answer, Failure> {
    let no_daemon = |error: std::io::Error| {
        let remedy = format!("{error}; start it with refault pool --memory SIZE --name {}", place.name());
        Failure::failed("no such pool", place.socket().display(), remedy)
    };
    let stream = UnixStream::connect(place.socket()).map_err(no_daemon)?;
    let asked = stream
        .set_read_timeout(Some(WITHIN))
        .and_then(|()| send(&stream, request))
        .and_then(|()| receive::<Answer>(&mut BufReader::new(&stream), MAX_ANSWER));
    match asked {
        Ok(Some(Answer::Refused(why))) => Err(Failure::failed("the pool refuses", place.name(), why)),
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(Failure::failed("the pool does not answer", place.name(), "see whether its daemon runs")),
        Err(error) => Err(Failure::failed("the pool does not answer", place.name(), error)),
    }
}

/// How a pool is.
///
/// # Errors
/// As [`ask`].
pub fn status(place: &Place) -> Result<Status, Failure> {
    match ask(place, &Request::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => {
            Err(Failure::failed("the pool does not say how it is", place.name(), "end its daemon and start this one's"))
        }
    }
}

fn write_table(out: &mut dyn Write, status: &Status) -> std::io::Result<()> {
    writeln!(
        out,
        "pool {}: {} in use of {}, {} granted; daemon {}",
        status.pool,
        bytes_text(status.charge_bytes),
        bytes_text(status.memory_bytes),
        bytes_text(status.committed_bytes),
        status.daemon
    )?;
    if let Some(mins) = status.mins_beyond_pool() {
        writeln!(out, "{}", mins_exceed(mins, status.memory_bytes))?;
    }
    if status.members.is_empty() {
        return writeln!(out, "no members");
    }
    let mut table = plain_table();
    table.set_header([
        "member",
        "process",
        statistics::GRANT.word,
        statistics::CHARGE.word,
        "compressed",
        "waits %",
        "< 1 s",
        "< 10 s",
        "< 1 min",
        "< 10 min",
        "older",
        statistics::ADVICE_BYTES.word,
        "",
    ]);
    for (pid, member) in &status.members {
        let mut row = vec![
            printable(member.name.as_bytes()),
            pid.to_string(),
            bytes_text(member.grant_bytes),
            bytes_text(member.figures.charge),
            bytes_text(member.figures.compressed),
            format!("{:.2}", member.pressure * 100.0),
        ];
        row.extend(status.bytes_by_age(member).map(bytes_text));
        row.push(member.figures.would_stop_refaulting_at.map_or_else(|| "–".to_owned(), bytes_text));
        let marks = [(!member.answers, "does not answer"), (member.budget_bytes.is_some(), "set by hand")];
        let marks: Vec<&str> = marks.iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| *mark).collect();
        row.push(marks.join(", "));
        table.add_row(row);
    }
    align_numbers(&mut table);
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(
        out,
        "\nAges are those of generations, since they were made; they are known of what is resident. With the\n\
         advice, 99 of 100 pages that came back within the last 10 s would have stayed; –: too few came back."
    )
}

/// A row for each member, with the plain figures of its object in JSON, under the same names. Names are made printable:
/// programs choose them.
fn write_csv(out: &mut dyn Write, status: &Status) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let members: Vec<Value> = status.members.iter().map(|(pid, member)| member_json(status, *pid, member)).collect();
    csv.write_record(COLUMNS)?;
    for member in members {
        csv.write_record(COLUMNS.map(|column| match &member[column] {
            Value::String(text) => printable(text.as_bytes()),
            Value::Null => String::new(),
            value => value.to_string(),
        }))?;
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, status: &Status) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, &pool_json(status))?;
    writeln!(out)
}

/// A pool as scripts and the page of `refault serve` read it.
pub fn pool_json(status: &Status) -> Value {
    let members: Vec<Value> = status.members.iter().map(|(pid, member)| member_json(status, *pid, member)).collect();
    json!({
        "pool": status.pool,
        "daemon": status.daemon,
        "memory_bytes": status.memory_bytes,
        "committed_bytes": status.committed_bytes,
        "charge_bytes": status.charge_bytes,
        "min_ttl_ms": status.min_ttl_ms,
        "members": members,
    })
}

fn member_json(status: &Status, pid: u64, member: &MemberStatus) -> Value {
    let figures = &member.figures;
    let generations: Vec<Value> = figures
        .generations
        .iter()
        .map(|[birth, bytes]| json!({"age_ms": status.now.saturating_sub(*birth) / 1_000_000, "bytes": bytes}))
        .collect();
    let policies: Vec<Value> =
        figures.policies.iter().map(|(name, times)| json!({"policy": name, "faults_ratio": times})).collect();
    json!({
        "pid": pid,
        "name": member.name,
        "program": member.program,
        "answers": member.answers,
        "grant_bytes": member.grant_bytes,
        "committed_bytes": member.committed_bytes,
        "min_bytes": member.terms.min,
        "low_bytes": member.terms.low,
        "max_bytes": member.terms.max,
        "budget_bytes": member.budget_bytes,
        "weight": member.terms.weight,
        "charge_bytes": figures.charge,
        "peak_bytes": figures.peak,
        "resident_bytes": figures.resident,
        "compressed_bytes": figures.compressed,
        "stored_bytes": figures.stored,
        "faults": figures.faults,
        "refaults": figures.refaults,
        "waited_seconds": figures.waited_in_all as f64 / 1e9,
        "pressure": member.pressure,
        "fault_p50_ns": figures.fault_p50,
        "fault_p99_ns": figures.fault_p99,
        "processes": figures.processes,
        "generations": generations,
        "bytes_by_age": status.bytes_by_age(member),
        "would_stop_refaulting_at_bytes": figures.would_stop_refaulting_at,
        "heat_percent": figures.heat,
        "policies": policies,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use refault_pool::shared::ledger::{Figures, Terms};

    use super::*;

    fn member(program: &str, name: &str) -> MemberStatus {
        MemberStatus {
            program: program.to_owned(),
            name: name.to_owned(),
            budget_bytes: None,
            terms: Terms { min: 1, low: 2, max: Some(3), weight: 4, needs: 0 },
            grant_bytes: 5,
            committed_bytes: 6,
            answers: true,
            pressure: 0.5,
            figures: Figures { fault_p50: 3100, fault_p99: 9200, ..Figures::default() },
        }
    }

    #[test]
    fn csv_has_every_plain_figure_of_json() {
        let status = Status { members: [(7, member("sort", "orders"))].into(), ..Status::default() };
        let mut text = Vec::new();
        write_csv(&mut text, &status).expect("writes");
        let mut csv = csv::Reader::from_reader(&text[..]);
        let columns: Vec<String> = csv.headers().expect("a header").iter().map(str::to_owned).collect();
        let object = &pool_json(&status)["members"][0];
        // Of lists, CSV has that of processes alone.
        let is_plain = |name: &str, value: &Value| name == "processes" || !value.is_array() && !value.is_object();
        let plain = object.as_object().expect("an object").iter().filter(|(name, value)| is_plain(name, value));
        assert_eq!(columns.iter().collect::<BTreeSet<_>>(), plain.map(|(name, _)| name).collect());
        let row = csv.records().next().expect("a member").expect("a row");
        for (column, value) in columns.iter().zip(&row) {
            let expected = match &object[column] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            assert_eq!(value, expected, "{column}");
        }
    }

    #[test]
    fn names_stay_on_their_lines_and_command_no_terminal() {
        let name = "a\n\u{1b}[31m\u{202e}b";
        let status = Status { members: [(7, member(name, name))].into(), ..Status::default() };
        let written = |write: fn(&mut dyn Write, &Status) -> std::io::Result<()>| {
            let mut text = Vec::new();
            write(&mut text, &status).expect("writes");
            String::from_utf8(text).expect("UTF-8")
        };
        for text in [written(write_csv), written(write_table)] {
            assert!(text.contains("a\\n\\u{1b}[31m\\u{202e}b"), "{text}");
            assert!(!text.chars().any(|c| c.is_control() && c != '\n') && !text.contains('\u{202e}'), "{text:?}");
        }
    }
}
