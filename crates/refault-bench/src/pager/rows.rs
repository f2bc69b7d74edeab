//! The rows of `refault-bench pager`: what is run, how much of it fits, and what is aimed at.

use clap::ValueEnum;

use super::load::Pattern;

/// A row of the table.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// memcached, 560 MB of 2000-byte values, two clients over a Unix socket, Gaussian reads, from 2 s on
    Memcached,
    /// The same once it has settled, from 30 s on
    Settled,
    /// Uniform random 8-byte reads over 512 MiB, one thread
    Uniform,
    /// Zipf(1.0) reads of 64-byte records and 10 % writes over 1 GiB, two threads that share all pages
    Zipf,
    /// Sequential scans, repeated, over 512 MiB
    Scan,
    /// A B-tree of 256 MiB of 200-byte records, Zipf(1.0) look-ups and 10 % updates
    Btree,
    /// sqlite3, a database in memory: bulk load, an index, joins
    Sqlite,
    /// python3, numpy: a sort of 20 million numbers
    Sort,
    /// xz -9 of 40 MiB
    Xz,
    /// python3, duckdb: a group-by and a join of 4 million rows
    Duckdb,
    /// make -j2 of twelve C files
    Compile,
    /// Uniform random reads over 512 MiB that all fit; compared with the program alone
    Fits,
    /// A process that does nothing: private memory and the time of an exec; compared with the process alone
    Idle,
    /// Uniform random reads over 16 GiB: the longest pause; not in the table unless asked for
    Large,
}

/// How a row is measured.
pub enum Kind {
    /// `refault-bench pager-load` with this pattern and this many threads.
    Load(Pattern, u32),
    /// The server, read by clients here.
    Memcached,
    /// A program that runs to its end.
    Program,
    /// See [`Row::Idle`].
    Idle,
}

crate::shown_by_name!(Row);

impl Row {
    /// The rows that are measured when none is named.
    pub const USUAL: [Row; 13] = [
        Row::Memcached,
        Row::Settled,
        Row::Uniform,
        Row::Zipf,
        Row::Scan,
        Row::Btree,
        Row::Sqlite,
        Row::Sort,
        Row::Xz,
        Row::Duckdb,
        Row::Compile,
        Row::Fits,
        Row::Idle,
    ];

    /// How it is measured.
    pub fn kind(self) -> Kind {
        match self {
            Row::Memcached | Row::Settled => Kind::Memcached,
            Row::Uniform | Row::Fits | Row::Large => Kind::Load(Pattern::Uniform, 1),
            Row::Zipf => Kind::Load(Pattern::Zipf, 2),
            Row::Scan => Kind::Load(Pattern::Scan, 1),
            Row::Btree => Kind::Load(Pattern::Btree, 1),
            Row::Sqlite | Row::Sort | Row::Xz | Row::Duckdb | Row::Compile => Kind::Program,
            Row::Idle => Kind::Idle,
        }
    }

    /// Whether it counts in the geometric mean of real programs and structures.
    pub fn is_in_mean(self) -> bool {
        matches!(self.kind(), Kind::Program) || self == Row::Btree
    }

    /// Percent of the program's memory that the kernel's side may have resident.
    pub fn percent(self) -> u64 {
        match self {
            Row::Memcached | Row::Settled => 57,
            Row::Uniform | Row::Btree | Row::Idle => 50,
            Row::Zipf => 25,
            Row::Scan => 75,
            Row::Sqlite | Row::Sort | Row::Xz | Row::Duckdb | Row::Compile | Row::Large => 60,
            Row::Fits => 110,
        }
    }

    /// Operations of ours for one of the other side's that are aimed at.
    pub fn aim(self) -> f64 {
        match self {
            Row::Memcached => 1.3,
            Row::Settled => 1.4,
            Row::Uniform | Row::Zipf => 1.5,
            Row::Scan => 2.0,
            Row::Fits => 0.97,
            // Of these the geometric mean is to be 1.2 and none below this; of `large` nothing is aimed at but its
            // pauses.
            _ => 0.8,
        }
    }

    /// Bytes of data; `quick` an eighth.
    pub fn bytes(self, quick: bool) -> u64 {
        let bytes = match self {
            Row::Memcached | Row::Settled => 560_000_000,
            Row::Zipf => 1 << 30,
            Row::Btree => 256 << 20,
            Row::Large => 16 << 30,
            _ => 512 << 20,
        };
        match (quick, self) {
            (true, Row::Large) => bytes / 64,
            (true, _) => bytes / 8,
            (false, _) => bytes,
        }
    }

    /// Seconds until counting starts.
    pub fn warm_up(self) -> f64 {
        match self {
            Row::Settled => 30.0,
            Row::Zipf | Row::Btree | Row::Large => 10.0,
            _ => 2.0,
        }
    }

    /// Seconds that are counted.
    pub fn seconds(self) -> f64 {
        match self.kind() {
            Kind::Memcached => 12.0,
            _ => 4.0,
        }
    }
}
