//! What `blkparse` prints of a block device's events: device, processor, number, time, process, action, kind of
//! request, first sector and number of sectors.
//!
//! One event of each request is taken: where it was queued (action `Q`), which is what the file system or the program
//! asked for; where no event says that, because only some were recorded, where it was issued (`D`), or else completed
//! (`C`). Reads and writes count; discards and flushes do not. Devices get ranges of pages of their own. Lines that are
//! no events (blkparse's summary) are skipped. Cost: the first 65,536 events are kept until it is known which to take.

use std::collections::{HashMap, VecDeque};

use super::numbers::{decimal, number, pages_touched, words};
use super::ranges::Ranges;
use super::request::{Request, Requests, Weight, kind_detail};
use crate::error::{Place, quote};
use crate::input::Input;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Kind, TraceError};

const SECTOR_BYTES: u64 = 512;
/// Per-processor buffers put events a little out of order.
const SLACK_NS: u64 = 1_000_000_000;
/// Pairs of devices that pass requests on, at most.
const MAX_REMAPS: usize = 1024;
/// Events looked at to find which action to take.
const LOOKED_AT: usize = 1 << 16;

/// The events of a request that are taken, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Queued,
    Issued,
    Completed,
}

impl Action {
    const ALL: [Action; 3] = [Action::Queued, Action::Issued, Action::Completed];

    const fn letter(self) -> &'static [u8] {
        match self {
            Action::Queued => b"Q",
            Action::Issued => b"D",
            Action::Completed => b"C",
        }
    }
}

/// What a line is.
enum Line {
    Nothing,
    /// An event that neither reads nor writes.
    Other(Action),
    Transfer(Action, Request),
}

pub(crate) struct Blkparse {
    kind: Kind,
    kind_asked: bool,
    limit: u64,
    devices: Ranges,
    line: u64,
    /// Lines of blkparse's summary follow.
    in_summary: bool,
    action: Option<Action>,
    /// Read while the action was not known.
    waiting: VecDeque<(Action, Request)>,
    /// Events that neither read nor write, of each action.
    others: [u64; 3],
    /// Reads and writes of each action, by device.
    transfers: Vec<[u64; 3]>,
    /// Requests that each device was passed (`A`), by the devices' names: to and from.
    remaps: HashMap<[Vec<u8>; 2], u64>,
    counts: Counts,
    is_cut: bool,
}

/// `major,minor`
fn is_device(word: &[u8]) -> bool {
    let comma = memchr::memchr(b',', word);
    comma.is_some_and(|comma| decimal(&word[..comma]).is_some() && decimal(&word[comma + 1..]).is_some())
}

/// Nanoseconds of a time such as `12.000345678` seconds.
pub(crate) fn seconds(word: &[u8]) -> Option<u64> {
    let point = memchr::memchr(b'.', word)?;
    let (whole, part) = (decimal(&word[..point])?, &word[point + 1..]);
    if part.len() > 9 {
        return None;
    }
    let nanoseconds = decimal(part)?.checked_mul(10u64.pow(9 - part.len() as u32))?;
    whole.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Whether a line is an event.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = words(line).take(7).collect();
    fields.len() == 7 && is_device(fields[0]) && decimal(fields[1]).is_some() && seconds(fields[3]).is_some()
}

/// Whether blkparse's summary begins: `CPU0 (8,0):`, `Total (8,0):`.
fn begins_summary(line: &[u8]) -> bool {
    [&b"CPU"[..], b"Total", b"Throughput", b"Input file"].iter().any(|word| line.starts_with(word))
}

impl Blkparse {
    pub(crate) fn new(options: &Options) -> Blkparse {
        Blkparse {
            kind: options.kind.unwrap_or(Kind::Fd),
            kind_asked: options.kind.is_some(),
            limit: options.limits.request_bytes,
            devices: Ranges::new("device"),
            line: 0,
            in_summary: false,
            action: None,
            waiting: VecDeque::new(),
            others: [0; 3],
            transfers: Vec::new(),
            remaps: HashMap::new(),
            counts: Counts::default(),
            is_cut: false,
        }
    }

    fn parse(&mut self, line: &[u8]) -> Result<Line, String> {
        if !is_line(line) {
            self.in_summary |= begins_summary(line);
            if !self.in_summary && !line.trim_ascii().is_empty() {
                self.counts.add(Doubt::NotAnEvent);
            }
            return Ok(Line::Nothing);
        }
        self.in_summary = false;
        let mut fields = words(line);
        let mut next = || fields.next().unwrap_or_default();
        let device = next();
        let (_, _, time, _, action, kind) = (next(), next(), next(), next(), next(), next());
        let Some(action) = Action::ALL.into_iter().find(|known| known.letter() == action) else {
            if action == b"A" {
                self.remapped(device, fields);
            }
            return Ok(Line::Nothing);
        };
        let (first, plus, count) = (next(), next(), next());
        let write = kind.contains(&b'W');
        if (!write && !kind.contains(&b'R')) || kind.contains(&b'D') || plus != b"+" {
            return Ok(Line::Other(action));
        }
        let time = seconds(time);
        let (first, count) = (number(first, "first sector")?, number(count, "number of sectors")?);
        let outside = || format!("sector {} lies beyond 2^64 bytes", quote(first.to_string().as_bytes()));
        let offset = first.checked_mul(SECTOR_BYTES).ok_or_else(outside)?;
        let size = count.checked_mul(SECTOR_BYTES).ok_or_else(outside)?;
        let (first_page, pages) = pages_touched(offset, size, self.limit)?;
        if pages == 0 {
            return Ok(Line::Other(action));
        }
        let first_page = self.devices.place(device, first_page, pages)?;
        let (kind, weight) = (self.kind, Weight::range(offset, size));
        Ok(Line::Transfer(action, Request { first_page, pages, kind, write, time, weight, repeat: 1 }))
    }

    /// Notes a request that a device was passed: `first + count <- (major,minor) first`.
    fn remapped<'a>(&mut self, to: &[u8], mut fields: impl Iterator<Item = &'a [u8]>) {
        let from = fields.find(|word| *word == b"<-").and_then(|_| fields.next());
        let from = from.and_then(|word| word.strip_prefix(b"(")?.strip_suffix(b")")).unwrap_or_default();
        if self.remaps.len() < MAX_REMAPS || self.remaps.contains_key(&[to.to_owned(), from.to_owned()]) {
            *self.remaps.entry([to.to_owned(), from.to_owned()]).or_default() += 1;
        }
    }

    /// Requests that count for two devices: those passed on from one whose requests are in the trace too.
    fn counted_twice(&self) -> u64 {
        let Some(taken) = self.action else { return 0 };
        let is_taken = |device: &[u8]| {
            let index = self.devices.index(device);
            index.and_then(|index| self.transfers.get(index)).is_some_and(|of| of[taken as usize] > 0)
        };
        let twice = |(devices, _): &(&[Vec<u8>; 2], &u64)| devices.iter().all(|device| is_taken(device));
        self.remaps.iter().filter(twice).map(|(_, requests)| requests).sum()
    }

    /// The next reads and writes of any action.
    fn transfer(&mut self, input: &mut Input) -> Result<Option<(Action, Request)>, TraceError> {
        loop {
            self.line += 1;
            let Some(line) = input.line(self.line)? else {
                self.is_cut = input.line_is_cut();
                return Ok(None);
            };
            let line = self.parse(line);
            match line.map_err(|reason| TraceError::malformed(input.path(), Place::Line(self.line), reason))? {
                Line::Nothing => {}
                Line::Other(action) => self.others[action as usize] += 1,
                Line::Transfer(action, request) => {
                    let device = Ranges::index_of(request.first_page);
                    self.transfers.resize(self.transfers.len().max(device + 1), [0; 3]);
                    self.transfers[device][action as usize] += 1;
                    return Ok(Some((action, request)));
                }
            }
        }
    }

    /// Finds the action to take: the most telling one among the first events.
    fn find_action(&mut self, input: &mut Input) -> Result<(), TraceError> {
        while self.waiting.len() < LOOKED_AT {
            let Some((action, request)) = self.transfer(input)? else { break };
            self.waiting.push_back((action, request));
            if action == Action::Queued {
                break;
            }
        }
        let seen = |action: &Action| self.waiting.iter().any(|(other, _)| other == action);
        self.action = Action::ALL.into_iter().find(seen);
        Ok(())
    }
}

impl Requests for Blkparse {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        if self.action.is_none() {
            self.find_action(input)?;
        }
        let Some(taken) = self.action else { return Ok(None) };
        loop {
            let next = match self.waiting.pop_front() {
                Some(next) => Some(next),
                None => self.transfer(input)?,
            };
            match next {
                None => return Ok(None),
                Some((action, request)) if action == taken => {
                    match taken {
                        Action::Queued => {}
                        Action::Issued => self.counts.add(Doubt::TakenAtIssue),
                        Action::Completed => self.counts.add(Doubt::TakenAtCompletion),
                    }
                    return Ok(Some(request));
                }
                Some((action, _)) if (action as usize) < taken as usize => {
                    let [first, late] = [taken, action].map(|action| String::from_utf8_lossy(action.letter()));
                    let reason = format!(
                        "the first {LOOKED_AT} reads and writes have no event {late}, and now one comes; print {first} \
                         alone, or all events from the beginning, by blkparse -a"
                    );
                    return Err(TraceError::malformed(input.path(), Place::Line(self.line), reason));
                }
                Some(_) => {}
            }
        }
    }

    fn details(&self) -> Details {
        let events = match self.action {
            None | Some(Action::Queued) => "requests queued (Q)",
            Some(Action::Issued) => "requests issued (D)",
            Some(Action::Completed) => "requests completed (C)",
        };
        let devices = ("devices", self.devices.described());
        vec![("events", events.to_owned()), devices, kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        let mut counts = self.counts.clone();
        let others = self.action.map_or(0, |action| self.others[action as usize]);
        counts.add_many(Doubt::OtherCommands, others);
        // A request has several events, of which devices may lack those that are taken.
        let lacking = self.action.into_iter().flat_map(|taken| {
            self.transfers
                .iter()
                .filter(move |of| of[taken as usize] == 0)
                .map(|of| of.iter().copied().max().unwrap_or(0))
        });
        counts.add_many(Doubt::OtherDevices, lacking.sum());
        counts.add_many(Doubt::RemappedRequests, self.counted_twice());
        counts.remarks().into_iter().chain(Remark::cut_line(self.is_cut)).collect()
    }

    fn without_accesses(&self) -> Option<String> {
        let others: u64 = self.others.iter().sum();
        Some(match others {
            0 => "no line is an event Q, D or C; print them with `blkparse -i DEVICE`".to_owned(),
            _ => format!("{others} events Q, D or C neither read nor write"),
        })
    }

    fn place(&self, _input: &Input) -> Place {
        Place::Line(self.line)
    }

    fn slack_ns(&self) -> u64 {
        SLACK_NS
    }
}
