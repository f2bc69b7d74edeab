//! How far a long command is: a bar on standard error, drawn only if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Counts simulated accesses. Its total grows as traces are opened.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar headed by what is being done.
    pub fn new(doing: &'static str) -> Progress {
        let bar = ProgressBar::new(0);
        let style =
            ProgressStyle::with_template("{msg} {wide_bar} {percent}% {human_pos} accesses, {per_sec}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(doing);
        Progress { bar }
    }

    /// More to do.
    pub fn add(&self, accesses: u64) {
        self.bar.inc_length(accesses);
    }

    /// Something is done.
    pub fn advance(&self, accesses: u64) {
        self.bar.inc(accesses);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
