//! A member's end: joins, keeps to grants, reports, and joins again when the daemon comes back.
//!
//! Nothing waits for the daemon once the program runs, but for what the program lacks within its protection: [`WITHIN`]
//! at most. While the daemon is away the member keeps what it has.
//!
//! ```
//! use std::time::Duration;
//!
//! use refault_pool::shared::member::{JoinError, Member};
//! use refault_pool::shared::place::Place;
//! use refault_pool::shared::protocol::Wishes;
//!
//! let absent = Place::within("/nowhere".as_ref(), "example").expect("a name");
//! let refused = Member::join(&absent, "analysis", Wishes::default(), Duration::from_secs(1));
//! assert!(matches!(refused, Err(JoinError::Away(_)))); // there is no daemon; `shared` shows one
//! ```

use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::ledger::Figures;
use super::place::Place;
use super::protocol::{Answer, MAX_LINE, Request, Wishes, receive, send};

/// Between two reports.
pub const REPORT_EVERY: Duration = Duration::from_millis(200);
/// Between two attempts to reach a daemon that is away.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// A daemon that does not read for this time is away.
const SEND_WITHIN: Duration = Duration::from_millis(100);

/// A plea that is not answered for this time is in vain. After one in vain there is none for [`DISCOURAGED`], or twice,
/// four times … as long while the daemon says nothing, [`MAX_DOUBLINGS`] times at most: it may hang.
pub const WITHIN: Duration = Duration::from_millis(500);
const DISCOURAGED: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u32 = 5;

/// A daemon that does not say for this time how the pool is hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// A program's place in a pool.
#[derive(Debug)]
pub struct Member {
    socket: PathBuf,
    program: String,
    name: String,
    wishes: Wishes,
    connection: Option<Connection>,
    /// The grant that is kept to, and its number.
    grant: u64,
    turn: u64,
    tried: Instant,
    reported: Instant,
    /// The grant was lowered, and the member has not said yet that it is below it: another member waits for that
    /// memory.
    is_awaited: bool,
    /// See [`Member::protected`].
    protected: u64,
    /// What the daemon was asked for, or is to be.
    plea: Option<Plea>,
    /// Until then no plea is of use.
    discouraged: Option<Instant>,
    /// Pleas since the daemon said something last that it has not answered.
    unanswered: u32,
}

#[derive(Clone, Copy, Debug)]
struct Plea {
    bytes: u64,
    since: Instant,
    is_said: bool,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    /// What has been read of a line.
    partial: Vec<u8>,
}

/// Why a program cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no daemon.
    #[error("{0}")]
    Away(io::Error),
    /// The daemon says no.
    #[error("{0}")]
    Refused(String),
    /// Nothing was free in time.
    #[error("the pool is full")]
    Full,
    /// The daemon is there and says nothing, whatever it is asked.
    #[error("the pool's daemon does not answer")]
    Silent,
}

impl Member {
    /// Joins, and waits until there is a grant to begin with, `wait` at most.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(place: &Place, program: &str, wishes: Wishes, wait: Duration) -> Result<Member, JoinError> {
        Member::join_as(place, program, program, wishes, wait)
    }

    /// The same under a name of its own.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join_as(
        place: &Place,
        program: &str,
        name: &str,
        wishes: Wishes,
        wait: Duration,
    ) -> Result<Member, JoinError> {
        let now = Instant::now();
        let mut member = Member {
            socket: place.socket(),
            program: program.to_owned(),
            name: name.to_owned(),
            wishes,
            connection: None,
            grant: 0,
            turn: 0,
            tried: now,
            reported: now,
            is_awaited: false,
            protected: 0,
            plea: None,
            discouraged: None,
            unanswered: 0,
        };
        let stream = member.connect().map_err(JoinError::Away)?;
        let until = now + wait;
        let mut reader = BufReader::new(stream.try_clone().map_err(JoinError::Away)?);
        while member.grant == 0 {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            stream.set_read_timeout(Some(left)).map_err(JoinError::Away)?;
            match receive::<Answer>(&mut reader, MAX_LINE) {
                Ok(Some(Answer::Grant { bytes, turn, protected })) => {
                    (member.grant, member.turn, member.protected) = (bytes, turn, protected);
                }
                Ok(Some(Answer::Refused(why))) => return Err(JoinError::Refused(why)),
                Ok(Some(_)) => {}
                Ok(None) => return Err(JoinError::Away(io::ErrorKind::UnexpectedEof.into())),
                Err(error) if is_timeout(&error) && member.is_silent() => return Err(JoinError::Silent),
                Err(error) if is_timeout(&error) => return Err(JoinError::Full),
                Err(error) => return Err(JoinError::Away(error)),
            }
        }
        let partial = reader.buffer().to_vec();
        stream.set_nonblocking(true).map_err(JoinError::Away)?;
        member.connection = Some(Connection { stream, partial });
        Ok(member)
    }

    /// Bytes to keep to.
    pub fn grant(&self) -> u64 {
        self.grant
    }

    /// Bytes that the pool protects of it: its `min` or `low`, as far as it may have as much at all.
    pub fn protected(&self) -> u64 {
        self.protected
    }

    /// Bytes below which it is of use to ask for more ([`Member::pleads_for`]); 0: of none now.
    pub fn pleads_below(&self) -> u64 {
        let is_discouraged = self.discouraged.is_some_and(|until| Instant::now() < until);
        if self.connection.is_none() || is_discouraged { 0 } else { self.protected }
    }

    /// The program waits for `bytes` bytes more, within what is protected: the daemon is asked for them by the next
    /// [`Member::tend`].
    pub fn pleads_for(&mut self, bytes: u64) {
        if bytes > 0 && self.grant < self.pleads_below() && self.plea.is_none() {
            self.plea = Some(Plea { bytes, since: Instant::now(), is_said: false });
        }
    }

    /// The daemon was asked for memory and has not answered yet.
    pub fn is_pleading(&self) -> bool {
        self.plea.is_some()
    }

    /// Others wait until this member is below its grant.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// What is readable when the daemon has said something.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|connection| connection.stream.as_fd())
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_write_timeout(Some(SEND_WITHIN))?;
        let (program, name, wishes) = (self.program.clone(), self.name.clone(), self.wishes);
        send(&stream, &Request::Join { program, name, wishes, has: self.grant })?;
        Ok(stream)
    }

    /// Whether the daemon does not say in time how the pool is either, which it does at once.
    fn is_silent(&self) -> bool {
        let asked = UnixStream::connect(&self.socket).and_then(|stream| {
            stream.set_write_timeout(Some(SEND_WITHIN))?;
            stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
            send(&stream, &Request::Status)?;
            (&stream).read(&mut [0])
        });
        asked.is_err_and(|error| is_timeout(&error))
    }

    /// Hears the daemon and reports when it is time, or when it is below a grant that was lowered. Returns the bytes to
    /// keep to from now on, if that has changed.
    pub fn tend(&mut self, figures: impl FnOnce() -> Figures) -> Option<u64> {
        if self.connection.is_none() && self.tried.elapsed() >= RETRY_EVERY {
            self.tried = Instant::now();
            let connected = self.connect().and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
            self.connection = connected.ok().map(|stream| Connection { stream, partial: Vec::new() });
        }
        let before = self.grant;
        if self.hear().is_err() {
            (self.connection, self.plea) = (None, None);
        }
        self.is_awaited |= self.grant < before;
        if self.grant > before {
            self.plea = None;
        } else if self.plea.is_some_and(|plea| plea.since.elapsed() > WITHIN) {
            let pause = DISCOURAGED * 2_u32.pow(self.unanswered.min(MAX_DOUBLINGS));
            (self.plea, self.discouraged) = (None, Some(Instant::now() + pause));
            self.unanswered += 1;
        }
        let is_new_plea = self.plea.as_mut().is_some_and(|plea| !std::mem::replace(&mut plea.is_said, true));
        let is_due = self.reported.elapsed() >= REPORT_EVERY || self.grant != before || is_new_plea;
        if is_due || self.is_awaited {
            let lacks = self.plea.map_or(0, |plea| plea.bytes);
            let figures = Figures { turn: self.turn, limit: self.grant, lacks, ..figures() };
            let is_below = figures.charge <= self.grant;
            if is_due || is_below {
                self.reported = Instant::now();
                self.is_awaited &= !is_below;
                // A report that does not fit whole cannot be continued: begin anew.
                if let Some(connection) = &self.connection
                    && send(&connection.stream, &Request::Report(Box::new(figures))).is_err()
                {
                    self.connection = None;
                }
            }
        }
        (self.grant != before).then_some(self.grant)
    }

    /// Reports a last time before it ends, so that the daemon knows which of its processes go on.
    pub fn part(&mut self, figures: Figures) {
        if let Some(Connection { stream, .. }) = self.connection.take() {
            // If it does not come through, what was said last holds.
            let _ =
                send(&stream, &Request::Report(Box::new(Figures { turn: self.turn, limit: self.grant, ..figures })));
        }
    }

    fn hear(&mut self) -> io::Result<()> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let mut bytes = [0; 4096];
        loop {
            match connection.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => connection.partial.extend_from_slice(&bytes[..count]),
                Err(error) if is_timeout(&error) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if connection.partial.len() > MAX_LINE as usize {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        while let Some(end) = connection.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = connection.partial.drain(..=end).collect();
            match serde_json::from_slice(&line)? {
                Answer::Grant { bytes, turn, protected } if bytes > 0 => {
                    (self.grant, self.turn, self.protected) = (bytes, turn, protected);
                }
                Answer::Nothing => (self.plea, self.discouraged) = (None, Some(Instant::now() + DISCOURAGED)),
                _ => {}
            }
            self.unanswered = 0;
        }
        Ok(())
    }
}

/// Nothing came in time.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_that_hangs_is_not_taken_for_a_full_pool() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::within(directory.path(), "example").expect("a name");
        let daemon = UnixListener::bind(place.socket()).expect("a socket");
        let join = || Member::join(&place, "analysis", Wishes::default(), Duration::from_millis(50));
        assert!(matches!(join(), Err(JoinError::Silent)));
        // One that is full answers, and has nothing to grant.
        let answers = std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in daemon.incoming().take(4) {
                let stream = stream.expect("it comes");
                let request = receive::<Request>(&mut BufReader::new(&stream), MAX_LINE).expect("a line");
                if request == Some(Request::Status) {
                    send(&stream, &Answer::Status(Box::default()))
                        .or_else(|error| {
                            // The first two that asked are gone by now.
                            if open.len() < 2 { Ok(()) } else { Err(error) }
                        })
                        .expect("it listens");
                }
                open.push(stream);
            }
        });
        assert!(matches!(join(), Err(JoinError::Full)));
        answers.join().expect("no panic");
    }

    #[test]
    fn that_it_is_below_a_lowered_grant_is_said_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::within(directory.path(), "example").expect("a name");
        std::fs::create_dir_all(place.socket().parent().expect("a directory")).expect("room");
        let daemon = UnixListener::bind(place.socket()).expect("a socket");
        let joining = std::thread::spawn(move || {
            Member::join(&place, "analysis", Wishes::default(), Duration::from_secs(10)).expect("it joins")
        });
        let (stream, _) = daemon.accept().expect("it comes");
        send(&stream, &Answer::Grant { bytes: 1000, turn: 1, protected: 0 }).expect("it listens");
        let mut member = joining.join().expect("no panic");
        send(&stream, &Answer::Grant { bytes: 600, turn: 2, protected: 0 }).expect("it listens");
        let figures = |charge| Figures { charge, ..Figures::default() };
        assert_eq!(member.tend(|| figures(1000)), Some(600));
        // Not below yet; then it is said at once.
        for charge in [800, 600, 500] {
            assert_eq!(member.tend(|| figures(charge)), None);
        }
        member.part(figures(400));
        let mut reader = BufReader::new(stream);
        let mut reports = Vec::new();
        while let Ok(Some(request)) = receive::<Request>(&mut reader, MAX_LINE) {
            if let Request::Report(figures) = request {
                reports.push((figures.charge, figures.turn));
            }
        }
        assert_eq!(reports[0], (1000, 2));
        assert!(reports.contains(&(600, 2)), "{reports:?}");
        assert_eq!(reports.last(), Some(&(400, 2)));
    }

    #[test]
    fn what_the_program_lacks_within_its_protection_is_said_at_once_and_not_again_for_a_while_after_it_was_in_vain() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::within(directory.path(), "example").expect("a name");
        std::fs::create_dir_all(place.socket().parent().expect("a directory")).expect("room");
        let daemon = UnixListener::bind(place.socket()).expect("a socket");
        let joining = std::thread::spawn(move || {
            Member::join(&place, "analysis", Wishes::default(), Duration::from_secs(10)).expect("it joins")
        });
        let (stream, _) = daemon.accept().expect("it comes");
        let grant = |bytes, turn| send(&stream, &Answer::Grant { bytes, turn, protected: 2000 }).expect("it listens");
        grant(1000, 1);
        let mut member = joining.join().expect("no panic");
        let figures = || Figures { charge: 900, ..Figures::default() };
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut lacks = || loop {
            match receive::<Request>(&mut reader, MAX_LINE).expect("a line") {
                Some(Request::Report(figures)) => return figures.lacks,
                Some(_) => {}
                None => panic!("it hung up"),
            }
        };
        member.pleads_for(300);
        assert_eq!((member.tend(figures), lacks(), member.is_pleading()), (None, 300, true));
        grant(1300, 2);
        assert_eq!((member.tend(figures), lacks(), member.is_pleading()), (Some(1300), 0, false));
        // All of it is protected, and nothing is left.
        member.pleads_for(300);
        assert_eq!((member.tend(figures), lacks()), (None, 300));
        send(&stream, &Answer::Nothing).expect("it listens");
        assert_eq!((member.tend(figures), member.is_pleading(), member.pleads_below()), (None, false, 0));
        member.pleads_for(300);
        assert!(!member.is_pleading());
        std::thread::sleep(DISCOURAGED);
        assert_eq!(member.pleads_below(), 2000);
        // A daemon that does not answer is not waited for.
        member.pleads_for(300);
        member.tend(figures);
        std::thread::sleep(WITHIN + Duration::from_millis(1));
        member.tend(figures);
        assert_eq!((member.is_pleading(), member.pleads_below()), (false, 0));
        // Nor is it soon after that, and then for a longer time.
        std::thread::sleep(DISCOURAGED);
        member.pleads_for(300);
        member.tend(figures);
        std::thread::sleep(WITHIN + Duration::from_millis(1));
        member.tend(figures);
        std::thread::sleep(DISCOURAGED);
        assert_eq!((member.is_pleading(), member.pleads_below()), (false, 0));
        std::thread::sleep(DISCOURAGED);
        member.pleads_for(400);
        member.tend(figures);
        assert!(member.is_pleading());
        // Of a lower grant it is said again: the daemon answers what is said of the last.
        while lacks() != 400 {}
        grant(1200, 3);
        assert_eq!((member.tend(figures), lacks(), member.is_pleading()), (Some(1200), 400, true));
        grant(2000, 4);
        assert_eq!(member.tend(figures), Some(2000));
        std::thread::sleep(DISCOURAGED);
        member.pleads_for(300);
        assert!(!member.is_pleading(), "it has all that is protected");
    }
}
