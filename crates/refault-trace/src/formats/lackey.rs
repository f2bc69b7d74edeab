//! What Valgrind's lackey tool prints with `--trace-mem=yes`: a letter, an address and a size a line.
//!
//! `I` fetches an instruction, `L` loads, `S` stores, `M` loads and stores. An access across a page boundary touches
//! both pages. Valgrind's own lines (`==` and `--`) and superblocks (`SB`) are skipped; anything else is an error,
//! because it means that the program's output went to the same place: give Valgrind a `--log-file`.

use std::collections::HashSet;

use super::numbers::{decimal, hexadecimal, pages_touched};
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::error::quote;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};

pub(crate) struct Lackey {
    kind: Kind,
    kind_asked: bool,
    skip_instructions: bool,
    limit: u64,
    /// Of those whose messages appear.
    processes: HashSet<u64>,
    counts: Counts,
}

/// Whether a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    is_message(line) || access(line).is_some()
}

fn is_message(line: &[u8]) -> bool {
    line.starts_with(b"==") || line.starts_with(b"--") || is_superblock(line)
}

/// The process of a message such as `==10832== Lackey`.
fn process(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"==").or_else(|| line.strip_prefix(b"--"))?;
    decimal(&rest[..memchr::memmem::find(rest, &line[..2])?])
}

/// What `--trace-superblocks=yes` adds: `SB 0401ab70`.
fn is_superblock(line: &[u8]) -> bool {
    line.strip_prefix(b"SB ").is_some_and(|address| hexadecimal(address.trim_ascii()).is_some())
}

/// Letter, address and size.
fn access(line: &[u8]) -> Option<(u8, u64, u64)> {
    let (letter, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
        [b' ', letter @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*letter, rest),
        _ => return None,
    };
    let comma = rest.iter().rposition(|byte| *byte == b',')?;
    Some((letter, hexadecimal(&rest[..comma])?, decimal(rest[comma + 1..].trim_ascii_end())?))
}

impl Lackey {
    pub(crate) fn new(options: &Options) -> Lackey {
        Lackey {
            kind: options.kind.unwrap_or(Kind::Anon),
            kind_asked: options.kind.is_some(),
            skip_instructions: options.skip_instructions,
            limit: options.limits.request_bytes,
            processes: HashSet::new(),
            counts: Counts::default(),
        }
    }
}

impl LineFormat for Lackey {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        let Some((letter, address, size)) = access(line) else {
            if let Some(process) = process(line) {
                self.processes.insert(process);
            }
            if is_message(line) || line.trim_ascii().is_empty() {
                return Ok(None);
            }
            return Err(format!("{} is not a lackey line; keep the program's output apart by --log-file", quote(line)));
        };
        if letter == b'I' && self.skip_instructions {
            return Ok(None);
        }
        let (first_page, pages) = pages_touched(address, size, self.limit)?;
        if pages == 0 {
            self.counts.add(Doubt::EmptyRequests);
        }
        let write = matches!(letter, b'S' | b'M');
        Ok((pages > 0).then_some(Request {
            first_page,
            pages,
            kind: self.kind,
            write,
            time: None,
            weight: Weight::Unknown,
            repeat: 1,
        }))
    }

    fn ends_each_line(&self) -> bool {
        true
    }

    fn details(&self) -> Details {
        let fetches = if self.skip_instructions { "left out" } else { "taken as reads" };
        vec![("instruction fetches", fetches.to_owned()), kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        let processes = Remark::several_processes(self.processes.len(), "record each alone by --log-file=FILE.%p");
        self.counts.remarks().into_iter().chain(processes).collect()
    }
}
