//! What DAMON saw, as damo records it: JSON (plain or packed by zlib), or the `damon:damon_aggregated` lines of
//! `perf script`, `trace-cmd report` or the kernel's `trace_pipe`. Where a text has none of these, the regions that
//! schemes were applied to (`damos_before_apply`) are taken. Of several schemes of one target the first counts, because
//! each says the same accesses.
//!
//! A snapshot says of regions how many samples of an interval found them accessed. Each page of a region with at least
//! one becomes one access at the snapshot's end. So the trace knows no order within a snapshot, and nothing of writes.
//! It takes all pages of a region for accessed, as DAMON does. Targets get ranges of pages of their own; damo writes
//! one after the other, so that all of a record is read and sorted by time. Snapshots that damo makes up to end a
//! record of one (`0-0: -1`) are left out.
//! Cost: JSON of at most 256 MiB is read as a whole, and of text some 64 bytes for each region with accesses.

use std::collections::HashMap;

use serde_json::Value;

use super::blkparse::seconds;
use super::numbers::{decimal, pages_touched, words};
use super::ranges::Ranges;
use super::request::{Request, Requests, Weight, kind_detail};
use crate::error::{Place, quote};
use crate::input::Input;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Kind, TraceError};

/// Regions with accesses that are sorted in memory, at most: some 500 MiB.
const MAX_REGIONS: usize = 1 << 23;
const AGGREGATED: &[u8] = b"damon_aggregated:";
const APPLIED: &[u8] = b"damos_before_apply:";

/// Whether a line is an event of DAMON with a region.
pub(crate) fn is_line(line: &[u8]) -> bool {
    [AGGREGATED, APPLIED].iter().any(|event| memchr::memmem::find(line, event).is_some())
}

/// Whether a text begins as damo's JSON: a list of records.
pub(crate) fn is_json(head: &[u8]) -> bool {
    head.trim_ascii_start().starts_with(b"[") && memchr::memmem::find(head, b"\"snapshots\"").is_some()
}

/// A region that was accessed.
struct Region<'a> {
    target: &'a [u8],
    start: u64,
    end: u64,
    time: Option<u64>,
}

pub(crate) struct Damo {
    kind: Kind,
    kind_asked: bool,
    events: Events,
    form: Form,
}

/// Unread, or all requests by time: records of several targets are written target after target.
enum Form {
    Unknown,
    Read(std::vec::IntoIter<Request>),
}

/// What both forms need.
struct Events {
    kind: Kind,
    limit: u64,
    targets: Ranges,
    /// The scheme of each target whose regions are taken.
    schemes: HashMap<Vec<u8>, Vec<u8>>,
    counts: Counts,
}

/// What a line says.
enum Line {
    Nothing,
    Aggregated(Option<Request>),
    Applied(Option<Request>),
}

impl Events {
    fn request(&mut self, region: &Region) -> Result<Option<Request>, String> {
        let size = region.end.checked_sub(region.start).ok_or("a region ends before it starts")?;
        let (first_page, pages) = pages_touched(region.start, size, self.limit)?;
        let first_page = self.targets.place(region.target, first_page, pages)?;
        let (kind, time, weight) = (self.kind, region.time, Weight::Unknown);
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write: false, time, weight, repeat: 1 }))
    }

    /// All requests of damo's JSON, by time.
    fn of_json(&mut self, bytes: &[u8]) -> Result<Vec<Request>, String> {
        let mut records = Vec::new();
        // damo may be told to write behind what it wrote before.
        for (before, value) in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>().enumerate() {
            match value.map_err(|error| format!("is no JSON: {error}"))? {
                Value::Array(more) => records.extend(more),
                _ => return Err("is not a list of damo's records".to_owned()),
            }
            if before > 0 {
                self.counts.add(Doubt::RecordsBehindEachOther);
            }
        }
        let mut requests = Vec::new();
        for record in &records {
            // Each context of each thread of DAMON numbers its targets from 0.
            let part = |key: &str| record.get(key).map(Value::to_string).unwrap_or_default();
            let target = ["kdamond_idx", "context_idx", "target_id"].map(part).join(" ");
            let is_taken = self.takes_scheme(target.as_bytes(), part("scheme_idx").as_bytes());
            let snapshots = record.get("snapshots").and_then(Value::as_array).ok_or("a record has no 'snapshots'")?;
            for snapshot in snapshots {
                let time = snapshot.get("end_time").map(nanoseconds).transpose()?;
                let regions = snapshot.get("regions").and_then(Value::as_array).ok_or("a snapshot has no 'regions'")?;
                for region in regions {
                    let field = |key: &str| region.get(key).ok_or_else(|| format!("a region has no '{key}'"));
                    let accesses = field("nr_accesses")?;
                    let said = |key: &&str| accesses.get(key).filter(|value| !value.is_null());
                    let samples = ["samples", "nr_samples", "percent"].iter().find_map(said);
                    if !is_positive(samples.unwrap_or(accesses)) {
                        continue;
                    }
                    if !is_taken {
                        self.counts.add(Doubt::OtherSchemes);
                        continue;
                    }
                    let (start, end) = (whole(field("start")?)?, whole(field("end")?)?);
                    requests.extend(self.request(&Region { target: target.as_bytes(), start, end, time })?);
                }
            }
        }
        Ok(requests)
    }

    /// Whether the regions of a scheme are taken: those of the first of its target are.
    fn takes_scheme(&mut self, target: &[u8], scheme: &[u8]) -> bool {
        self.schemes.entry(target.to_owned()).or_insert_with(|| scheme.to_owned()).as_slice() == scheme
    }

    /// All requests of the lines of `perf script` and the like.
    fn of_text(&mut self, input: &mut Input) -> Result<Vec<Request>, TraceError> {
        let (mut requests, mut applied, mut number) = (Vec::new(), Vec::new(), 0);
        let (mut aggregations, mut applications) = (0, 0);
        loop {
            number += 1;
            let Some(line) = input.line(number)? else {
                self.counts.add_many(Doubt::CutLine, u64::from(input.line_is_cut()));
                if aggregations > 0 {
                    self.counts.add_many(Doubt::AppliedBesides, applications);
                    return Ok(requests);
                }
                self.counts.add_many(Doubt::AppliedOnly, applications);
                return Ok(applied);
            };
            let parsed = self.parse(line);
            let place = Place::Line(number);
            match parsed.map_err(|reason| TraceError::malformed(input.path(), place, reason))? {
                Line::Nothing => {}
                Line::Aggregated(request) => {
                    aggregations += 1;
                    requests.extend(request);
                }
                Line::Applied(request) => {
                    applications += 1;
                    applied.extend(request);
                }
            }
            if requests.len().max(applied.len()) > MAX_REGIONS {
                let reason =
                    format!("has more than {MAX_REGIONS} regions with accesses, which are sorted by time in memory");
                return Err(TraceError::limit(input.path(), place, reason));
            }
        }
    }
}

/// A number, or a text of one with commas between thousands, in bytes.
fn whole(value: &Value) -> Result<u64, String> {
    let number = match value {
        Value::String(text) => match text.split_whitespace().collect::<Vec<_>>()[..] {
            [number] | [number, "B" | "bytes" | "ns"] => number.replace(',', "").parse().ok(),
            _ => None,
        },
        value => number_of(value),
    };
    let wrong = || format!("{} is not a whole number: have damo print --raw", quote(value.to_string().as_bytes()));
    number.ok_or_else(wrong)
}

fn number_of(value: &Value) -> Option<u64> {
    let Value::Number(number) = value else { return None };
    number.as_u64().or_else(|| number.as_f64().filter(|number| *number >= 0.0).map(|number| number.round() as u64))
}

/// Units of time that damo prints, in nanoseconds.
const UNITS: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3_600e9), ("d", 86_400e9)];

/// A time in nanoseconds, or a text of one: `59 s 500 ms`.
fn nanoseconds(value: &Value) -> Result<u64, String> {
    let Value::String(text) = value else { return whole(value) };
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() == 1 {
        return whole(value);
    }
    let part = |part: &[&str]| {
        let [number, unit] = part else { return None };
        let (_, scale) = UNITS.iter().find(|(name, _)| name == unit)?;
        let number = number.replace(',', "").parse::<f64>().ok().filter(|number| *number >= 0.0)?;
        Some((number * scale).round() as u64)
    };
    let parts = words.chunks(2).map(part).try_fold(0_u64, |sum, part| sum.checked_add(part?));
    parts.ok_or_else(|| format!("{} is no time: have damo print --raw", quote(text.as_bytes())))
}

fn is_positive(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 0.0),
        Value::String(text) => {
            let number = text.split([' ', '%']).next().unwrap_or("").replace(',', "");
            number.parse::<f64>().is_ok_and(|number| number > 0.0)
        }
        _ => false,
    }
}

impl Events {
    /// `… seconds: damon:damon_aggregated: target_id=T nr_regions=N start-end: accesses [age]`, or the same of
    /// `damos_before_apply` with `ctx_idx=C scheme_idx=S target_idx=T`.
    fn parse(&mut self, line: &[u8]) -> Result<Line, String> {
        if !is_line(line) {
            if !line.trim_ascii().is_empty() && !line.starts_with(b"#") {
                self.counts.add(Doubt::NotAnEvent);
            }
            return Ok(Line::Nothing);
        }
        let fields: Vec<&[u8]> = words(line).collect();
        let is = |word: &[u8], event: &[u8]| word.strip_prefix(b"damon:").unwrap_or(word) == event;
        let event = fields.iter().position(|word| is(word, AGGREGATED) || is(word, APPLIED));
        let event = event.ok_or("the event stands within a word")?;
        let is_applied = is(fields[event], APPLIED);
        let done = |request| if is_applied { Line::Applied(request) } else { Line::Aggregated(request) };
        let time = event.checked_sub(1).and_then(|index| fields[index].strip_suffix(b":")).and_then(seconds);
        let wrong = || format!("{} is not an event of DAMON with a target, a region and its accesses", quote(line));
        let said = if is_applied { 2 } else { 0 };
        let [target, _, addresses, accesses] =
            fields.get(event + 1 + said..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(wrong)?;
        let key: &[u8] = if is_applied { b"target_idx=" } else { b"target_id=" };
        let target = target.strip_prefix(key).ok_or_else(wrong)?;
        let addresses = addresses.strip_suffix(b":").ok_or_else(wrong)?;
        let dash = memchr::memchr(b'-', addresses).ok_or_else(wrong)?;
        let (start, end) = (decimal(&addresses[..dash]), decimal(&addresses[dash + 1..]));
        let (start, end) = start.zip(end).ok_or_else(wrong)?;
        if start == 0 && end == 0 && accesses.starts_with(b"-") {
            self.counts.add(Doubt::MadeUpSnapshots);
            return Ok(done(None));
        }
        if decimal(accesses).ok_or_else(wrong)? == 0 {
            return Ok(done(None));
        }
        // The thread, `kdamond.0`, stands first.
        let target = match is_applied {
            false => [fields[0], b" ", target].concat(),
            true => [fields[0], b" ", fields[event + 1], b" ", target].concat(),
        };
        if is_applied && !self.takes_scheme(&target, fields[event + 2]) {
            self.counts.add(Doubt::OtherSchemes);
            return Ok(done(None));
        }
        self.request(&Region { target: &target, start, end, time }).map(done)
    }
}

impl Damo {
    pub(crate) fn new(options: &Options) -> Damo {
        let (kind, kind_asked) = (options.kind.unwrap_or(Kind::Anon), options.kind.is_some());
        let targets = Ranges::new("target");
        let (limit, schemes) = (options.limits.request_bytes, HashMap::new());
        let events = Events { kind, limit, targets, schemes, counts: Counts::default() };
        Damo { kind, kind_asked, events, form: Form::Unknown }
    }

    /// All requests, by time.
    fn read(&mut self, input: &mut Input) -> Result<Vec<Request>, TraceError> {
        let mut requests = if input.head()?.trim_ascii_start().starts_with(b"[") {
            let bytes = input.rest("JSON")?;
            let requests = self.events.of_json(&bytes);
            requests.map_err(|reason| TraceError::malformed(input.path(), Place::Offset(0), reason))?
        } else {
            self.events.of_text(input)?
        };
        requests.sort_by_key(|request| request.time);
        Ok(requests)
    }
}

impl Requests for Damo {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        if let Form::Unknown = self.form {
            self.form = Form::Read(self.read(input)?.into_iter());
        }
        match &mut self.form {
            Form::Read(requests) => Ok(requests.next()),
            Form::Unknown => Ok(None),
        }
    }

    fn details(&self) -> Details {
        let accesses = "one per page and snapshot of each region seen accessed".to_owned();
        let targets = ("targets", self.events.targets.described());
        vec![("accesses", accesses), targets, kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        self.events.counts.remarks()
    }
}
