//! Requests and their expansion into page accesses.

use crate::error::Place;
use crate::input::Input;
use crate::reader::{BLOCK_ENTRIES, Options, TimeSpan, TraceReader};
use crate::{Entry, Kind, TraceError};

/// Successive pages accessed alike at one time.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) first_page: u64,
    pub(crate) pages: u64,
    pub(crate) kind: Kind,
    pub(crate) write: bool,
    /// Nanoseconds.
    pub(crate) time: Option<u64>,
}

/// A format as a sequence of requests.
pub(crate) trait Requests: Send {
    /// The next request, `None` at the end of the input.
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError>;
}

/// A format in which a line is a request or nothing.
pub(crate) trait LineFormat: Send {
    /// The line's request, or what is wrong with it. A request's pages are at most [`Entry::MAX_PAGE`].
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String>;
}

/// The lines of a text.
pub(crate) struct Lines<F> {
    format: F,
    number: u64,
}

impl<F> Lines<F> {
    pub(crate) fn new(format: F) -> Lines<F> {
        Lines { format, number: 0 }
    }
}

impl<F: LineFormat> Requests for Lines<F> {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        loop {
            self.number += 1;
            let Some(line) = input.line(self.number)? else { return Ok(None) };
            match self.format.parse(line) {
                Ok(Some(request)) => return Ok(Some(request)),
                Ok(None) => {}
                Err(reason) => return Err(TraceError::malformed(input.path(), Place::Line(self.number), reason)),
            }
        }
    }
}

/// Reads any format of requests as a trace.
pub(crate) struct RequestReader<R> {
    input: Input,
    requests: R,
    /// What is left of the request being expanded.
    current: Option<Request>,
    collapse: bool,
    /// Held back to see whether the next access is to the same page.
    held: Option<Entry>,
    any: bool,
    time: Option<TimeSpan>,
}

impl<R: Requests> RequestReader<R> {
    pub(crate) fn new(input: Input, requests: R, options: &Options) -> RequestReader<R> {
        let collapse = options.collapse;
        RequestReader { input, requests, current: None, collapse, held: None, any: false, time: None }
    }

    fn expand(&mut self, request: Request, out: &mut Vec<Entry>) {
        let room = (BLOCK_ENTRIES - out.len()) as u64;
        let taken = request.pages.min(room);
        let pages = request.first_page..request.first_page + taken;
        let entries = pages.map(|page| Entry::new(page, request.kind, request.write));
        if self.collapse {
            for entry in entries {
                match &mut self.held {
                    Some(held) if held.0 | Entry::WRITE == entry.0 | Entry::WRITE => held.0 |= entry.0,
                    held => out.extend(held.replace(entry)),
                }
            }
        } else {
            out.extend(entries);
        }
        if let Some(time) = request.time {
            self.time.get_or_insert(TimeSpan { first_ns: time, last_ns: time }).last_ns = time;
        }
        let rest = Request { first_page: request.first_page + taken, pages: request.pages - taken, ..request };
        self.current = (rest.pages > 0).then_some(rest);
    }
}

impl<R: Requests> TraceReader for RequestReader<R> {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        self.time = None;
        while out.len() < BLOCK_ENTRIES {
            let next = match self.current.take() {
                Some(request) => Some(request),
                None => self.requests.next(&mut self.input)?,
            };
            match next {
                Some(request) => self.expand(request, out),
                None => {
                    out.extend(self.held.take());
                    break;
                }
            }
        }
        self.any |= !out.is_empty();
        if !self.any {
            return Err(TraceError::unsuitable(self.input.path(), "has no accesses"));
        }
        Ok(out.len())
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }

    fn block_time(&self) -> Option<TimeSpan> {
        self.time
    }
}
