//! What clients asked of the window and what became of it, for `/metrics`.
//!
//! Places for requests and for streams of events are apart, and each client has a share of both: pages that look on
//! keep no request waiting, and no client keeps the others out. Cost: a few counters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::peer::Peer;
use super::problem::Problem;
use crate::connections::{Full, Place, Places};

/// Requests served at once.
pub const MAX_REQUESTS: usize = 256;
/// Of these, what one client may have.
pub const MAX_REQUESTS_OF_ONE: usize = 64;
/// Streams of events at once.
pub const MAX_STREAMS: usize = 384;
/// Of these, what one client may have.
pub const MAX_STREAMS_OF_ONE: usize = 128;

/// What a client wants a place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One answer.
    Request,
    /// Events.
    Stream,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Request, Kind::Stream];

    /// As a label.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Request => "request",
            Kind::Stream => "stream",
        }
    }
}

/// Figures of a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Places that are taken, in the order of [`Kind::ALL`].
    pub taken: [usize; 2],
    /// Clients that found no place so far, in the same order: because all were taken, because they had their share.
    pub refused: [[u64; 2]; 2],
    /// Answers so far by their code.
    pub answers: BTreeMap<u16, u64>,
}

/// See the module.
pub(super) struct Traffic {
    pub requests: Arc<Places<Peer>>,
    pub streams: Arc<Places<Peer>>,
    counted: Mutex<Figures>,
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            requests: Places::new(MAX_REQUESTS, MAX_REQUESTS_OF_ONE),
            streams: Places::new(MAX_STREAMS, MAX_STREAMS_OF_ONE),
            counted: Mutex::default(),
        }
    }
}

impl Traffic {
    /// A place for a stream in exchange for that of the request which asked for it.
    pub fn stream_for(&self, place: Place<Peer>) -> Result<Place<Peer>, Problem> {
        self.streams.take(place.client.clone()).map_err(|full| self.refused(Kind::Stream, full))
    }

    /// Counts a client that found no place.
    pub fn refused(&self, kind: Kind, full: Full) -> Problem {
        let (column, problem) = match full {
            Full::All => (0, Problem::Full),
            Full::Client => (1, Problem::ClientFull),
        };
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).refused[kind as usize][column] += 1;
        problem
    }

    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner).answers.entry(status).or_default() += 1;
    }

    /// How it is.
    pub fn figures(&self) -> Figures {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Figures { taken: [self.requests.count(), self.streams.count()], ..counted }
    }
}
