//! Sequential reads of one file, and how much of what follows comes along with a miss.
//!
//! A miss right after what the last one brought continues a sequence: its window doubles from 4 pages up to the most
//! that is allowed. What comes along is read by the same system call. Cost: 8 sequences per file, looked at once per
//! miss.

const STREAMS: usize = 8;

/// Pages that come along when a sequence is first seen.
const FIRST: u32 = 4;

#[derive(Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u32,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    next: u64,
    window: u32,
    /// 0: never.
    used: u32,
}

impl Streams {
    /// How many pages after `index`, which was missed, are to be read along, at most `most`.
    pub(crate) fn window(&mut self, index: u64, most: u32) -> u32 {
        self.clock = self.clock.wrapping_add(1).max(1);
        let clock = self.clock;
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.next == index && stream.used != 0) {
            let window = stream.window.min(most);
            *stream = Stream {
                next: index + u64::from(window) + 1,
                window: (window * 2).clamp(FIRST, most.max(FIRST)),
                used: clock,
            };
            return window;
        }
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used).expect("invariant: there are streams");
        *oldest = Stream { next: index + 1, window: FIRST, used: clock };
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_while_misses_follow_each_other() {
        let mut streams = Streams::default();
        let mut at = 0;
        let mut windows = Vec::new();
        for _ in 0..6 {
            let window = streams.window(at, 32);
            windows.push(window);
            at += u64::from(window) + 1;
        }
        assert_eq!(windows, [0, 4, 8, 16, 32, 32]);
        assert_eq!(streams.window(1 << 30, 32), 0);
    }

    #[test]
    fn sequences_are_told_apart() {
        let mut streams = Streams::default();
        for round in 0..3 {
            for start in 0..4u64 {
                let window = streams.window(start * 1000 + [0, 1, 6][round], 32);
                assert_eq!(window, [0, 4, 8][round], "{start}");
            }
        }
    }
}
