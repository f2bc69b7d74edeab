//! What `refault run` tells the agent: `key=value` pairs separated by the unit separator (0x1f), so that paths may hold
//! anything else.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use refault_config::Config as MonitorConfig;
use refault_pager::{AccessSource, FaultMode, OnFull, PagerOptions};
use refault_store::codec::Codec;
use refault_store::{FileStoreOptions, TieredStoreOptions};

use crate::limits;
use crate::output::Place;

/// What is to be monitored, and how much that may cost.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) config: MonitorConfig,
    /// Share of one processor.
    pub(crate) most_cpu: f64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) memory: u64,
    policy: String,
    pool: u64,
    codec: Codec,
    file: Option<PathBuf>,
    file_limit: u64,
    encrypt: bool,
    on_full: OnFull,
    access_source: AccessSource,
    demote_after: Option<Duration>,
    pub(crate) fault_mode: FaultMode,
    pub(crate) children: bool,
    pub(crate) stats: Option<Place>,
    pub(crate) interval: Duration,
    pub(crate) control: Option<PathBuf>,
    pub(crate) monitor: Option<Monitor>,
    pub(crate) monitor_out: Option<Place>,
    /// The process whose death ends this program too, if it is the parent.
    pub(crate) end_with: Option<u64>,
    pub(crate) record: Option<Place>,
    /// An open `/dev/userfaultfd`.
    pub(crate) device: Option<Place>,
    pub(crate) record_interval: Duration,
}

impl Config {
    pub(crate) fn parse(text: &OsStr) -> Result<Config, String> {
        let mut config = Config {
            memory: 0,
            policy: refault_pager::DEFAULT_POLICY.to_owned(),
            pool: 0,
            codec: Codec::Lz4,
            file: None,
            file_limit: 64 << 30,
            encrypt: false,
            on_full: OnFull::Grow,
            access_source: AccessSource::DropAndScan,
            demote_after: PagerOptions::default().demote_after,
            fault_mode: FaultMode::Handler { threads: 1 },
            children: true,
            stats: None,
            interval: Duration::from_secs(1),
            control: None,
            monitor: None,
            monitor_out: None,
            end_with: None,
            record: None,
            device: None,
            record_interval: Duration::from_millis(200),
        };
        let (mut monitor, mut changes, mut schemes, mut most_cpu) = (None, Vec::new(), Vec::new(), 0.01);
        for pair in text.as_bytes().split(|byte| *byte == 0x1f) {
            let at = pair.iter().position(|byte| *byte == b'=').ok_or("a pair without `=`")?;
            let (key, value) = (&pair[..at], &pair[at + 1..]);
            let word = || std::str::from_utf8(value).map_err(|_| "a value that is not text".to_owned());
            let number = || word()?.parse::<u64>().map_err(|_| format!("`{}` is not a number", value.escape_ascii()));
            let place =
                || Place::parse(value).map(Some).ok_or_else(|| format!("`{}` is no place", value.escape_ascii()));
            let path = || Some(PathBuf::from(OsString::from_vec(value.to_vec())));
            match key {
                b"memory" => config.memory = number()?,
                b"policy" => config.policy = word()?.to_owned(),
                b"pool" => config.pool = number()?,
                b"codec" => config.codec = if value == b"zstd" { Codec::Zstd } else { Codec::Lz4 },
                b"file" => config.file = path(),
                b"file-limit" => config.file_limit = number()?,
                b"encrypt" => config.encrypt = value == b"1",
                b"children" => config.children = value == b"1",
                b"stats" => config.stats = place()?,
                b"interval-ms" => config.interval = Duration::from_millis(number()?.max(10)),
                b"handlers" => config.fault_mode = FaultMode::Handler { threads: number()? as usize },
                b"in-thread" => config.fault_mode = FaultMode::InThread,
                b"control" => config.control = path(),
                b"monitor" => monitor = Some(word()?),
                b"monitor-set" => changes.push(word()?.to_owned()),
                b"monitor-scheme" => schemes.push(word()?),
                b"monitor-cpu" => most_cpu = word()?.parse().map_err(|_| "monitor-cpu is no number".to_owned())?,
                b"monitor-out" => config.monitor_out = place()?,
                b"end-with" => config.end_with = Some(number()?),
                b"access-source" => {
                    config.access_source = AccessSource::by_name(word()?).ok_or("no such source of accesses")?;
                }
                b"demote-after-ms" => config.demote_after = Some(Duration::from_millis(number()?)),
                b"demote-never" => config.demote_after = None,
                b"record" => config.record = place()?,
                b"userfaultfd" => config.device = place()?,
                b"record-interval-ms" => config.record_interval = Duration::from_millis(number()?.max(1)),
                b"on-full" => {
                    config.on_full = match value {
                        b"grow" => OnFull::Grow,
                        b"block" => OnFull::Block,
                        b"end" => OnFull::End,
                        _ => return Err("on-full is grow, block or end".to_owned()),
                    }
                }
                _ => return Err(format!("an unknown key `{}`", key.escape_ascii())),
            }
        }
        if let Some(text) = monitor {
            let refused = |error: refault_config::ConfigError| error.to_string();
            let mut read = MonitorConfig::parse_with(text, "monitor", &changes).map_err(refused)?;
            schemes.into_iter().try_for_each(|line| read.add_scheme(line)).map_err(refused)?;
            config.monitor = Some(Monitor { config: read, most_cpu });
        }
        if config.memory == 0 { Err("memory is missing".to_owned()) } else { Ok(config) }
    }

    /// Whether faults are served in the thread that takes them.
    pub(crate) fn in_thread(&self) -> bool {
        self.fault_mode == FaultMode::InThread
    }

    pub(crate) fn pager_options(&self) -> PagerOptions {
        let file = self.file.clone().map(|directory| {
            (
                directory,
                FileStoreOptions { limit: limits::file_bytes(self.file_limit), encrypt: self.encrypt, engine: None },
            )
        });
        PagerOptions {
            policy: self.policy.clone(),
            store: TieredStoreOptions { pool_limit: limits::pool_bytes(self.pool), codec: self.codec, file },
            address_space: limits::arena_bytes(256 << 30),
            fault_mode: self.fault_mode,
            access_source: self.access_source,
            on_full: self.on_full,
            demote_after: self.demote_after,
            // What comes along was not accessed.
            bring_successors: self.record.is_none(),
            on_thread_start: Some(crate::heap::own_this_thread),
        }
    }
}
