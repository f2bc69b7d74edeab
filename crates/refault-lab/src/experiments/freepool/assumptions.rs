//! What the models assume and no document says, one field each, so that each can be varied alone.

/// See the module. The defaults are what [`super::run`] uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// Build: files of this many pages and more are mapped rather than read.
    pub mapped_from: u32,
    /// Build: what idle programs hold, as a share of memory.
    pub idle_programs: f64,
    /// Build: idle programs touch one page in this many of theirs in an iteration.
    pub idle_touches: u64,
    /// Build: sources, as a share of memory.
    pub sources: f64,
    /// Database: its own buffers, as a share of memory.
    pub buffers: f64,
    /// Database: processes, 1 to 7.
    pub backends: u64,
    /// Database: transactions for each frame of memory; the first fifth is not counted.
    pub transactions: u64,
    /// Database: pages after a block that are read along with it.
    pub read_ahead: u32,
    /// Database: once, before anything is counted, the kernel takes every frame that is free.
    pub memory_fell: bool,
    /// Database: it gives those back, one by one, in any order, while the database runs.
    pub memory_returns: bool,
    /// Both: frames that are taken between waking the page daemon and its first look, as a share of the wakeup
    /// threshold.
    pub daemon_lag: f64,
}

impl Default for Assumptions {
    fn default() -> Assumptions {
        Assumptions {
            mapped_from: 4,
            idle_programs: 0.01,
            idle_touches: 50,
            sources: 0.24,
            buffers: 0.25,
            backends: 7,
            transactions: 15,
            read_ahead: 0,
            memory_fell: false,
            memory_returns: false,
            daemon_lag: 0.0,
        }
    }
}
