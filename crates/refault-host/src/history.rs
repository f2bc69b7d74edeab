//! What was known of groups, kept in a small database (SQLite).
//!
//! A look is a row of `looks`; each group that it saw is a row of `samples`, in pages of 4 KiB. Names stand once, in
//! `groups`. Rows that are older than [`KEPT`] go with later looks, and their place is used again. Size: about 60 bytes
//! for a group and look, so 200 groups once a minute are 17 MiB a day.
//!
//! ```
//! use refault_host::history::History;
//!
//! let directory = std::env::temp_dir().join(format!("refault-history-{}", std::process::id()));
//! let history = History::open(&directory)?;
//! assert!(history.near("/web", 1_700_000_000)?.is_none());
//! # drop(history);
//! # let _ = std::fs::remove_file(directory);
//! # Ok::<(), refault_host::history::HistoryError>(())
//! ```

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use crate::host::{AGES, Report};

/// How long rows are kept.
pub const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a row is waited for that another program writes.
const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: u64 = 4096;
/// After this many looks, the names go that no row has any more; that goes through all rows.
const NAMES_AT: i64 = 60;
/// Written into the file's head: another number is another program's file, or of a later version.
const APPLICATION: i64 = 0x7265_6668;
const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE looks (id INTEGER PRIMARY KEY, time INTEGER NOT NULL);
CREATE INDEX looks_by_time ON looks (time);
CREATE TABLE groups (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
CREATE TABLE samples (
    look INTEGER NOT NULL, group_id INTEGER NOT NULL,
    usage INTEGER, anonymous INTEGER, file INTEGER, shared INTEGER, compressed INTEGER, inactive_file INTEGER,
    within_1s INTEGER, within_10s INTEGER, within_1m INTEGER, within_10m INTEGER, within_1h INTEGER,
    refaults INTEGER, pressure INTEGER, limit_pages INTEGER,
    PRIMARY KEY (look, group_id)
) WITHOUT ROWID;
";

/// Why history is not kept or read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// SQLite says why.
    #[error("{0}")]
    Database(#[from] rusqlite::Error),
    /// It is a database of another program, or of a later version of this one.
    #[error("it is no history of this version of refault; name another file")]
    Foreign,
}

/// What was known of a group at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, in seconds since 1970.
    pub time_seconds: u64,
    /// Bytes charged to it.
    pub usage_bytes: u64,
    /// Bytes that are no file's.
    pub anonymous_bytes: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Bytes of shared memory.
    pub shared_bytes: u64,
    /// The working set of the longest window that was known then.
    pub working_set_bytes: Option<u64>,
    /// Pages per second that came back.
    pub refaults_per_second: Option<f64>,
    /// Its limit.
    pub max_bytes: Option<u64>,
}

/// A history.
#[derive(Debug)]
pub struct History {
    database: Connection,
}

impl History {
    /// Opens or makes it.
    ///
    /// # Errors
    /// It cannot be opened, or is not a history.
    pub fn open(path: &Path) -> Result<History, HistoryError> {
        let database = Connection::open(path)?;
        database.busy_timeout(PATIENCE)?;
        let number = |pragma: &str| database.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
        let tables: i64 = database.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        match (tables, number("application_id")?, number("user_version")?) {
            (0, _, _) => {
                database.execute_batch(&format!(
                    "PRAGMA page_size = 8192; PRAGMA auto_vacuum = FULL; BEGIN; {SCHEMA} \
                     PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
                ))?;
            }
            (_, APPLICATION, VERSION) => {}
            _ => return Err(HistoryError::Foreign),
        }
        // A look may be lost with the machine's power, the file may not; between two looks nothing waits for a disk.
        let _: String = database.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        database.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(History { database })
    }

    /// Keeps a report, and lets go of what is old.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn record(&mut self, report: &Report) -> Result<(), HistoryError> {
        let change = self.database.transaction()?;
        change.execute("INSERT INTO looks (time) VALUES (?1)", params![report.time_seconds as i64])?;
        let look = change.last_insert_rowid();
        let pages = |bytes: u64| (bytes / PAGE) as i64;
        {
            let mut find = change.prepare_cached("SELECT id FROM groups WHERE path = ?1")?;
            let mut name = change.prepare_cached("INSERT INTO groups (path) VALUES (?1)")?;
            let mut add = change.prepare_cached(
                "INSERT OR REPLACE INTO samples VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)",
            )?;
            for row in &report.groups {
                let group: i64 = match find.query_row(params![row.path], |row| row.get(0)).optional()? {
                    Some(id) => id,
                    None => name.insert(params![row.path])?,
                };
                let stat = &row.figures.stat;
                let within = |age: usize| {
                    let at = report.ages_seconds.iter().position(|seconds| *seconds == AGES[age].as_secs_f64())?;
                    row.working_sets.get(at).copied().flatten().map(|set| pages(set.bytes))
                };
                add.execute(params![
                    look,
                    group,
                    pages(row.figures.usage_bytes),
                    pages(stat.anonymous_bytes),
                    pages(stat.file_bytes),
                    pages(stat.shared_bytes),
                    stat.compressed_bytes.map(pages),
                    pages(stat.inactive_file_bytes),
                    within(0),
                    within(1),
                    within(2),
                    within(3),
                    within(4),
                    row.refaults_per_second.map(|rate| rate.round() as i64),
                    row.pressure.map(|share| (share * 1000.0).round() as i64),
                    row.figures.max_bytes.map(pages),
                ])?;
            }
        }
        let old = report.time_seconds.saturating_sub(KEPT.as_secs()) as i64;
        change.execute("DELETE FROM samples WHERE look IN (SELECT id FROM looks WHERE time < ?1)", params![old])?;
        if change.execute("DELETE FROM looks WHERE time < ?1", params![old])? > 0 && look % NAMES_AT == 0 {
            change.execute("DELETE FROM groups WHERE id NOT IN (SELECT group_id FROM samples)", [])?;
        }
        change.commit()?;
        Ok(())
    }

    /// What was known of the group of a path at the last look before a moment; none if it was never seen by then.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn near(&self, path: &str, time_seconds: u64) -> Result<Option<Sample>, HistoryError> {
        let sql = format!("{SELECT} WHERE path = ?1 AND time <= ?2 ORDER BY time DESC LIMIT 1");
        Ok(self.database.query_row(&sql, params![path, time_seconds as i64], sample).optional()?)
    }

    /// What was known of the group of a path since a moment, oldest first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn since(&self, path: &str, time_seconds: u64) -> Result<Vec<Sample>, HistoryError> {
        let sql = format!("{SELECT} WHERE path = ?1 AND time >= ?2 ORDER BY time");
        let mut all = self.database.prepare_cached(&sql)?;
        let rows = all.query_map(params![path, time_seconds as i64], sample)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

const SELECT: &str = "SELECT time, usage, anonymous, file, shared,
    coalesce(within_1h, within_10m, within_1m, within_10s, within_1s), refaults, limit_pages
    FROM samples JOIN looks ON looks.id = look JOIN groups ON groups.id = group_id";

fn sample(row: &rusqlite::Row<'_>) -> rusqlite::Result<Sample> {
    let bytes = |pages: i64| pages.max(0) as u64 * PAGE;
    let some = |at: usize| row.get::<_, Option<i64>>(at);
    Ok(Sample {
        time_seconds: row.get::<_, i64>(0)?.max(0) as u64,
        usage_bytes: bytes(some(1)?.unwrap_or(0)),
        anonymous_bytes: bytes(some(2)?.unwrap_or(0)),
        file_bytes: bytes(some(3)?.unwrap_or(0)),
        shared_bytes: bytes(some(4)?.unwrap_or(0)),
        working_set_bytes: some(5)?.map(bytes),
        refaults_per_second: some(6)?.map(|rate| rate as f64),
        max_bytes: some(7)?.map(bytes),
    })
}
