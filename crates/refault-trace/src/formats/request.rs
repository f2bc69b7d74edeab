//! Requests and their expansion into page accesses.

use super::PAGE_BYTES;
use super::order::InOrder;
use crate::error::Place;
use crate::input::Input;
use crate::reader::{BLOCK_ENTRIES, Details, ObjectPages, Options, TimeSpan, TraceReader, UNKNOWN_BYTES};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Entry, Kind, TraceError};

/// How many bytes the accesses of a request stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The format does not say, or bytes are no measure: accesses to memory.
    Unknown,
    /// Bytes per page: objects.
    Page(u64),
    /// A range of bytes from the first page into the last: `first` bytes in the first page, `all` in all.
    Range { first: u64, all: u64 },
}

impl Weight {
    /// The weight of `size` bytes from `offset` on.
    pub(crate) fn range(offset: u64, size: u64) -> Weight {
        Weight::Range { first: size.min(PAGE_BYTES - offset % PAGE_BYTES), all: size }
    }

    /// Bytes of the next page, and the weight of the pages after it.
    fn split(self) -> (u64, Weight) {
        match self {
            Weight::Unknown => (UNKNOWN_BYTES, Weight::Unknown),
            Weight::Page(bytes) => (bytes, self),
            Weight::Range { first, all } => {
                let rest = all - first;
                (first, Weight::Range { first: rest.min(PAGE_BYTES), all: rest })
            }
        }
    }
}

/// Successive pages accessed alike at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) first_page: u64,
    pub(crate) pages: u64,
    pub(crate) kind: Kind,
    pub(crate) write: bool,
    /// Nanoseconds.
    pub(crate) time: Option<u64>,
    pub(crate) weight: Weight,
    /// How many times over, at least 1.
    pub(crate) repeat: u64,
}

/// A format as a sequence of requests.
pub(crate) trait Requests: Send {
    /// The next request, `None` at the end of the input.
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError>;

    /// How the format was understood; complete after the first request.
    fn details(&self) -> Details;

    /// What was left out or assumed; complete at the end of the input.
    fn remarks(&self) -> Vec<Remark>;

    /// What was made of objects, if the format has some.
    fn objects(&self) -> Option<ObjectPages> {
        None
    }

    /// Whether requests say sizes, though the first may say none; known once there is one.
    fn says_sizes(&self) -> bool {
        false
    }

    /// Why there may be no access in the whole input, and what to do.
    fn without_accesses(&self) -> Option<String> {
        None
    }

    /// Where the last request stands.
    fn place(&self, input: &Input) -> Place {
        Place::Offset(input.offset())
    }

    /// By how much the time of a request may be before another's above it, in nanoseconds.
    fn slack_ns(&self) -> u64 {
        SLACK_NS
    }
}

/// A format in which a line is a request or nothing.
pub(crate) trait LineFormat: Send {
    /// The line's request, or what is wrong with it. A request's pages are at most [`Entry::MAX_PAGE`].
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String>;

    /// As [`Requests::details`].
    fn details(&self) -> Details;

    /// As [`Requests::remarks`].
    fn remarks(&self) -> Vec<Remark>;

    /// As [`Requests::objects`].
    fn objects(&self) -> Option<ObjectPages> {
        None
    }

    /// As [`Requests::says_sizes`].
    fn says_sizes(&self) -> bool {
        false
    }

    /// As [`Requests::slack_ns`].
    fn slack_ns(&self) -> u64 {
        SLACK_NS
    }

    /// What to say if no line was an access.
    fn without_accesses(&self) -> Option<String> {
        None
    }

    /// Whether a tool writes it, which ends each line.
    fn ends_each_line(&self) -> bool {
        false
    }
}

/// Recorders that write a request when it is done put it behind those that began later.
const SLACK_NS: u64 = 60_000_000_000;

/// The lines of a text.
pub(crate) struct Lines<F> {
    format: F,
    number: u64,
    is_cut: bool,
}

impl<F> Lines<F> {
    pub(crate) fn new(format: F) -> Lines<F> {
        Lines { format, number: 0, is_cut: false }
    }
}

impl<F: LineFormat> Requests for Lines<F> {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        loop {
            self.number += 1;
            let Some(line) = input.line(self.number)? else {
                self.is_cut = input.line_is_cut() && self.format.ends_each_line();
                return Ok(None);
            };
            match self.format.parse(line) {
                Ok(Some(request)) => return Ok(Some(request)),
                Ok(None) => {}
                Err(reason) => return Err(TraceError::malformed(input.path(), Place::Line(self.number), reason)),
            }
        }
    }

    fn details(&self) -> Details {
        self.format.details()
    }

    fn remarks(&self) -> Vec<Remark> {
        self.format.remarks().into_iter().chain(Remark::cut_line(self.is_cut)).collect()
    }

    fn objects(&self) -> Option<ObjectPages> {
        self.format.objects()
    }

    fn says_sizes(&self) -> bool {
        self.format.says_sizes()
    }

    fn place(&self, _input: &Input) -> Place {
        Place::Line(self.number)
    }

    fn slack_ns(&self) -> u64 {
        self.format.slack_ns()
    }

    fn without_accesses(&self) -> Option<String> {
        self.format.without_accesses()
    }
}

/// Reads any format of requests as a trace.
pub(crate) struct RequestReader<R> {
    input: Input,
    requests: InOrder<R>,
    /// The request being expanded, if it comes more than once, and what is left of it.
    whole: Option<Request>,
    current: Option<Request>,
    any: bool,
    time: Option<TimeSpan>,
    /// Of each access of the block, once a request has said some.
    bytes: Vec<u64>,
    says_bytes: bool,
    /// Accesses without.
    unsized_accesses: u64,
    /// Of each access of the block, as long as every request has one.
    times: Vec<u64>,
    block_length: usize,
}

impl<R: Requests> RequestReader<R> {
    pub(crate) fn new(input: Input, requests: R, options: &Options) -> RequestReader<R> {
        RequestReader {
            input,
            requests: InOrder::new(requests, options.file_order),
            whole: None,
            current: None,
            any: false,
            time: None,
            bytes: Vec::new(),
            says_bytes: false,
            unsized_accesses: 0,
            times: Vec::new(),
            block_length: 0,
        }
    }

    fn expand(&mut self, request: Request, out: &mut Vec<Entry>) {
        let room = (BLOCK_ENTRIES - out.len()) as u64;
        let taken = request.pages.min(room);
        let pages = request.first_page..request.first_page + taken;
        out.extend(pages.map(|page| Entry::new(page, request.kind, request.write)));
        if let Some(time) = request.time {
            self.time.get_or_insert(TimeSpan { first_ns: time, last_ns: time }).last_ns = time;
            self.times.extend(std::iter::repeat_n(time, taken as usize));
        }
        let mut weight = request.weight;
        self.unsized_accesses += if weight == Weight::Unknown { taken } else { 0 };
        if !self.says_bytes && (weight != Weight::Unknown || self.requests.inner().says_sizes()) {
            self.says_bytes = true;
            self.bytes.resize(out.len() - taken as usize, UNKNOWN_BYTES);
        }
        if self.says_bytes {
            for _ in 0..taken {
                let (bytes, rest) = weight.split();
                self.bytes.push(bytes);
                weight = rest;
            }
        }
        let rest = Request { first_page: request.first_page + taken, pages: request.pages - taken, weight, ..request };
        self.current = (rest.pages > 0).then_some(rest).or_else(|| self.again());
    }

    /// The request again, if it is to come once more.
    fn again(&mut self) -> Option<Request> {
        let whole = self.whole.as_mut()?;
        if whole.repeat <= 1 {
            self.whole = None;
            return None;
        }
        whole.repeat -= 1;
        Some(*whole)
    }
}

impl<R: Requests> TraceReader for RequestReader<R> {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        self.bytes.clear();
        self.times.clear();
        self.time = None;
        while out.len() < BLOCK_ENTRIES {
            let next = match self.current.take() {
                Some(request) => Some(request),
                None => {
                    let next = self.requests.next(&mut self.input)?;
                    self.whole = next.filter(|request| request.repeat > 1);
                    next
                }
            };
            match next {
                Some(request) => self.expand(request, out),
                None => break,
            }
        }
        self.any |= !out.is_empty();
        self.block_length = out.len();
        if !self.any {
            let left_out: Vec<String> = self.requests.remarks().iter().map(ToString::to_string).collect();
            let left_out = Some(left_out.join("; ")).filter(|text| !text.is_empty());
            let why =
                self.requests.inner().without_accesses().or(left_out).map_or(String::new(), |why| format!(": {why}"));
            return Err(TraceError::unsuitable(self.input.path(), format!("has no accesses{why}")));
        }
        Ok(out.len())
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }

    fn block_time(&self) -> Option<TimeSpan> {
        self.time
    }

    fn block_bytes(&self) -> Option<&[u64]> {
        (self.says_bytes && self.block_length > 0).then_some(&self.bytes)
    }

    fn block_times(&self) -> Option<&[u64]> {
        (self.times.len() == self.block_length && self.block_length > 0).then_some(&self.times)
    }

    fn details(&self) -> Details {
        self.requests.inner().details()
    }

    fn remarks(&self) -> Vec<Remark> {
        let mut counts = Counts::default();
        counts.add_many(Doubt::UnsizedAccesses, if self.says_bytes { self.unsized_accesses } else { 0 });
        self.requests.remarks().into_iter().chain(counts.remarks()).collect()
    }

    fn objects(&self) -> Option<ObjectPages> {
        let objects = self.requests.inner().objects()?;
        Some(ObjectPages { unsized_accesses: if objects.sized { 0 } else { self.unsized_accesses }, ..objects })
    }
}

/// The detail that says what pages are taken for, where the format does not say.
pub(crate) fn kind_detail(kind: Kind, asked: bool) -> (&'static str, String) {
    let reason = if asked { "as asked for" } else { "assumed; --kind says otherwise" };
    ("kind", format!("{} ({reason})", kind.name()))
}
