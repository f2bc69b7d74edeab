//! What `redis-cli monitor` prints: `seconds [database client] "command" "key" …`.
//!
//! Each key of a command that reads or writes is an access to an object of its database; deletions and commands
//! without keys are left out. So are scripts, whose commands stand in lines of their own. Sizes are not in it.

mod commands;

use std::collections::{BTreeSet, VecDeque};

use super::blkparse::seconds;
use super::object::{Objects, named};
use super::request::{Request, Requests, kind_detail};
use crate::error::{Place, quote};
use crate::input::Input;
use crate::reader::{Details, ObjectPages, ObjectsAs, Options};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Kind, TraceError};
use commands::Known;

pub(crate) struct Redis {
    kind: Kind,
    kind_asked: bool,
    line: u64,
    waiting: VecDeque<Request>,
    objects: Objects,
    /// Names of commands that are not known, up to some.
    unknown: BTreeSet<String>,
    counts: Counts,
    is_cut: bool,
}

/// Names that a remark shows, at most.
const MAX_NAMES: usize = 4;

/// The text between quotes at the start, with escapes as they stand, and what is behind it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start().strip_prefix(b"\"")?;
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// Time, database, and the command with its arguments.
type Command<'a> = (u64, &'a [u8], Vec<&'a [u8]>);

fn command(line: &[u8]) -> Option<Command<'_>> {
    let blank = memchr::memchr(b' ', line)?;
    let time = seconds(&line[..blank])?;
    let client = line[blank + 1..].strip_prefix(b"[")?;
    // An address of IPv6 has brackets of its own.
    let end = memchr::memmem::find(client, b"] \"")?;
    let database = &client[..memchr::memchr(b' ', &client[..end])?];
    let (mut words, mut rest) = (Vec::new(), &client[end + 1..]);
    while let Some((word, behind)) = quoted(rest) {
        words.push(word);
        rest = behind;
    }
    (!words.is_empty() && rest.trim_ascii().is_empty()).then_some((time, database, words))
}

/// Whether a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    line == b"OK" || command(line).is_some()
}

impl Redis {
    pub(crate) fn new(options: &Options) -> Redis {
        let objects = Objects::new(&Options { objects: ObjectsAs::OnePageEach, ..options.clone() });
        let (kind, kind_asked) = (options.kind.unwrap_or(Kind::Fd), options.kind.is_some());
        let (waiting, unknown) = (VecDeque::new(), BTreeSet::new());
        Redis { kind, kind_asked, line: 0, waiting, objects, unknown, counts: Counts::default(), is_cut: false }
    }

    /// Puts the accesses of a line in the queue.
    fn parse(&mut self, line: &[u8]) -> Result<(), String> {
        if line == b"OK" || line.trim_ascii().is_empty() {
            return Ok(());
        }
        let wrong = || format!("{} is not what redis-cli monitor prints", quote(line));
        let (time, database, words) = command(line).ok_or_else(wrong)?;
        let name = String::from_utf8_lossy(words[0]).to_ascii_lowercase();
        let known = commands::known(&name);
        let keys = match &known {
            Some(Known::Keys(command)) => command.keys(&words[1..]),
            _ => None,
        };
        match (&known, &keys) {
            (Some(Known::Deletion), _) => self.counts.add_many(Doubt::Deletions, words.len() as u64 - 1),
            (Some(Known::WithoutKeys), _) => self.counts.add(Doubt::OtherCommands),
            (Some(Known::Keys(_)), Some(keys)) if keys.is_empty() => self.counts.add(Doubt::OtherCommands),
            (Some(Known::Keys(_)), Some(_)) => {}
            // The server prints commands too whose words it then finds wrong.
            _ => {
                self.counts.add(Doubt::UnknownCommands);
                if self.unknown.len() <= MAX_NAMES {
                    self.unknown.insert(quote(words[0]));
                }
            }
        }
        if keys.is_some() && commands::sets_time_to_live(&name, &words[1..]) {
            self.counts.add(Doubt::TimesToLive);
        }
        for (key, write) in keys.unwrap_or_default() {
            // The same key of another database is another object.
            let object = if database == b"0" { named(key) } else { named(&[database, b" ".as_slice(), key].concat()) };
            let (first_page, pages, weight) = self.objects.pages(object, None)?;
            let (kind, time) = (self.kind, Some(time));
            self.waiting.push_back(Request { first_page, pages, kind, write, time, weight, repeat: 1 });
        }
        Ok(())
    }
}

impl Requests for Redis {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        while self.waiting.is_empty() {
            self.line += 1;
            let Some(line) = input.line(self.line)? else {
                self.is_cut = input.line_is_cut();
                return Ok(None);
            };
            let parsed = self.parse(line);
            parsed.map_err(|reason| TraceError::malformed(input.path(), Place::Line(self.line), reason))?;
        }
        Ok(self.waiting.pop_front())
    }

    fn details(&self) -> Details {
        vec![("objects", self.objects.described()), kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        let named = |remark: Remark| match remark.doubt {
            Doubt::UnknownCommands => {
                let names: Vec<&str> = self.unknown.iter().take(MAX_NAMES).map(String::as_str).collect();
                let more = if self.unknown.len() > MAX_NAMES { ", …" } else { "" };
                let text = format!("{remark}: {}{more}", names.join(", "));
                Remark::with_text(remark.doubt, remark.count, text)
            }
            _ => remark,
        };
        self.counts.remarks().into_iter().map(named).chain(Remark::cut_line(self.is_cut)).collect()
    }

    fn objects(&self) -> Option<ObjectPages> {
        Some(self.objects.pages_of_all())
    }

    fn place(&self, _input: &Input) -> Place {
        Place::Line(self.line)
    }
}
