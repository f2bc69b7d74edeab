//! Memory accesses sampled by Linux perf: what `perf script` prints of events with a data address, and what
//! `perf mem report -D` prints of each sample.
//!
//! Of `perf script` a line is an event: `[command process [cpu]] [seconds:] [period] event: [address] …`, with the
//! fields that `-F` chose; the address is the first field after the event (`-F +addr`), or `address=` of a tracepoint
//! such as `exceptions:page_fault_user`. An event writes if its name says `store` or `write`, or if its data source
//! says `OP STORE`. It also writes if the error code of its page fault has the write bit. Where no line has an event,
//! the one hexadecimal number behind the time is the address. `perf mem report -D` has columns; the address is `ADDR`
//! and the operation that of `DSRC`. Samples without an address (0) and lines without an event (call chains) are left
//! out: a trace of samples is a sample of the trace.

use std::collections::HashSet;

use super::blkparse::seconds;
use super::damo;
use super::numbers::{decimal, hexadecimal, words};
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::error::quote;
use crate::formats::PAGE_BYTES;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Entry, Kind};

/// Bit of a page fault's error code: the access was a write.
const FAULT_WRITE: u64 = 1 << 1;
/// Bit of the operation in a data source (`PERF_MEM_OP_STORE`).
const SOURCE_STORE: u64 = 1 << 2;

pub(crate) struct Perf {
    kind: Kind,
    kind_asked: bool,
    /// If the text is of `perf mem report -D`.
    columns: Option<Columns>,
    /// Whether lines have events; `None` before the first that has or could do without.
    has_events: Option<bool>,
    /// Lines are DAMON's.
    is_damon: bool,
    /// Page faults, and the pages that they are on, up to some.
    faults: u64,
    faulted: HashSet<u64>,
    /// Of the samples with a time, where that is said.
    processes: HashSet<u64>,
    counts: Counts,
}

/// Columns of `perf mem report -D`.
#[derive(Clone, Copy)]
struct Columns {
    process: usize,
    address: usize,
    source: Option<usize>,
}

struct Sample {
    address: u64,
    /// The address is that of the instruction: what `perf script` prints if no fields are chosen.
    is_code: bool,
    write: bool,
    time: Option<u64>,
    /// The event is a page fault by one of perf's names for it.
    is_fault: bool,
}

/// perf's names of page faults, behind which modifiers may stand.
const FAULTS: [&[u8]; 4] = [b"page-faults", b"faults", b"minor-faults", b"major-faults"];

/// Page faults from which on the reader looks at their pages, and faults per page from which on it finds that odd.
/// Memory causes fewer faults on one page.
const MIN_FAULTS: u64 = 1000;
const MAX_FAULTS_PER_PAGE: u64 = 20;
/// Processes that are counted, and one more.
const MAX_PROCESSES: usize = 4096;
/// The lowest address of the kernel's half.
const KERNEL: u64 = 0xFFFF_8000_0000_0000;
/// Digits behind a `016` of an address of 16 digits that has these by right.
const MISPRINT_LEAVES: usize = 13;
/// Digits of an address behind another, at least: fewer could be a symbol's name.
const MIN_DIGITS: usize = 8;
const FIELDS: &str = "`perf script -F comm,pid,time,event,addr`";
/// perf's buffers put events a little out of order.
const SLACK_NS: u64 = 1_000_000_000;

fn address_of(word: &[u8]) -> Option<u64> {
    hexadecimal(word.strip_prefix(b"0x").unwrap_or(word))
}

/// An address as `perf mem report -D` prints it: in its first line perf 6.1 and others write `0x016` before it, which is
/// a misprint of its format. Zeros stand before no other address that has not all 16 digits.
fn reported_address(word: &[u8]) -> Option<u64> {
    match word.strip_prefix(b"0x016") {
        Some(digits) if digits.len() != MISPRINT_LEAVES && !digits.is_empty() => hexadecimal(digits),
        _ => address_of(word),
    }
}

/// The columns that a header of `perf mem report -D` names.
fn columns(line: &[u8]) -> Option<Columns> {
    let names: Vec<&[u8]> = line.strip_prefix(b"#")?.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let find = |name: &[u8]| names.iter().position(|column| *column == name);
    find(b"IP")?;
    Some(Columns { process: find(b"PID")?, address: find(b"ADDR")?, source: find(b"DSRC") })
}

/// Whether a line is one of perf's own records, such as of a mapping: `--show-mmap-events`.
pub(crate) fn is_record(line: &[u8]) -> bool {
    memchr::memmem::find(line, b" PERF_RECORD_").is_some()
}

/// Time and the words from the event on, if a line has an event.
fn event<'a>(fields: &[&'a [u8]]) -> Option<(Option<u64>, usize)> {
    let time = fields.iter().position(|word| word.strip_suffix(b":").is_some_and(|word| seconds(word).is_some()));
    let mut start = time.map_or(0, |time| time + 1);
    if time.is_some() && fields.get(start).is_some_and(|word| decimal(word).is_some()) {
        start += 1;
    }
    let is_name = |word: &&'a [u8]| word.len() > 1 && word.ends_with(b":");
    // A command may end in a colon too: the event is the last one before a value.
    let has_value = |index: &usize| {
        let next = fields.get(index + 1);
        is_name(&fields[*index]) && next.is_some_and(|word| word.contains(&b'=') || address_of(word).is_some())
    };
    let name = match time {
        Some(_) => fields.get(start).filter(|word| is_name(word)).map(|_| start)?,
        None => (0..fields.len()).rev().find(has_value).or_else(|| fields.iter().position(is_name))?,
    };
    let time = time.and_then(|index| seconds(&fields[index][..fields[index].len() - 1]));
    Some((time, name))
}

/// The process before the time, or else the event: `comm 10832 [003] 69707.446255:`, with its thread `10832/10835`, or
/// behind its command, `comm-10832`, as trace-cmd prints it.
fn process(line: &[u8]) -> Option<u64> {
    let fields: Vec<&[u8]> = words(line).collect();
    let time = fields.iter().position(|word| word.strip_suffix(b":").is_some_and(|word| seconds(word).is_some()));
    let end = time.or_else(|| event(&fields).map(|(_, name)| name))?;
    let number = |word: &&[u8]| {
        let alone = decimal(&word[..memchr::memchr(b'/', word).unwrap_or(word.len())]);
        alone.or_else(|| decimal(&word[memchr::memrchr(b'-', word)? + 1..]))
    };
    fields[..end].iter().rev().find_map(number)
}

fn sample(line: &[u8]) -> Option<Sample> {
    let fields: Vec<&[u8]> = words(line).collect();
    let (time, name) = event(&fields)?;
    let rest = &fields[name + 1..];
    let value = |key: &[u8]| rest.iter().find_map(|word| word.strip_prefix(key)).and_then(address_of);
    let address = match rest.first() {
        Some(word) if word.contains(&b'=') => value(b"address=")?,
        Some(word) => address_of(word)?,
        None => return None,
    };
    // Its symbol or file follows.
    let names_code =
        |word: &&[u8]| word.starts_with(b"(") || *word == b"[unknown]" || memchr::memmem::find(word, b"+0x").is_some();
    // With both `addr` and `ip`, the first is the data's, though its symbol follows.
    let is_address = |word: &&[u8]| word.len() >= MIN_DIGITS && address_of(word).is_some();
    let is_code = rest.get(1).is_some_and(names_code) && !rest[2..].iter().any(is_address);
    let event = fields[name].to_ascii_lowercase();
    let says = |text: &[u8], part: &str| memchr::memmem::find(text, part.as_bytes()).is_some();
    let faulted_by_write = value(b"error_code=").is_some_and(|code| code & FAULT_WRITE != 0);
    let write = faulted_by_write || says(&event, "store") || says(&event, "write") || says(line, "OP STORE");
    let is_fault = FAULTS.contains(&event.split(|byte| b":/".contains(byte)).next().unwrap_or_default());
    Some(Sample { address, is_code, write, time, is_fault })
}

/// The sample of a line without an event: the address is the one hexadecimal number behind the time.
fn sample_without_event(line: &[u8]) -> Result<Option<Sample>, String> {
    let fields: Vec<&[u8]> = words(line).collect();
    let is_time = |word: &&[u8]| word.strip_suffix(b":").is_some_and(|word| seconds(word).is_some());
    let at = fields.iter().position(is_time);
    let time = at.and_then(|index| seconds(&fields[index][..fields[index].len() - 1]));
    let rest = &fields[at.map_or(0, |index| index + 1)..];
    if at.is_none() && rest.is_empty() {
        return Ok(None);
    }
    let mut numbers = rest.iter().enumerate().filter_map(|(index, word)| Some((index, address_of(word)?)));
    let Some((index, address)) = numbers.next() else { return Ok(None) };
    if numbers.next().is_some() || rest.len() > index + 1 {
        let quoted = quote(line);
        return Err(format!("{quoted} has no event, so which number is the address is not known: print with {FIELDS}"));
    }
    Ok(Some(Sample { address, is_code: false, write: false, time, is_fault: false }))
}

/// Whether a line is of this format: an event with a time and an address, or the header of `perf mem report -D`.
pub(crate) fn is_line(line: &[u8]) -> bool {
    columns(line).is_some() || sample(line).is_some_and(|sample| sample.time.is_some())
}

impl Perf {
    pub(crate) fn new(options: &Options) -> Perf {
        let (kind, kind_asked) = (options.kind.unwrap_or(Kind::Anon), options.kind.is_some());
        Perf {
            kind,
            kind_asked,
            columns: None,
            has_events: None,
            is_damon: false,
            faults: 0,
            faulted: HashSet::new(),
            processes: HashSet::new(),
            counts: Counts::default(),
        }
    }

    fn reported(&mut self, line: &[u8], columns: Columns) -> Result<Sample, String> {
        let separated: Vec<&[u8]> = if line.contains(&b',') {
            line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect()
        } else {
            words(line).collect()
        };
        let field = |index: usize| separated.get(index).copied().and_then(reported_address);
        let address = field(columns.address).ok_or_else(|| format!("{} has no address in its column", quote(line)))?;
        let source = columns.source.and_then(field).unwrap_or(0);
        let process = separated.get(columns.process).copied().and_then(decimal);
        if self.processes.len() <= MAX_PROCESSES && address != 0 {
            self.processes.extend(process);
        }
        Ok(Sample { address, is_code: false, write: source & SOURCE_STORE != 0, time: None, is_fault: false })
    }
}

impl Perf {
    /// The line's sample, if it has one.
    fn sample(&mut self, line: &[u8]) -> Result<Option<Sample>, String> {
        if let Some(columns) = self.columns {
            return self.reported(line, columns).map(Some);
        }
        if let Some(sample) = sample(line) {
            self.has_events = Some(true);
            return Ok(Some(sample));
        }
        if self.has_events == Some(true) || event(&words(line).collect::<Vec<_>>()).is_some() {
            self.has_events = Some(true);
            return Ok(None);
        }
        let sample = sample_without_event(line)?;
        if sample.is_some() {
            self.has_events = Some(false);
        }
        Ok(sample)
    }
}

impl LineFormat for Perf {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if let Some(columns) = columns(line) {
            self.columns = Some(columns);
            return Ok(None);
        }
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        if damo::is_line(line) {
            self.is_damon = true;
            return Ok(None);
        }
        if is_record(line) {
            return Ok(None);
        }
        let Some(sample) = self.sample(line)? else {
            let is_event = event(&words(line).collect::<Vec<_>>()).is_some_and(|(time, _)| time.is_some());
            // A call chain stands in lines of its own behind its event.
            match line[0].is_ascii_whitespace() {
                _ if is_event => self.counts.add(Doubt::NoAddress),
                false => self.counts.add(Doubt::NotAnEvent),
                true => {}
            }
            return Ok(None);
        };
        if sample.address == 0 {
            self.counts.add(Doubt::NoAddress);
            return Ok(None);
        }
        if sample.is_code {
            return Err(format!(
                "{} has the address of an instruction, not of data: record with `perf record -d` and print with {FIELDS}",
                quote(line)
            ));
        }
        if self.processes.len() <= MAX_PROCESSES && self.columns.is_none() {
            self.processes.extend(process(line));
        }
        if sample.address >= KERNEL {
            self.counts.add(Doubt::KernelAddresses);
        }
        let first_page = sample.address / PAGE_BYTES;
        if sample.is_fault {
            self.faults += 1;
            if (self.faulted.len() as u64) <= self.faults / MAX_FAULTS_PER_PAGE + MIN_FAULTS {
                self.faulted.insert(first_page);
            }
        }
        debug_assert!(first_page <= Entry::MAX_PAGE);
        let (kind, weight) = (self.kind, Weight::Unknown);
        Ok(Some(Request { first_page, pages: 1, kind, write: sample.write, time: sample.time, weight, repeat: 1 }))
    }

    fn ends_each_line(&self) -> bool {
        true
    }

    fn details(&self) -> Details {
        let source = if self.columns.is_some() { "perf mem report -D" } else { "perf script" };
        vec![("samples of", source.to_owned()), kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        let mut remarks = self.counts.remarks();
        remarks.extend(Remark::several_processes(self.processes.len(), "print one alone by `perf script --pid PID`"));
        let pages = self.faulted.len() as u64;
        if self.faults >= MIN_FAULTS && pages * MAX_FAULTS_PER_PAGE < self.faults {
            let text = format!(
                "{} page faults fall on {pages} pages: if those are addresses of instructions (`ip`), record with \
                 `perf record -d` and print with {FIELDS}",
                self.faults
            );
            remarks.push(Remark::with_text(Doubt::FewFaultedPages, self.faults, text));
        }
        remarks
    }

    fn slack_ns(&self) -> u64 {
        SLACK_NS
    }

    fn without_accesses(&self) -> Option<String> {
        Some(match self.is_damon {
            true => "its lines are DAMON's: read them with --trace-format damo".to_owned(),
            false => format!("no line has an event with an address: print them with {FIELDS}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as perf 6.1 prints them, without `-F` and with it.
    #[test]
    fn addresses_of_instructions_are_refused() {
        let parse = |line: &str| Perf::new(&Options::default()).parse(line.as_bytes());
        for code in [
            "python3 10832 69707.446255:  1 page-faults:  ffffffff8177539a elf_load+0x28a ([kernel.kallsyms])",
            "python3 10832 69707.446255:  1 page-faults:  7f12b0 [unknown] (/usr/bin/python3)",
        ] {
            assert!(is_line(code.as_bytes()), "{code}");
            let why = parse(code).expect_err("refused");
            assert!(why.contains("-F comm,pid,time,event,addr"), "{why}");
        }
        for data in [
            "python3 10832 69707.446255: page-faults:  7f60e7a05000",
            "python3 10832 69707.446255: page-faults:  7f60e7a05000 ffffffff8177539a elf_load+0x28a ([kernel.kallsyms])",
        ] {
            let request = parse(data).expect("read").expect("an access");
            assert_eq!(request.first_page, 0x7_f60e_7a05);
        }
    }
}
