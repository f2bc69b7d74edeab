//! What members and daemon say to each other: a JSON object on each line.
//!
//! ```
//! use refault_pool::shared::protocol::{MAX_LINE, Request, receive, send};
//!
//! let mut line = Vec::new();
//! send(&mut line, &Request::Budget { pid: 7, bytes: Some(64 << 20) })?;
//! assert_eq!(line, b"{\"budget\":{\"pid\":7,\"bytes\":67108864}}\n");
//! assert_eq!(receive(&mut &line[..], MAX_LINE)?, Some(Request::Budget { pid: 7, bytes: Some(64 << 20) }));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use refault_config::units::bytes_text;
use serde::{Deserialize, Serialize};

use super::history::Look;
use super::ledger::{Figures, Terms};

/// Bytes of a line; who sends more is cut off.
pub const MAX_LINE: u64 = 1 << 16;

/// What a program that joins asks for; what is left out the daemon's configuration says, or the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wishes {
    /// Bytes that it is never granted less than.
    pub min: Option<u64>,
    /// Bytes that it is not granted less than while any member has unprotected memory.
    pub low: Option<u64>,
    /// Bytes that it is never granted more than.
    pub max: Option<u64>,
    /// Its weight.
    pub weight: Option<u32>,
    /// Bytes that are to be free, or granted and unused, before it begins.
    pub needs: Option<u64>,
}

impl Wishes {
    /// What these wishes, then those of a configuration, then the defaults come to.
    pub fn terms(self, configured: Wishes) -> Terms {
        let default = Terms::default();
        let min = self.min.or(configured.min).unwrap_or(default.min);
        Terms {
            min,
            low: self.low.or(configured.low).unwrap_or(default.low),
            max: self.max.or(configured.max).map(|max| max.max(min)),
            weight: self.weight.or(configured.weight).unwrap_or(default.weight),
            needs: self.needs.or(configured.needs).unwrap_or(default.needs),
        }
    }
}

/// To the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// A program is to run in the pool.
    Join {
        /// What runs.
        program: String,
        /// What people call it; empty: as the program.
        #[serde(default)]
        name: String,
        /// What it asks for.
        wishes: Wishes,
        /// Bytes that it keeps to already, granted before the daemon was started.
        has: u64,
    },
    /// How a member is.
    Report(Box<Figures>),
    /// A client asks how the pool is.
    Status,
    /// A client asks how its members were in the last minutes.
    History,
    /// A client sets a member's budget by hand, or lifts it.
    Budget {
        /// The member's process.
        pid: u64,
        /// Bytes; none: what the member asked for when it joined holds again.
        bytes: Option<u64>,
    },
}

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A member is to keep to `bytes` bytes.
    Grant {
        /// Bytes.
        bytes: u64,
        /// Number of the grant, which reports name.
        turn: u64,
        /// Bytes below which the member need not evict its own: it says what it lacks ([`Figures::lacks`]), and is given
        /// it at once.
        #[serde(default)]
        protected: u64,
    },
    /// A member that lacks memory within its protection is given nothing: all that is left is protected too.
    Nothing,
    /// There is no place for the program, or no right.
    Refused(String),
    /// How the pool is.
    Status(Box<Status>),
    /// How its members were, oldest look first.
    History(Vec<Look>),
    /// Done.
    Done,
}

/// How a pool is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub pool: String,
    /// Bytes that members may use together.
    pub memory_bytes: u64,
    /// Bytes that members may be using.
    pub committed_bytes: u64,
    /// Bytes that their programs use, as they said last.
    pub charge_bytes: u64,
    /// Generations younger than these milliseconds are not taken.
    pub min_ttl_ms: u64,
    /// The daemon's process.
    pub daemon: u32,
    /// Monotonic clock in nanoseconds, for the generations' births.
    pub now: u64,
    /// The members by process.
    pub members: BTreeMap<u64, MemberStatus>,
}

/// Ages that members' memory is told apart by: a name, and the seconds below which a generation belongs to it.
pub const AGES: [(&str, u64); 5] = [("1s", 1), ("10s", 10), ("1m", 60), ("10m", 600), ("older", u64::MAX)];

impl Status {
    /// Bytes of a member's generations by [`AGES`].
    pub fn bytes_by_age(&self, member: &MemberStatus) -> [u64; AGES.len()] {
        bytes_by_age(self.now, &member.figures)
    }

    /// Bytes that its members' `min`s are together, if the pool has less.
    pub fn mins_beyond_pool(&self) -> Option<u64> {
        let begun = self.members.values().filter(|member| member.grant_bytes > 0);
        let mins = begun.fold(0_u64, |sum, member| sum.saturating_add(member.terms.floor()));
        Some(mins).filter(|mins| *mins > self.memory_bytes)
    }
}

/// Says that members' `min`s, `mins` bytes together, exceed a pool of `pool` bytes, and what to do.
pub fn mins_exceed(mins: u64, pool: u64) -> String {
    let (mins, pool) = (bytes_text(mins), bytes_text(pool));
    format!(
        "the --min of its members are {mins} together, and it has {pool}: nothing is taken below them, so they may use \
         more than it has; end a member, or start the pool again with at least {mins}"
    )
}

/// Bytes of a member's generations by [`AGES`], at a moment of the monotonic clock in nanoseconds.
pub fn bytes_by_age(now: u64, figures: &Figures) -> [u64; AGES.len()] {
    let mut bytes = [0; AGES.len()];
    for [birth, size] in &figures.generations {
        let seconds = now.saturating_sub(*birth) / 1_000_000_000;
        bytes[AGES.iter().position(|(_, below)| seconds < *below).unwrap_or(AGES.len() - 1)] += size;
    }
    bytes
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// The program.
    pub program: String,
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// What it asked for.
    pub terms: Terms,
    /// The budget that was set by hand, if one was: `terms` holds it too.
    #[serde(default)]
    pub budget_bytes: Option<u64>,
    /// Bytes that it is to keep to.
    pub grant_bytes: u64,
    /// Bytes that it may be using.
    pub committed_bytes: u64,
    /// It answers. What does not keeps its last grant.
    pub answers: bool,
    /// Share of time in which its threads waited for memory, of the last round.
    pub pressure: f64,
    /// What it said last.
    pub figures: Figures,
}

/// Writes a message.
///
/// # Errors
/// The other side is gone, or does not read.
pub fn send(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a message; `None` at the end. Of a daemon's status a member has no use, so lines may be long there.
///
/// # Errors
/// The other side says nothing in time, or nonsense, or too much.
pub fn receive<T: for<'a> Deserialize<'a>>(from: &mut impl BufRead, most: u64) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(most).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line without an end"));
    }
    serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_went() {
        let all = [
            Request::Join {
                program: "a\n\"b\"".into(),
                name: "c".into(),
                wishes: Wishes { min: Some(5), ..Wishes::default() },
                has: 7,
            },
            Request::Report(Box::new(Figures { generations: vec![[1, 2]], ..Figures::default() })),
            Request::Status,
            Request::History,
            Request::Budget { pid: 4, bytes: Some(9) },
            Request::Budget { pid: 4, bytes: None },
        ];
        let mut wire = Vec::new();
        all.iter().for_each(|message| send(&mut wire, message).expect("memory"));
        let mut from = &wire[..];
        for message in all {
            assert_eq!(receive::<Request>(&mut from, MAX_LINE).expect("a line"), Some(message));
        }
        assert_eq!(receive::<Request>(&mut from, MAX_LINE).expect("the end"), None);
    }

    #[test]
    fn nonsense_and_endless_lines_are_errors() {
        let long = vec![b'x'; MAX_LINE as usize + 1];
        for bad in [&b"{}\n"[..], b"nonsense\n", b"\"status\"", &long, b"{\"join\":{\"program\":5}}\n"] {
            assert!(receive::<Request>(&mut &bad[..], MAX_LINE).is_err());
        }
    }

    #[test]
    fn wishes_go_before_the_configuration_and_that_before_defaults() {
        let configured = Wishes { min: Some(8 << 20), weight: Some(50), ..Wishes::default() };
        let terms = Wishes { weight: Some(200), max: Some(1), ..Wishes::default() }.terms(configured);
        assert_eq!(terms, Terms { min: 8 << 20, low: 0, max: Some(8 << 20), weight: 200, needs: 0 });
    }
}
