//! How far a long command is: a bar on standard error, drawn only if that is a terminal.

use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Steps of a bar for a part done.
const PARTS: u64 = 1000;

/// Counts accesses, whose total grows as traces are opened, or shows a part of something done.
pub struct Progress {
    bar: ProgressBar,
    total: AtomicU64,
}

impl Progress {
    /// A bar headed by what is being done.
    pub fn new(doing: &'static str) -> Progress {
        // Without a length nothing is drawn as done; the first traces that are opened set it.
        let bar = ProgressBar::no_length();
        let style =
            ProgressStyle::with_template("{msg} {wide_bar} {percent}% {human_pos} accesses, {speed}, {eta} left");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.with_key("speed", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // What cannot be drawn is not drawn.
            let _ = write!(out, "{:.1} M/s", state.per_sec() / 1e6);
        }));
        bar.set_message(doing);
        Progress { bar, total: AtomicU64::new(0) }
    }

    /// A bar for a part done, from 0 to 1.
    pub fn part(doing: &'static str) -> Progress {
        let bar = ProgressBar::new(PARTS);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}%, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(doing);
        Progress { bar, total: AtomicU64::new(0) }
    }

    /// The same where the work itself says how many parts it has, by [`Progress::add`].
    pub fn parts(doing: &'static str) -> Progress {
        let progress = Progress::part(doing);
        progress.bar.set_length(0);
        progress
    }

    /// The part done.
    pub fn set(&self, part: f64) {
        self.bar.set_position((part * PARTS as f64) as u64);
    }

    /// What is being done now.
    pub fn says(&self, doing: String) {
        self.bar.set_message(doing);
    }

    /// Does something that writes to the same terminal: the bar is gone meanwhile.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// Takes the bar away for good.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// More to do.
    pub fn add(&self, accesses: u64) {
        // A bar without a length keeps none when it is increased.
        let total = self.total.fetch_add(accesses, Ordering::Relaxed) + accesses;
        self.bar.set_length(total);
    }

    /// Something is done.
    pub fn advance(&self, accesses: u64) {
        self.bar.inc(accesses);
    }
}

impl refault_lab::Progress for Progress {
    fn add(&self, accesses: u64) {
        Progress::add(self, accesses);
    }

    fn advance(&self, accesses: u64) {
        Progress::advance(self, accesses);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_as_done_before_there_is_something_to_do() {
        let progress = Progress::new("comparing");
        assert_eq!((progress.bar.length(), progress.bar.position()), (None, 0));
        progress.add(10);
        progress.add(30);
        progress.advance(4);
        assert_eq!((progress.bar.length(), progress.bar.position()), (Some(40), 4));
        let part = Progress::part("simulating");
        part.set(0.25);
        assert_eq!(part.bar.position() * 4, PARTS);
    }
}
