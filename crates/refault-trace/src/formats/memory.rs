//! Accesses to memory, one per line: Dinero's `din` (`label address [bytes]`, hexadecimal, label 0 reads, 1 writes, 2
//! fetches an instruction) and what Pin's example `pinatrace` prints (`instruction: R address`, in newer ones with the size and the value behind it).

use super::numbers::{decimal, hexadecimal, pages_touched, words};
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::error::quote;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Dinero,
    Pin,
}

/// What a line accesses.
struct Access {
    address: u64,
    bytes: u64,
    write: bool,
    fetch: bool,
}

pub(crate) struct Memory {
    tool: Tool,
    kind: Kind,
    kind_asked: bool,
    limit: u64,
    skip_instructions: bool,
    counts: Counts,
}

fn address(word: &[u8]) -> Option<u64> {
    hexadecimal(word.strip_prefix(b"0x").unwrap_or(word))
}

fn dinero(line: &[u8]) -> Option<Access> {
    let mut fields = words(line);
    let (label, at) = (fields.next()?, address(fields.next()?)?);
    let bytes = fields.next().map_or(Some(1), decimal)?;
    let (write, fetch) = match label {
        b"0" | b"r" => (false, false),
        b"1" | b"w" => (true, false),
        b"2" | b"i" => (false, true),
        _ => return None,
    };
    Some(Access { address: at, bytes, write, fetch })
}

fn pin(line: &[u8]) -> Option<Access> {
    let mut fields = words(line);
    let code = fields.next()?.strip_suffix(b":")?;
    let (operation, at) = (fields.next()?, address(fields.next()?)?);
    address(code)?;
    let write = match operation {
        b"R" => false,
        b"W" => true,
        _ => return None,
    };
    // A value without a size has its mark before it.
    let bytes = match fields.next() {
        Some(word) if !word.starts_with(b"0x") => decimal(word)?,
        _ => 1,
    };
    Some(Access { address: at, bytes, write, fetch: false })
}

/// Whether a line is of Pin's.
pub(crate) fn is_pin_line(line: &[u8]) -> bool {
    line.starts_with(b"0x") && pin(line).is_some()
}

impl Memory {
    pub(crate) fn new(tool: Tool, options: &Options) -> Memory {
        Memory {
            tool,
            kind: options.kind.unwrap_or(Kind::Anon),
            kind_asked: options.kind.is_some(),
            limit: options.limits.request_bytes,
            skip_instructions: options.skip_instructions,
            counts: Counts::default(),
        }
    }
}

impl LineFormat for Memory {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let (access, form) = match self.tool {
            Tool::Dinero => (dinero(line), "label address: 0 7f001000"),
            Tool::Pin => (pin(line), "instruction: R address [size [value]]"),
        };
        let access = access.ok_or_else(|| format!("{} is not a line of the form {form}", quote(line)))?;
        if access.fetch && self.skip_instructions {
            return Ok(None);
        }
        let (first_page, pages) = pages_touched(access.address, access.bytes, self.limit)?;
        if pages == 0 {
            self.counts.add(Doubt::EmptyRequests);
            return Ok(None);
        }
        let (kind, write, weight) = (self.kind, access.write, Weight::Unknown);
        Ok(Some(Request { first_page, pages, kind, write, time: None, weight, repeat: 1 }))
    }

    fn ends_each_line(&self) -> bool {
        self.tool == Tool::Pin
    }

    fn details(&self) -> Details {
        vec![kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks()
    }
}
