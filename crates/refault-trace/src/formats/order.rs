//! Requests by time: what stands a little late in a file is put where its time says, and a file whose times go back
//! farther is refused.
//!
//! Recorders with a buffer for each processor or thread write such files. Two recordings in one file, or a file sorted
//! by something else, are no trace; their order must be asked for. So must that of times that are no times but spans
//! since the request before: most are before the latest above them, and they do not grow. Requests of one time keep the file's order.
//! Cost: a window of at most 65,536 requests (some 5 MiB), and two moves for each request.

use std::collections::VecDeque;

use super::request::{Request, Requests};
use crate::error::TraceError;
use crate::input::Input;
use crate::remark::{Doubt, Remark};

/// Requests by which one may stand late.
const MAX_LATE: usize = 1 << 16;
/// Requests from which on the reader looks whether times are spans.
const MIN_LOOKED_AT: usize = 16;

/// Hands out the requests of `inner` by time.
pub(crate) struct InOrder<R> {
    inner: R,
    /// Read and not handed out yet, by time.
    window: VecDeque<Request>,
    ended: bool,
    /// Take the order of the file.
    as_in_file: bool,
    /// The latest time read, and the latest handed out.
    latest: u64,
    handed_out: u64,
    /// Requests whose time is before another's above them, and by how much at most.
    late: u64,
    farthest_ns: u64,
    /// Times as they stand in the file, until the first window was looked at.
    first_times: Option<Vec<u64>>,
}

impl<R: Requests> InOrder<R> {
    pub(crate) fn new(inner: R, as_in_file: bool) -> InOrder<R> {
        InOrder {
            inner,
            window: VecDeque::new(),
            ended: false,
            as_in_file,
            latest: 0,
            handed_out: 0,
            late: 0,
            farthest_ns: 0,
            first_times: Some(Vec::new()),
        }
    }

    pub(crate) fn inner(&self) -> &R {
        &self.inner
    }

    /// Puts a request into the window, by its time; or says by how much it is too late.
    fn insert(&mut self, request: Request) -> Result<(), u64> {
        if let Some(times) = &mut self.first_times {
            times.extend(request.time);
        }
        let Some(time) = request.time.filter(|time| *time < self.latest) else {
            self.latest = request.time.unwrap_or(self.latest);
            self.window.push_back(request);
            return Ok(());
        };
        let back = self.latest - time;
        self.late += 1;
        self.farthest_ns = self.farthest_ns.max(back);
        if self.as_in_file {
            self.window.push_back(request);
            return Ok(());
        }
        if back > self.inner.slack_ns() || time < self.handed_out {
            return Err(back);
        }
        let place = self.window.partition_point(|other| other.time.is_none_or(|other| other <= time));
        self.window.insert(place, request);
        Ok(())
    }

    pub(crate) fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        let wanted = if self.as_in_file { 1 } else { MAX_LATE };
        while self.window.len() < wanted && !self.ended {
            let Some(request) = self.inner.next(input)? else {
                self.ended = true;
                break;
            };
            if request.time.is_none() && self.window.is_empty() {
                return Ok(Some(request));
            }
            self.insert(request).map_err(|back| {
                let reason = format!(
                    "the time goes back by {} s: sort the file by time, or take its order as it is by --file-order",
                    back as f64 / 1e9
                );
                TraceError::malformed(input.path(), self.inner.place(input), reason)
            })?;
        }
        if let Some(times) = self.first_times.take()
            && !self.as_in_file
            && are_spans(&times, self.late)
        {
            let reason = format!(
                "{} of the first {} times are before another above them, and they do not grow: they are no times since \
                 one origin, but spans, as `perf script --deltatime` prints; take the order of the file by --file-order, \
                 or leave times out",
                self.late,
                times.len()
            );
            return Err(TraceError::malformed(input.path(), self.inner.place(input), reason));
        }
        let request = self.window.pop_front();
        self.handed_out = request.and_then(|request| request.time).unwrap_or(self.handed_out);
        Ok(request)
    }

    /// What was done to the order, after what the format itself did.
    pub(crate) fn remarks(&self) -> Vec<Remark> {
        let mut remarks = self.inner.remarks();
        if self.late > 0 {
            let far = self.farthest_ns as f64 / 1e9;
            let (doubt, done) = match self.as_in_file {
                true => (Doubt::TimesGoBack, "and the order of the file is kept, as --file-order says"),
                false => (Doubt::Reordered, "and are put in order"),
            };
            let text = format!("{} requests have times that go back, by up to {far} s, {done}", self.late);
            remarks.push(Remark::with_text(doubt, self.late, text));
        }
        remarks
    }
}

/// Whether times, of which `late` are before the latest above them, look like spans between requests: three of four are
/// late, a quarter are before the one right above them, and the last third goes down to the mean of the first.
fn are_spans(times: &[u64], late: u64) -> bool {
    let count = times.len();
    let third = count / 3;
    if count < MIN_LOOKED_AT || late * 4 < 3 * count as u64 {
        return false;
    }
    let descents = times.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let mean = times[..third].iter().map(|time| u128::from(*time)).sum::<u128>() / third as u128;
    let least = times[count - third..].iter().min().copied().unwrap_or(u64::MAX);
    descents * 4 >= count && u128::from(least) <= mean
}
