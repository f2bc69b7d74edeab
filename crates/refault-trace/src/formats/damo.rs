//! What DAMON saw, as damo records it: JSON (plain or packed by zlib), or the `damon:damon_aggregated` lines of
//! `perf script`.
//!
//! A snapshot says of regions how many samples of an interval found them accessed. Each page of a region with at least
//! one becomes one access at the snapshot's end, so the trace knows no order within a snapshot, nothing of writes, and
//! takes all pages of a region for accessed, as DAMON does. Targets get ranges of pages of their own.
//! Cost: JSON of at most 256 MiB is read as a whole.

use serde_json::Value;

use super::blkparse::seconds;
use super::numbers::{decimal, pages_touched, words};
use super::ranges::Ranges;
use super::request::{LineFormat, Lines, Request, Requests, Weight, kind_detail};
use crate::error::{Place, quote};
use crate::input::Input;
use crate::reader::{Details, Options};
use crate::{Kind, TraceError};

const EVENT: &[u8] = b"damon:damon_aggregated:";

/// Whether a line is an event of DAMON.
pub(crate) fn is_line(line: &[u8]) -> bool {
    memchr::memmem::find(line, EVENT).is_some()
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
    limit: u64,
    form: Form,
}

/// JSON or text, which the first bytes say.
enum Form {
    Unknown,
    Json(std::vec::IntoIter<Request>),
    Text(Box<Lines<Events>>),
}

/// What both forms need.
struct Events {
    kind: Kind,
    limit: u64,
    targets: Ranges,
}

impl Events {
    fn request(&mut self, region: &Region) -> Result<Option<Request>, String> {
        let size = region.end.checked_sub(region.start).ok_or("a region ends before it starts")?;
        let (first_page, pages) = pages_touched(region.start, size, self.limit)?;
        let first_page = self.targets.place(region.target, first_page, pages)?;
        let (kind, time, weight) = (self.kind, region.time, Weight::Unknown);
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write: false, time, weight }))
    }

    /// All requests of damo's JSON, by time.
    fn of_json(&mut self, bytes: &[u8]) -> Result<Vec<Request>, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| format!("is no JSON: {error}"))?;
        let records = value.as_array().ok_or("is not a list of damo's records")?;
        let mut requests = Vec::new();
        for record in records {
            let target = record.get("target_id").map(Value::to_string).unwrap_or_default();
            let snapshots = record.get("snapshots").and_then(Value::as_array).ok_or("a record has no 'snapshots'")?;
            for snapshot in snapshots {
                let time = snapshot.get("end_time").map(whole).transpose()?;
                let regions = snapshot.get("regions").and_then(Value::as_array).ok_or("a snapshot has no 'regions'")?;
                for region in regions {
                    let field = |key: &str| region.get(key).ok_or_else(|| format!("a region has no '{key}'"));
                    let accesses = field("nr_accesses")?;
                    let samples = ["samples", "nr_samples", "percent"].iter().find_map(|key| accesses.get(key));
                    if !is_positive(samples.unwrap_or(accesses)) {
                        continue;
                    }
                    let (start, end) = (whole(field("start")?)?, whole(field("end")?)?);
                    requests.extend(self.request(&Region { target: target.as_bytes(), start, end, time })?);
                }
            }
        }
        requests.sort_by_key(|request| request.time);
        Ok(requests)
    }
}

/// A number, or a text of one with commas between thousands and a unit (ns, bytes) behind it, which is not read.
fn whole(value: &Value) -> Result<u64, String> {
    let text = match value {
        Value::Number(number) if number.as_u64().is_none() => number.as_f64().map(|number| format!("{number:.0}")),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => text.split_whitespace().next().map(|number| number.replace(',', "")),
        _ => None,
    };
    let number = text.as_deref().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{} is not a whole number", quote(value.to_string().as_bytes())))
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

impl LineFormat for Events {
    /// `… seconds: damon:damon_aggregated: target_id=T nr_regions=N start-end: accesses [age]`
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if !is_line(line) {
            return Ok(None);
        }
        let fields: Vec<&[u8]> = words(line).collect();
        let event = fields.iter().position(|word| *word == EVENT).ok_or("the event stands within a word")?;
        let time = event.checked_sub(1).and_then(|index| fields[index].strip_suffix(b":")).and_then(seconds);
        let wrong = || format!("{} is not an event of DAMON with a target, a region and its accesses", quote(line));
        let [target, _, addresses, accesses] =
            fields.get(event + 1..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(wrong)?;
        let target = target.strip_prefix(b"target_id=").ok_or_else(wrong)?;
        let addresses = addresses.strip_suffix(b":").ok_or_else(wrong)?;
        let dash = memchr::memchr(b'-', addresses).ok_or_else(wrong)?;
        let (start, end) = (decimal(&addresses[..dash]), decimal(&addresses[dash + 1..]));
        let (start, end) = start.zip(end).ok_or_else(wrong)?;
        if decimal(accesses).ok_or_else(wrong)? == 0 {
            return Ok(None);
        }
        self.request(&Region { target, start, end, time })
    }

    fn details(&self) -> Details {
        Vec::new()
    }
}

impl Damo {
    pub(crate) fn new(options: &Options) -> Damo {
        let (kind, kind_asked) = (options.kind.unwrap_or(Kind::Anon), options.kind.is_some());
        Damo { kind, kind_asked, limit: options.limits.request_bytes, form: Form::Unknown }
    }
}

impl Requests for Damo {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        loop {
            match &mut self.form {
                Form::Json(requests) => return Ok(requests.next()),
                Form::Text(lines) => return lines.next(input),
                Form::Unknown => {
                    let json = input.head()?.trim_ascii_start().starts_with(b"[");
                    let mut events = Events { kind: self.kind, limit: self.limit, targets: Ranges::new("target") };
                    self.form = if json {
                        let bytes = input.rest("JSON")?;
                        let requests = events.of_json(&bytes);
                        let requests =
                            requests.map_err(|reason| TraceError::malformed(input.path(), Place::Offset(0), reason))?;
                        Form::Json(requests.into_iter())
                    } else {
                        Form::Text(Box::new(Lines::new(events)))
                    };
                }
            }
        }
    }

    fn details(&self) -> Details {
        let accesses = "one per page and snapshot of each region seen accessed".to_owned();
        vec![("accesses", accesses), kind_detail(self.kind, self.kind_asked)]
    }
}
