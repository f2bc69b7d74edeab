//! The daemon's end: takes members in, hears them, decides in rounds and tells them their grants. Between rounds it
//! answers members that wait for memory within their protection.
//!
//! A thread for each connection reads; one thread decides. What members may be using is written to a file before they
//! hear of it. So a daemon that is started again leaves it to them until they have joined again or are gone. A member
//! that has said nothing for [`SILENCE`] keeps its last grant. Only processes of the same user, or root, are heard.
//!
//! A member is gone when its connection has ended and none of its processes is left: those that it named, itself, and
//! what descends from them. A process that cannot be looked at counts as there.
//!
//! Cost: a round each [`ROUND`], some microseconds for each member. While a member has no connection, or is in a PID
//! namespace of its own, a round also looks at all processes of the machine. That takes some microseconds for each of
//! these.
//!
//! ```
//! use std::io::ErrorKind;
//! use std::time::Duration;
//!
//! use refault_pool::shared::daemon::{Daemon, PoolOptions};
//! use refault_pool::shared::place::Place;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path().join("pools");
//! let place = Place::within(&directory, "example")?;
//! let options =
//!     PoolOptions { memory: 256 << 20, min_ttl: Duration::ZERO, proactive: None, members: Default::default() };
//! let daemon = Daemon::open(place.clone(), options.clone())?;
//! assert_eq!(daemon.status().memory_bytes, 256 << 20);
//! let second = Daemon::open(place, options).err().expect("a pool has one daemon");
//! assert_eq!(second.kind(), ErrorKind::WouldBlock);
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use refault_config::units::bytes_text;
use serde::{Deserialize, Serialize};

use crate::connections::{Places, Threads, serve_each};

use super::history::{History, Moment};
use super::ledger::{Entry, Figures, Ledger, Terms};
use super::place::Place;
use super::processes::{self, Process, now};
use super::protocol::{
    Answer, MAX_LINE, MemberStatus, Request, Status, Wishes, bytes_by_age, mins_exceed, receive, send,
};

/// Between two rounds.
pub const ROUND: Duration = Duration::from_millis(200);
/// A member that has said nothing for this time does not answer.
pub const SILENCE: Duration = Duration::from_secs(1);
/// The daemon cuts off a member that does not read for this time.
const SEND_WITHIN: Duration = Duration::from_millis(50);
/// Connections at once, if there are descriptors for them.
const MAX_CONNECTIONS: usize = 1024;
/// Descriptors that connections leave for looks at processes, the pool's files, the terminal's, and a connection that
/// is one too many.
const OTHER_DESCRIPTORS: usize = 24;
/// The daemon cuts off a program that says nothing at all for this time after it connects.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// No process has a higher number; members say one for each process that they know by another namespace's number alone.
const MAX_NUMBER: i32 = 1 << 22;
/// Characters of a member's name.
pub const MAX_NAME: usize = 64;
/// Between two looks at what descends from members that cannot name all of their processes, while they are connected.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a pool is to be.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Bytes that members may use together.
    pub memory: u64,
    /// Generations younger than this are not taken.
    pub min_ttl: Duration,
    /// The share of time in which a member may wait, to which each is squeezed.
    pub proactive: Option<f64>,
    /// What members ask for that do not say it themselves, by the name of their program.
    pub members: HashMap<String, Wishes>,
}

/// A member as the daemon knows it.
struct Known {
    program: String,
    /// What people call it.
    name: String,
    /// Its own process and those of its programs: as long as one is there, its memory is taken to be in use.
    processes: Vec<Process>,
    /// It is in a PID namespace of its own: the numbers that it names are not ours.
    is_numbered_otherwise: bool,
    /// It has processes that it cannot name, for that reason or because they are in such a namespace themselves.
    has_unnamed: bool,
    /// There as long as the member has not hung up; of that alone it is known that it runs.
    connection: Option<Arc<UnixStream>>,
    /// Number of that connection: a late end of one before it is none of this one.
    number: u64,
    heard: Instant,
    /// The grant that it was told last.
    told: u64,
}

struct State {
    ledger: Ledger,
    known: BTreeMap<u64, Known>,
    /// What the file says.
    written: String,
    /// When all processes were looked at last.
    looked: Option<Instant>,
    history: History,
    /// That members' `min`s exceed the pool has been said, and is still so.
    is_exceeded: bool,
    /// See [`Daemon::called`].
    is_called: bool,
}

/// What is written for the daemon after this one.
#[derive(Serialize, Deserialize)]
struct Left {
    program: String,
    #[serde(default)]
    name: String,
    terms: Terms,
    committed: u64,
    #[serde(default)]
    budget: Option<u64>,
    processes: Vec<Process>,
}

/// A pool at work.
pub struct Daemon {
    place: Place,
    options: PoolOptions,
    state: Mutex<State>,
    /// A member waits for memory, and what it waits for may be there before the next round.
    called: Condvar,
    numbers: AtomicU64,
    listener: UnixListener,
    /// Held as long as the daemon lives.
    _lock: File,
}

impl Daemon {
    /// Takes the pool and opens its socket.
    ///
    /// # Errors
    /// `WouldBlock`: it has a daemon already. Others: its directory cannot be used.
    pub fn open(place: Place, options: PoolOptions) -> io::Result<Arc<Daemon>> {
        let lock = place.lock()?;
        match fs::remove_file(place.socket()) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(place.socket())?;
        let mut state = State {
            ledger: Ledger::new(options.memory, options.min_ttl.as_nanos() as u64, options.proactive),
            known: BTreeMap::new(),
            written: String::new(),
            looked: None,
            history: History::default(),
            is_exceeded: false,
            is_called: false,
        };
        let left = fs::read_to_string(place.state()).unwrap_or_default();
        let left: BTreeMap<u64, Left> = serde_json::from_str(&left).unwrap_or_default();
        for (id, left) in left {
            state.ledger.join(id, left.terms, left.committed);
            state.ledger.keep_budget(id, left.budget);
            state.ledger.answers(id, false);
            let heard = Instant::now();
            let known = Known {
                program: left.program,
                name: left.name,
                processes: left.processes,
                is_numbered_otherwise: false,
                has_unnamed: false,
                connection: None,
                number: 0,
                heard,
                told: 0,
            };
            state.known.insert(id, known);
        }
        state.bury();
        let (state, numbers) = (Mutex::new(state), AtomicU64::new(1));
        let called = Condvar::new();
        Ok(Arc::new(Daemon { place, options, state, called, numbers, listener, _lock: lock }))
    }

    /// Serves until it is asked to end. Members keep their grants then. `says` hears, in a line each, what people should
    /// know: when the members' `min`s begin to exceed the pool.
    ///
    /// # Errors
    /// The socket cannot be served.
    pub fn run(self: &Arc<Daemon>, asked: &AtomicBool, says: impl Fn(&str)) -> io::Result<()> {
        let daemon = Arc::clone(self);
        std::thread::Builder::new().name("listener".into()).spawn(move || {
            let threads = Threads { name: "connection", stack_bytes: 256 << 10 };
            // All are of one user, or root's.
            let places = Places::new(most_connections(), MAX_CONNECTIONS);
            let (listener, refuse) = (Arc::clone(&daemon), |_, _| {});
            let incoming = listener.listener.incoming();
            serve_each(incoming, &threads, &places, |_| (), refuse, move |stream, _place| daemon.hear(stream));
        })?;
        let mut last = Instant::now();
        while !asked.load(Ordering::Relaxed) {
            if self.is_called_before(last + ROUND) {
                self.answer();
                continue;
            }
            if let Some(line) = self.round(last.elapsed()) {
                says(&line);
            }
            last = Instant::now();
        }
        match fs::remove_file(self.place.socket()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a thread that panicked left is as good as what it had before: each change is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection until its end.
    fn hear(&self, stream: UnixStream) -> io::Result<()> {
        let (user, pid) = peer(&stream)?;
        let me = rustix::process::geteuid().as_raw();
        stream.set_write_timeout(Some(SEND_WITHIN))?;
        stream.set_read_timeout(Some(FIRST_WORD))?;
        if user != me && user != 0 {
            return send(&stream, &Answer::Refused("the pool is another user's".to_owned()));
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let ended = self.converse(Arc::new(stream), pid, number);
        // However it ended; if it never joined, there is nothing to lose.
        self.lost(pid, number);
        ended
    }

    fn converse(&self, stream: Arc<UnixStream>, pid: u64, number: u64) -> io::Result<()> {
        let mut reader = BufReader::new(&*stream);
        let mut joined = false;
        while let Some(request) = receive::<Request>(&mut reader, MAX_LINE)? {
            match request {
                Request::Join { program, name, wishes, has } => {
                    if let Err(why) = self.join(pid, (&program, &name), wishes, has, &stream, number) {
                        return send(&*stream, &Answer::Refused(why));
                    }
                    joined = true;
                    stream.set_read_timeout(None)?;
                }
                Request::Report(figures) => {
                    // One that the ledger does not have is to join again.
                    if !joined || !self.report(pid, number, *figures) {
                        return Ok(());
                    }
                }
                Request::Status => send(&*stream, &Answer::Status(Box::new(self.status())))?,
                Request::History => send(&*stream, &Answer::History(self.state().history.looks()))?,
                Request::Budget { pid, bytes } => {
                    let set = self.state().ledger.set_budget(pid, bytes);
                    let answer = set.map_or_else(|why| Answer::Refused(why.to_string()), |()| Answer::Done);
                    send(&*stream, &answer)?;
                }
            }
        }
        Ok(())
    }

    fn join(
        &self,
        pid: u64,
        (program, name): (&str, &str),
        wishes: Wishes,
        has: u64,
        stream: &Arc<UnixStream>,
        number: u64,
    ) -> Result<(), String> {
        if pid == 0 {
            let why = "its process cannot be seen from the daemon, which runs in a PID namespace of its own";
            return Err(why.to_owned());
        }
        let look = |pid| Ok((Process::look(pid)?, processes::is_numbered_otherwise(pid)?));
        // Without them it could not be told later whether it is gone.
        let (own, is_numbered_otherwise) =
            look(pid as i32).map_err(|error: io::Error| format!("its process cannot be looked at: {error}"))?;
        let name = named(name, program);
        let configured = [&name, program].into_iter().find_map(|known| self.options.members.get(known));
        let configured = configured.copied().unwrap_or_default();
        let terms = wishes.terms(configured);
        let mut state = self.state();
        let before = state.ledger.members().get(&pid).map(|member| member.committed);
        if before.is_none() && has == 0 && !state.ledger.could_hold(&terms) {
            return Err(format!(
                "its min, or what it needs, is {}, and with the min of the members more than the pool's {}",
                bytes_text(terms.floor().max(terms.needs)),
                bytes_text(state.ledger.pool())
            ));
        }
        // What it may be using counts until it confirms less.
        state.ledger.join(pid, terms, has.max(if has > 0 { before.unwrap_or(0) } else { 0 }));
        let mut processes: Vec<Process> = own.into_iter().collect();
        // One that comes back may have others than itself that it has not named again yet.
        if let Some(before) = state.known.get(&pid).filter(|_| has > 0) {
            processes.extend(before.processes.iter().filter(|process| Some(**process) != own));
        }
        let known = Known {
            program: program.to_owned(),
            name,
            processes,
            is_numbered_otherwise,
            has_unnamed: is_numbered_otherwise,
            connection: Some(Arc::clone(stream)),
            number,
            heard: Instant::now(),
            told: 0,
        };
        state.known.insert(pid, known);
        Ok(())
    }

    /// Takes down what a member says; `false` if this connection is no member's.
    fn report(&self, pid: u64, number: u64, figures: Figures) -> bool {
        let mut state = self.state();
        let Some(known) = state.known.get_mut(&pid).filter(|known| known.number == number) else { return false };
        known.heard = Instant::now();
        known.see(pid as i32, &figures.processes);
        state.ledger.answers(pid, true);
        state.ledger.report(pid, figures);
        if state.ledger.is_pleaded() {
            state.is_called = true;
            self.called.notify_one();
        }
        true
    }

    /// Waits until then, or until a member is to be answered before: `true`.
    fn is_called_before(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.called.wait_timeout_while(self.state(), left, |state| !state.is_called);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // Rounds come in time, however often members ask.
        std::mem::take(&mut state.is_called) && Instant::now() < until
    }

    /// Between rounds: for members that wait.
    fn answer(&self) {
        let mut state = self.state();
        state.ledger.answer(now());
        state.write(&self.place);
        state.tell();
    }

    /// A connection has ended: the member keeps its grant until it is gone.
    fn lost(&self, pid: u64, number: u64) {
        let mut state = self.state();
        match state.known.get_mut(&pid) {
            Some(known) if known.number == number => known.connection = None,
            _ => return,
        }
        state.ledger.answers(pid, false);
        state.bury();
    }

    /// One round; what people should know of it.
    fn round(&self, elapsed: Duration) -> Option<String> {
        let mut state = self.state();
        state.bury();
        let silent: Vec<u64> =
            state.known.iter().filter(|(_, known)| known.heard.elapsed() > SILENCE).map(|(id, _)| *id).collect();
        silent.iter().for_each(|id| state.ledger.answers(*id, false));
        let now = now();
        state.ledger.round(now, elapsed.as_nanos() as u64);
        if state.history.is_due(now) {
            let moments = state.ledger.members().iter().map(|(id, entry)| (*id, moment(now, entry))).collect();
            state.history.note(now, moments);
        }
        state.write(&self.place);
        state.tell();
        let mins = state.ledger.mins_beyond_pool();
        let was_exceeded = std::mem::replace(&mut state.is_exceeded, mins.is_some());
        mins.filter(|_| !was_exceeded).map(|mins| mins_exceed(mins, state.ledger.pool()))
    }

    /// How the pool is.
    pub fn status(&self) -> Status {
        let state = self.state();
        let members = state.ledger.members().iter().map(|(id, entry)| {
            let known = state.known.get(id);
            let status = MemberStatus {
                program: known.map_or_else(String::new, |known| known.program.clone()),
                name: known.map_or_else(String::new, |known| named(&known.name, &known.program)),
                terms: entry.terms,
                budget_bytes: entry.budget,
                grant_bytes: entry.grant,
                committed_bytes: entry.committed,
                answers: entry.answers,
                pressure: entry.pressure,
                figures: entry.figures.clone(),
            };
            (*id, status)
        });
        Status {
            pool: self.place.name().to_owned(),
            memory_bytes: state.ledger.pool(),
            committed_bytes: state.ledger.committed(),
            charge_bytes: state.ledger.members().values().map(|entry| entry.figures.charge).sum(),
            min_ttl_ms: self.options.min_ttl.as_millis() as u64,
            daemon: std::process::id(),
            now: now(),
            members: members.collect(),
        }
    }
}

impl Known {
    /// Says something to a member, if it is connected; whether it has heard.
    fn hears(&self, answer: &Answer) -> bool {
        let Some(connection) = &self.connection else { return false };
        let sent = send(&**connection, answer);
        if sent.is_err() {
            // Half a line may be there: it is to join again.
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        sent.is_ok()
    }

    /// Takes note of the processes that run in a member now.
    fn see(&mut self, own: i32, running: &[i32]) {
        self.has_unnamed = self.is_numbered_otherwise || running.iter().any(|pid| *pid > MAX_NUMBER);
        // What numbers mean there is not known here; its descendants are looked for.
        if self.is_numbered_otherwise {
            return;
        }
        if !self.has_unnamed {
            self.processes.retain(|process| process.pid == own || running.contains(&process.pid));
        }
        let began = self.processes.iter().find(|process| process.pid == own).map_or(u64::MAX, |own| own.began);
        for pid in running {
            if !self.processes.iter().any(|process| process.pid == *pid) {
                // What was there before the member is none of its processes, whatever it says.
                self.processes.extend(Process::of(*pid).filter(|process| process.began >= began));
            }
        }
    }
}

impl State {
    /// Takes the memory of members back that have hung up and of which no process is left.
    fn bury(&mut self) {
        let is_open = |known: &Known| known.connection.is_some();
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY);
        let asks = |known: &Known| !is_open(known) || known.has_unnamed && is_due;
        if !self.known.values().any(asks) {
            return;
        }
        self.looked = Some(Instant::now());
        // Who named its processes does so no more, and they may start others. In a round in which they cannot be seen
        // all stay.
        let Ok(all) = processes::all() else { return };
        for known in self.known.values_mut().filter(|known| !is_open(known) || known.has_unnamed) {
            processes::add_descendants(&mut known.processes, &all);
            known.processes.retain(|process| all.iter().any(|(other, _)| other == process) || !process.is_gone());
        }
        let gone = |known: &&Known| !is_open(known) && known.processes.is_empty();
        let gone: Vec<u64> = self.known.iter().filter(|(_, known)| gone(known)).map(|(id, _)| *id).collect();
        for id in gone {
            self.known.remove(&id);
            self.ledger.leave(id);
        }
        // Before the next round another may come, with whom they exceed it anew.
        self.is_exceeded &= self.ledger.mins_beyond_pool().is_some();
    }

    /// Writes what members may be using, before they hear of it.
    fn write(&mut self, place: &Place) {
        let left: BTreeMap<u64, Left> = self
            .ledger
            .members()
            .iter()
            .filter_map(|(id, entry)| {
                let known = self.known.get(id)?;
                let left = Left {
                    program: known.program.clone(),
                    name: known.name.clone(),
                    terms: entry.asked,
                    committed: entry.committed,
                    budget: entry.budget,
                    processes: known.processes.clone(),
                };
                Some((*id, left))
            })
            .collect();
        let text = serde_json::to_string(&left).unwrap_or_default();
        if text == self.written {
            return;
        }
        let new = place.state().with_extension("new");
        // Without the file a daemon after this one learns it from the members themselves.
        if fs::write(&new, &text).and_then(|()| fs::rename(&new, place.state())).is_ok() {
            self.written = text;
        }
    }

    fn tell(&mut self) {
        for (id, entry) in self.ledger.members() {
            let Some(known) = self.known.get_mut(id) else { continue };
            if entry.grant == 0 || known.told == entry.turn {
                continue;
            }
            let protected = entry.protected(self.ledger.pool());
            if known.hears(&Answer::Grant { bytes: entry.grant, turn: entry.turn, protected }) {
                known.told = entry.turn;
            }
        }
        for id in self.ledger.take_refused() {
            if let Some(known) = self.known.get(&id) {
                known.hears(&Answer::Nothing);
            }
        }
    }
}

/// What a member is called: what it said, on one line and not too long, or its program.
fn named(name: &str, program: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    if name.trim().is_empty() { program.to_owned() } else { name }
}

/// A member as its history keeps it.
fn moment(now: u64, entry: &Entry) -> Moment {
    let figures = &entry.figures;
    Moment {
        charge_bytes: figures.charge,
        grant_bytes: entry.grant,
        resident_bytes: figures.resident,
        compressed_bytes: figures.compressed,
        stored_bytes: figures.stored,
        faults: figures.faults,
        refaults: figures.refaults,
        fault_p50_ns: figures.fault_p50,
        fault_p99_ns: figures.fault_p99,
        pressure: entry.pressure,
        bytes_by_age: bytes_by_age(now, figures),
        heat_percent: figures.heat.clone(),
    }
}

/// How many connections there are descriptors for, after as many as may be had were asked for.
fn most_connections() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    let is_raised = limit.current != limit.maximum
        && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok();
    let descriptors = if is_raised { limit.maximum } else { limit.current }.map_or(usize::MAX, |most| most as usize);
    descriptors.saturating_sub(OTHER_DESCRIPTORS).clamp(1, MAX_CONNECTIONS)
}

/// The user of the process that connected, and the number that it has here: 0 if it cannot be seen from here.
#[allow(unsafe_code)] // One system call, with its reason.
fn peer(stream: &UnixStream) -> io::Result<(u32, u64)> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `length` bytes, which is the size of `peer`, of which any bytes are a
    // value; the descriptor is open as long as `stream` is borrowed. (rustix has a number there that must not be 0.)
    let failed = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut length)
    };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok((peer.uid, peer.pid.max(0) as u64)) }
}
