//! Faults that go on where one ended: how many pages to bring in at once.
//!
//! A stream is a sequence of faults, each at the address after what the last one brought in, or at the one before. One
//! that goes on brings in twice as many pages each time, if streams that came so far have mostly gone on: a program
//! whose objects lie across the border of two pages makes many streams of two faults, and the pages after them are not
//! wanted.
//!
//! Invariant: what was learnt is between never and always. Cost: a look at eight streams per fault, no memory beside
//! them.

use crate::PAGE;

/// Streams that are followed at once; the one that has not gone on for longest gives way.
const STREAMS: usize = 8;
/// Faults of a stream that are told apart; what happens after more is as after the last.
const STEPS: usize = 6;
/// The share of streams that went on, in parts of this.
const ALWAYS: u32 = 1 << 16;
/// A stream's end or going on counts one part in this against what was known.
const MEMORY: u32 = 32;
/// More pages come along where more than this part of the streams went on. One that is not wanted costs what is saved
/// by two that are: the fault is saved, but reading, compressing and the page that gave way for it are not.
const WORTHWHILE: u32 = ALWAYS / 8 * 5;

/// One sequence of faults.
#[derive(Clone, Copy, Default)]
struct Stream {
    next: usize,
    previous: usize,
    window: usize,
    step: usize,
    /// When it last went on, in faults.
    used: u32,
}

/// See the module.
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    /// Of the fault that is being served.
    current: usize,
    faults: u32,
    /// By how many faults a stream had had: the part of them that went on.
    goes_on: [u32; STEPS],
}

impl Streams {
    pub(crate) fn new() -> Streams {
        Streams { streams: [Stream::default(); STREAMS], current: 0, faults: 0, goes_on: [ALWAYS; STEPS] }
    }

    /// A fault at an address: how many pages to bring in at most, and whether downwards.
    pub(crate) fn begin(&mut self, address: usize, max_window: usize) -> (usize, bool) {
        self.faults = self.faults.wrapping_add(1);
        let known = self.streams.iter().position(|stream| stream.next == address || stream.previous == address);
        self.current = match known {
            Some(known) => {
                self.learn(self.streams[known].step, true);
                let stream = &mut self.streams[known];
                stream.step = (stream.step + 1).min(STEPS - 1);
                if self.goes_on[stream.step] > WORTHWHILE {
                    stream.window *= 2;
                }
                known
            }
            None => {
                let now = self.faults;
                let oldest = (0..STREAMS).max_by_key(|i| now.wrapping_sub(self.streams[*i].used)).unwrap_or(0);
                if self.streams[oldest].window > 0 {
                    self.learn(self.streams[oldest].step, false);
                }
                self.streams[oldest] = Stream { window: 1, ..Stream::default() };
                oldest
            }
        };
        let stream = &mut self.streams[self.current];
        stream.used = self.faults;
        stream.window = stream.window.clamp(1, max_window);
        (stream.window, known.is_some() && stream.previous == address)
    }

    /// What the window of the fault has become.
    pub(crate) fn went_to(&mut self, first: usize, pages: usize) {
        let stream = &mut self.streams[self.current];
        (stream.next, stream.previous) = (first + pages * PAGE, first.wrapping_sub(PAGE));
    }

    fn learn(&mut self, step: usize, went_on: bool) {
        let known = &mut self.goes_on[step];
        *known = *known - *known / MEMORY + if went_on { ALWAYS / MEMORY } else { 0 };
        *known = (*known).min(ALWAYS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: usize = 1 << 30;

    /// Faults at every page that has not come in, of `pages` pages from an address on. Returns the pages that came in.
    fn read(streams: &mut Streams, start: usize, pages: usize) -> usize {
        let (mut at, mut brought) = (start, 0);
        while at < start + pages * PAGE {
            let (window, backward) = streams.begin(at, 32);
            assert!(!backward);
            streams.went_to(at, window);
            at += window * PAGE;
            brought += window;
        }
        brought
    }

    #[test]
    fn a_scan_brings_in_twice_as_many_each_time() {
        let mut streams = Streams::new();
        let mut at = FAR;
        for expected in [1, 2, 4, 8, 16, 32, 32] {
            assert_eq!(streams.begin(at, 32), (expected, false));
            streams.went_to(at, expected);
            at += expected * PAGE;
        }
    }

    #[test]
    fn downwards_too() {
        let mut streams = Streams::new();
        let mut at = FAR;
        for expected in [1, 2, 4, 8] {
            assert_eq!(streams.begin(at, 32), (expected, at != FAR));
            streams.went_to(at + PAGE - expected * PAGE, expected);
            at -= expected * PAGE;
        }
    }

    #[test]
    fn what_lies_across_a_border_brings_nothing_along() {
        let mut streams = Streams::new();
        let mut brought = 0;
        for object in 0..1000 {
            let before = brought;
            brought += read(&mut streams, FAR + object * 1000 * PAGE, 2);
            if object > 500 {
                assert_eq!(brought - before, 2);
            }
        }
        // A scan among them is found a fault later than it would be without them.
        assert!(read(&mut streams, 2 * FAR, 300) >= 300);
        let (window, _) = streams.begin(FAR * 3, 32);
        assert_eq!(window, 1);
    }

    #[test]
    fn a_scan_is_followed_among_many_faults_elsewhere() {
        let mut streams = Streams::new();
        let (mut at, mut random, mut windows) = (FAR, 3 * FAR, vec![]);
        for _ in 0..200 {
            let (window, _) = streams.begin(at, 32);
            streams.went_to(at, window);
            at += window * PAGE;
            windows.push(window);
            for _ in 0..STREAMS - 1 {
                random += 77 * PAGE;
                assert_eq!(streams.begin(random, 32).0, 1);
                streams.went_to(random, 1);
            }
        }
        assert_eq!(windows.last(), Some(&32));
    }
}
