//! What `redis-cli monitor` prints: `seconds [database client] "command" "key" …`.
//!
//! Each key of a command that reads or writes is an access to an object of its database; deletions and commands
//! without keys are left out. Sizes are not in it.

use std::collections::VecDeque;

use super::blkparse::seconds;
use super::object::{Objects, named};
use super::request::{Request, Requests, kind_detail};
use crate::error::{Place, quote};
use crate::input::Input;
use crate::reader::{Details, ObjectPages, ObjectsAs, Options};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Kind, TraceError};

/// Commands whose first argument is a key that they read.
const READS: &str = " get exists strlen getrange substr getbit bitcount bitpos hget hmget hgetall hexists hlen hkeys \
    hvals hstrlen hrandfield hscan lrange llen lindex lpos scard smembers sismember smismember srandmember sscan zrange \
    zrangebyscore zrevrange zrevrangebyscore zrangebylex zscore zmscore zcard zcount zlexcount zrank zrevrank \
    zrandmember zscan geohash geopos geodist geosearch xrange xrevrange xlen pfcount type ttl pttl dump json.get ";
/// Commands whose first argument is a key that they write.
const WRITES: &str = " set setex psetex setnx getset append setrange setbit incr incrby incrbyfloat decr decrby hset \
    hmset hsetnx hincrby hincrbyfloat hdel lpush rpush lpushx rpushx lpop rpop lset linsert lrem ltrim sadd srem spop \
    zadd zincrby zrem zpopmin zpopmax zremrangebyscore zremrangebyrank geoadd xadd xtrim xdel pfadd getex getdel expire \
    pexpire expireat pexpireat persist restore json.set ";
/// Commands whose arguments are all keys that they read, and those with pairs of key and value.
const READS_MANY: &str = " mget sinter sunion sdiff ";
const WRITES_MANY: &str = " mset msetnx ";
const DELETES: &str = " del unlink ";

pub(crate) struct Redis {
    kind: Kind,
    kind_asked: bool,
    line: u64,
    waiting: VecDeque<Request>,
    objects: Objects,
    counts: Counts,
}

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
    let end = memchr::memchr(b']', client)?;
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
        Redis { kind, kind_asked, line: 0, waiting: VecDeque::new(), objects, counts: Counts::default() }
    }

    /// Puts the accesses of a line in the queue.
    fn parse(&mut self, line: &[u8]) -> Result<(), String> {
        if line == b"OK" || line.trim_ascii().is_empty() {
            return Ok(());
        }
        let wrong = || format!("{} is not what redis-cli monitor prints", quote(line));
        let (time, database, words) = command(line).ok_or_else(wrong)?;
        let name = String::from_utf8_lossy(words[0]).to_ascii_lowercase();
        let is_of = |names: &str| names.contains(&format!(" {name} "));
        let keys = &words[1..];
        let (keys, write): (Vec<&[u8]>, bool) = match () {
            () if is_of(READS) => (keys.iter().take(1).copied().collect(), false),
            () if is_of(WRITES) => (keys.iter().take(1).copied().collect(), true),
            () if is_of(READS_MANY) => (keys.to_vec(), false),
            () if is_of(WRITES_MANY) => (keys.iter().step_by(2).copied().collect(), true),
            () if is_of(DELETES) => {
                keys.iter().for_each(|_| self.counts.add(Doubt::Deletions));
                return Ok(());
            }
            () => {
                self.counts.add(Doubt::OtherCommands);
                return Ok(());
            }
        };
        for key in keys {
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
            let Some(line) = input.line(self.line)? else { return Ok(None) };
            let parsed = self.parse(line);
            parsed.map_err(|reason| TraceError::malformed(input.path(), Place::Line(self.line), reason))?;
        }
        Ok(self.waiting.pop_front())
    }

    fn details(&self) -> Details {
        vec![("objects", self.objects.described()), kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks()
    }

    fn objects(&self) -> Option<ObjectPages> {
        Some(self.objects.pages_of_all())
    }

    fn place(&self, _input: &Input) -> Place {
        Place::Line(self.line)
    }
}
