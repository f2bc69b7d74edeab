//! Readahead: which reads of a file follow each other, and what comes next.
//!
//! A *stream* is a sequence of reads a fixed step apart: forward, backward, or with gaps. Only misses are seen, and
//! hits of *marked* pages. The first page of what was read ahead carries a mark. A reader of that page asks for the
//! next window, so that the device works while the reader does. A window starts at four times the read and grows to the
//! most that is allowed. It grows by four while it is small and then by two (the kernel's rule: `page_cache_ra_order`,
//! `force_page_cache_ra` and `get_next_ra_size` in `mm/readahead.c`). Pages that were read ahead and evicted before a
//! reader asked for them halve it, down to nothing. Where a window takes long however small it is, a reader that had to
//! wait for one has two under way from then on ([`Streams::further`]).
//!
//! Invariants: at most [`STREAMS`] streams per file, the one used longest ago makes place; a window never begins before
//! the file. Cost: each stream is looked at once per miss and per mark.

const STREAMS: usize = 16;
/// Reads of a stream are at most this many pages apart.
const MAX_STEP: u64 = 1024;
/// Pages of a stream with gaps that are read ahead at most: each is a read of its own.
const MAX_GAPPED: u64 = 16;
/// Reads where they were expected, and windows that were reached, after which windows may double again.
const FORGIVEN: u32 = 64;
/// A window that is smaller is none.
const MIN_WINDOW: u64 = 2;

/// Pages to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The page that is asked for first; it carries the mark.
    pub(crate) first: u64,
    /// Pages from one to the next.
    pub(crate) step: i64,
    /// How many.
    pub(crate) pages: u64,
}

impl Window {
    /// What follows its last page, unless the file begins there.
    fn end(self) -> Option<u64> {
        self.first.checked_add_signed(self.step * self.pages as i64)
    }

    /// The window in parts of at most `most` pages, in the order in which the reader will ask for them.
    pub(crate) fn parts(self, most: u64) -> impl Iterator<Item = Window> {
        (0..self.pages.div_ceil(most)).map_while(move |number| {
            let first = self.first.checked_add_signed((number * most) as i64 * self.step)?;
            Some(Window { first, pages: most.min(self.pages - number * most), ..self })
        })
    }

    /// The pages, in the order in which they will be asked for, up to where the file begins or ends.
    pub(crate) fn pages(self, end: u64) -> impl Iterator<Item = u64> {
        (0..self.pages as i64)
            .map_while(move |number| self.first.checked_add_signed(number * self.step))
            .take_while(move |page| *page < end)
    }
}

#[derive(Clone, Copy, Default)]
struct Stream {
    /// First page and pages of the last read that missed.
    last: u64,
    length: u64,
    /// From one read to the next; 0: not known.
    step: i64,
    /// Reads that came where they were expected.
    run: u32,
    /// The window that was read ahead last.
    window: Option<Window>,
    /// The one before it, if no reader has arrived there.
    before: Option<Window>,
    /// 0: never.
    used: u64,
}

impl Stream {
    fn next(&self) -> Option<u64> {
        let step = if self.step == 0 { self.length as i64 } else { self.step };
        self.last.checked_add_signed(step)
    }

    /// Reads follow each other without a gap, forward or backward.
    fn is_dense(&self) -> bool {
        self.step.unsigned_abs() <= self.length
    }
}

#[derive(Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
    /// Times that windows are halved, because pages that were read ahead were evicted unread.
    restraint: u32,
    /// Pages that were evicted unread at the last look.
    seen_unread: u32,
    /// Further pages that may be evicted unread, of those that waited when windows were halved last.
    excused: u32,
    /// Reads and windows since then that were right.
    good: u32,
}

impl Streams {
    /// A read of `length` pages from `index` on was not in memory. What is to be read ahead, at most `most` pages.
    pub(crate) fn missed(&mut self, index: u64, length: u64, most: u64) -> Option<Window> {
        self.clock += 1;
        let clock = self.clock;
        let most = most >> self.restraint;
        let expected = |stream: &&mut Stream| stream.used != 0 && stream.next() == Some(index);
        if let Some(stream) = self.streams.iter_mut().find(expected) {
            if stream.step == 0 {
                stream.step = stream.length as i64;
            }
            stream.run += 1;
            self.good += 1;
            if self.good.is_multiple_of(FORGIVEN) {
                self.restraint = self.restraint.saturating_sub(1);
            }
            (stream.last, stream.length, stream.used) = (index, length, clock);
            if stream.step > 0 && stream.is_dense() {
                stream.step = length as i64;
            }
            // A gap that happens once means nothing.
            if stream.step != length as i64 && stream.run < 2 {
                return None;
            }
            return stream.first_window(most);
        }
        let near =
            |stream: &&mut Stream| stream.used != 0 && stream.run == 0 && stream.last.abs_diff(index) <= MAX_STEP;
        if let Some(stream) = self.streams.iter_mut().filter(near).max_by_key(|stream| stream.used) {
            let step = index.wrapping_sub(stream.last) as i64;
            *stream = Stream { last: index, length, step, run: 0, window: None, before: None, used: clock };
            return None;
        }
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used).expect("invariant: there are streams");
        *oldest = Stream { last: index, length, step: 0, run: 0, window: None, before: None, used: clock };
        None
    }

    /// A marked page was read: the reader has arrived in a window. What is to be read ahead after it, at most
    /// `most` pages, or `most_of_two` if another window is under way before it.
    pub(crate) fn marked(&mut self, index: u64, most: u64, most_of_two: u64) -> Option<Window> {
        self.clock += 1;
        let begins = |window: Option<Window>| window.is_some_and(|window| window.first == index);
        let of = |stream: &&mut Stream| begins(stream.window) || begins(stream.before);
        let stream = self.streams.iter_mut().find(of)?;
        stream.before = stream.window.filter(|window| window.first != index);
        let most = if stream.before.is_none() { most } else { most_of_two } >> self.restraint;
        stream.used = self.clock;
        self.good += 1;
        if self.good.is_multiple_of(FORGIVEN) {
            self.restraint = self.restraint.saturating_sub(1);
        }
        stream.next_window(most)
    }

    /// A reader had to wait for the window before this one, which was made when it arrived. What is to be read ahead
    /// besides; at most `most` pages.
    pub(crate) fn further(&mut self, window: Window, most: u64) -> Option<Window> {
        let most = most >> self.restraint;
        // Its beginning may be another by now.
        let of = |stream: &&mut Stream| {
            stream.before.is_none()
                && stream.window.is_some_and(|last| last.step == window.step && last.end() == window.end())
        };
        let stream = self.streams.iter_mut().find(of)?;
        let window = stream.window;
        let next = stream.next_window(most);
        match next {
            Some(_) => stream.before = window,
            None => stream.window = window,
        }
        next
    }

    /// The first page of a window that is really read is this one: those before it are there.
    pub(crate) fn begins(&mut self, window: Window, first: u64) {
        let of = |stream: &&mut Stream| stream.window == Some(window);
        if let Some(Stream { window: Some(window), .. }) = self.streams.iter_mut().find(of) {
            window.pages -= window.first.abs_diff(first) / window.step.unsigned_abs();
            window.first = first;
        }
    }

    /// `pages` pages of this file were evicted unread so far. At most `waiting` more may be evicted for one halving:
    /// smaller windows save no page that is there already.
    pub(crate) fn unread(&mut self, pages: u32, waiting: u32) {
        let lost = pages.wrapping_sub(self.seen_unread);
        self.seen_unread = pages;
        if lost <= self.excused {
            self.excused -= lost;
            return;
        }
        self.good = 0;
        self.restraint = (self.restraint + 1).min(16);
        self.excused = waiting;
    }
}

impl Stream {
    /// The first window, right after the read that is under way.
    fn first_window(&mut self, most: u64) -> Option<Window> {
        let start = if self.step > 0 && self.is_dense() {
            self.last.checked_add(self.length)
        } else {
            self.last.checked_add_signed(if self.is_dense() { -1 } else { self.step })
        }?;
        let pages = if self.is_dense() { 4 * self.length } else { 4 };
        self.set_window(start, pages, most)
    }

    fn next_window(&mut self, most: u64) -> Option<Window> {
        let last = self.window?;
        let start = last.end()?;
        let pages = if last.pages < most / 16 { last.pages * 4 } else { last.pages * 2 };
        self.set_window(start, pages, most)
    }

    fn set_window(&mut self, first: u64, pages: u64, most: u64) -> Option<Window> {
        let dense = self.is_dense();
        let step = if dense { self.step.signum() } else { self.step };
        let pages = pages.min(if dense { most } else { most.min(MAX_GAPPED) });
        self.window = (pages >= MIN_WINDOW).then_some(Window { first, step, pages });
        if let Some(window) = self.window {
            // A miss behind the window belongs to the stream too, if readahead has fallen behind.
            let back = if dense && self.step < 0 { 1 } else { -self.step };
            self.last = window.end().and_then(|beyond| beyond.checked_add_signed(back)).unwrap_or(self.last);
        }
        self.window
    }
}

#[cfg(test)]
mod tests {
    use refault_testing::Random;

    use super::*;

    /// Reads one page after the other as a cache with room for everything would: what is ahead hits, marks are obeyed.
    /// Returns the misses and the windows.
    fn read(streams: &mut Streams, pages: impl Iterator<Item = u64>, most: u64) -> (Vec<u64>, Vec<Window>) {
        let (mut here, mut marks) = (std::collections::HashSet::new(), std::collections::HashSet::new());
        let (mut missed, mut windows) = (Vec::new(), Vec::new());
        for page in pages {
            let window = if here.insert(page) {
                missed.push(page);
                streams.missed(page, 1, most)
            } else if marks.remove(&page) {
                streams.marked(page, most, 0)
            } else {
                None
            };
            if let Some(window) = window {
                here.extend(window.pages(u64::MAX));
                marks.insert(window.first);
                windows.push(window);
            }
        }
        (missed, windows)
    }

    #[test]
    fn a_forward_stream_misses_twice() {
        let (missed, windows) = read(&mut Streams::default(), 100..1000, 32);
        assert_eq!(missed, [100, 101]);
        let sizes: Vec<u64> = windows.iter().map(|window| window.pages).collect();
        assert_eq!(sizes[..5], [4, 8, 16, 32, 32]);
        assert_eq!((windows[0].first, windows[0].step), (102, 1));
        assert!(windows.windows(2).all(|pair| pair[1].first == pair[0].first + pair[0].pages));
    }

    /// From the first window on that its reader waited for, until the end of the stream.
    #[test]
    fn a_reader_that_waited_has_two_windows_ahead() {
        let mut streams = Streams::default();
        assert_eq!(streams.missed(0, 1, 64), None);
        let first = streams.missed(1, 1, 64).expect("a window");
        let second = streams.marked(first.first, 64, 32).expect("a window");
        let third = streams.marked(second.first, 64, 32).expect("a window");
        // What is there already of a window does not tell another from it.
        streams.begins(third, third.first + 2);
        let fourth = streams.further(third, 32).expect("one more");
        assert_eq!(streams.further(fourth, 32), None, "two are enough");
        let mut ahead = [Window { first: third.first + 2, pages: third.pages - 2, ..third }, fourth];
        for _ in 0..5 {
            assert_eq!(Some(ahead[1].first), ahead[0].end());
            let next = streams.marked(ahead[0].first, 64, 32).expect("one more for one that is reached");
            assert_eq!(next.pages, 32);
            ahead = [ahead[1], next];
        }
        // The mark of the first was lost.
        let next = streams.marked(ahead[1].first, 64, 32).expect("goes on");
        assert_eq!((Some(next.first), next.pages), (ahead[1].end(), 64));
        assert_eq!(streams.missed(next.end().expect("inside"), 1, 64).map(|window| window.step), Some(1));
    }

    #[test]
    fn small_windows_grow_by_four() {
        let (_, windows) = read(&mut Streams::default(), 0..5000, 256);
        let sizes: Vec<u64> = windows.iter().map(|window| window.pages).collect();
        assert_eq!(sizes[..5], [4, 16, 32, 64, 128]);
    }

    #[test]
    fn streams_are_told_apart() {
        let mut streams = Streams::default();
        let pages = (0..500).flat_map(|step| (0..6).map(move |stream| stream * 100_000 + step));
        let (missed, _) = read(&mut streams, pages, 32);
        assert_eq!(missed.len(), 12, "two per stream");
    }

    #[test]
    fn a_backward_stream_is_read_ahead_of_the_reader() {
        let (missed, windows) = read(&mut Streams::default(), (0..1000).rev(), 32);
        assert_eq!(missed, [999, 998, 997, 996]);
        assert!(windows.iter().all(|window| window.step == -1));
        assert_eq!(windows.last().map(|window| window.pages), Some(32));
    }

    #[test]
    fn a_stream_with_gaps_fetches_what_it_will_read_and_no_more() {
        for step in [7i64, 300, -5] {
            let start = 50_000i64;
            let pages = (0..200).map(|number| (start + number * step) as u64);
            let (missed, windows) = read(&mut Streams::default(), pages, 32);
            assert!(missed.len() <= 4, "{step}: {missed:?}");
            assert!(windows.iter().all(|window| window.step == step && window.pages <= MAX_GAPPED), "{step}");
        }
    }

    #[test]
    fn random_reads_read_nothing_ahead() {
        let mut random = Random::new(7);
        let pages = (0..5000).map(|_| random.below(1_000_000));
        let (_, windows) = read(&mut Streams::default(), pages, 32);
        assert!(windows.len() < 20, "{}", windows.len());
    }

    #[test]
    fn pages_evicted_unread_shrink_the_window_and_good_ones_restore_it() {
        let mut streams = Streams::default();
        for round in 1..=8 {
            streams.unread(round, 0);
        }
        let (_, windows) = read(&mut streams, 0..100, 32);
        assert!(windows.is_empty(), "32 halved eight times is nothing");
        let mut streams = Streams::default();
        streams.unread(1, 0);
        let (_, windows) = read(&mut streams, 0..10_000, 32);
        assert_eq!(windows.iter().map(|window| window.pages).find(|pages| *pages > 8), Some(16));
        assert_eq!(windows.last().map(|window| window.pages), Some(32));
    }

    #[test]
    fn pages_that_waited_already_shrink_the_window_once() {
        let mut streams = Streams::default();
        (1..=33).for_each(|pages| streams.unread(pages, 32));
        assert_eq!(streams.restraint, 1, "the first, and the 32 that waited then");
        streams.unread(34, 32);
        assert_eq!(streams.restraint, 2);
    }

    #[test]
    fn parts_of_a_window_are_the_window() {
        for (first, step) in [(0, 1), (5000, -1), (5000, -3), (7, 4), (40, -1)] {
            let window = Window { first, step, pages: 700 };
            let parts: Vec<Window> = window.parts(256).collect();
            assert!(parts.iter().all(|part| part.pages <= 256));
            let pages: Vec<u64> = parts.iter().flat_map(|part| part.pages(6000)).collect();
            assert_eq!(pages, window.pages(6000).collect::<Vec<_>>(), "{window:?}");
        }
    }

    #[test]
    fn windows_end_with_the_file() {
        let window = Window { first: 5, step: -2, pages: 10 };
        assert_eq!(window.pages(100).collect::<Vec<_>>(), [5, 3, 1]);
        let window = Window { first: 95, step: 2, pages: 10 };
        assert_eq!(window.pages(100).collect::<Vec<_>>(), [95, 97, 99]);
    }
}
