//! Twitter's public traces of cache clusters (Yang, Yue and Rashmi, OSDI 2020): comma-separated time in seconds, key,
//! bytes of the key, bytes of the value, client, operation, time to live; no header.
//!
//! Keys become pages as [`super::object`] says; an object's size is key plus value. Deletions are left out: a trace of
//! accesses has no word for them. Times to live are counted and not used.

use super::numbers::number;
use super::object::{Objects, named};
use super::request::{LineFormat, Request, kind_detail};
use crate::Kind;
use crate::error::quote;
use crate::reader::{Details, ObjectPages, Options};
use crate::remark::{Counts, Doubt, Remark};

const SECOND_NS: u64 = 1_000_000_000;
/// Fields behind the key, which may hold commas itself.
const BEHIND_KEY: usize = 5;

pub(crate) struct Twitter {
    kind: Kind,
    kind_asked: bool,
    objects: Objects,
    counts: Counts,
}

/// What an operation does to its object.
enum Operation {
    Read,
    Write,
    Delete,
}

/// Time, key, and the fields behind it.
type Fields<'a> = (&'a [u8], &'a [u8], [&'a [u8]; BEHIND_KEY]);

fn fields(line: &[u8]) -> Option<Fields<'_>> {
    let first = memchr::memchr(b',', line)?;
    let (time, mut rest) = (&line[..first], &line[first + 1..]);
    let mut behind = [&line[..0]; BEHIND_KEY];
    for field in behind.iter_mut().rev() {
        let comma = memchr::memrchr(b',', rest)?;
        *field = &rest[comma + 1..];
        rest = &rest[..comma];
    }
    Some((time, rest, behind))
}

fn operation(word: &[u8]) -> Option<Operation> {
    Some(match word {
        b"get" | b"gets" => Operation::Read,
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => Operation::Write,
        b"delete" => Operation::Delete,
        _ => return None,
    })
}

/// Whether a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    fields(line).is_some_and(|(time, key, [key_bytes, value_bytes, _, word, _])| {
        let numbers = [time, key_bytes, value_bytes].iter().all(|field| number(field, "").is_ok());
        numbers && !key.is_empty() && operation(word).is_some()
    })
}

impl Twitter {
    pub(crate) fn new(options: &Options) -> Twitter {
        Twitter {
            kind: options.kind.unwrap_or(Kind::Fd),
            kind_asked: options.kind.is_some(),
            objects: Objects::new(options),
            counts: Counts::default(),
        }
    }
}

impl LineFormat for Twitter {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let wrong = || format!("{} has not the 7 fields of a Twitter trace", quote(line));
        let (time, key, [key_bytes, value_bytes, _, word, ttl]) = fields(line).ok_or_else(wrong)?;
        let write = match operation(word) {
            Some(Operation::Read) => false,
            Some(Operation::Write) => true,
            Some(Operation::Delete) => {
                self.counts.add(Doubt::Deletions);
                return Ok(None);
            }
            None => return Err(format!("operation {} is none of a Twitter trace", quote(word))),
        };
        if number(ttl, "time to live")? > 0 {
            self.counts.add(Doubt::TimesToLive);
        }
        let seconds = number(time, "time")?;
        let time = Some(seconds.checked_mul(SECOND_NS).ok_or_else(|| format!("time {seconds} s is no time"))?);
        let size = number(key_bytes, "key size")?.saturating_add(number(value_bytes, "value size")?);
        let (first_page, pages, weight) = self.objects.pages(named(key), Some(size))?;
        Ok((pages > 0).then_some(Request { first_page, pages, kind: self.kind, write, time, weight, repeat: 1 }))
    }

    fn ends_each_line(&self) -> bool {
        true
    }

    fn details(&self) -> Details {
        vec![("objects", self.objects.described()), kind_detail(self.kind, self.kind_asked)]
    }

    fn objects(&self) -> Option<ObjectPages> {
        Some(self.objects.pages_of_all())
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks().into_iter().chain(self.objects.counts().remarks()).collect()
    }
}
