//! What `refault run` tells the agent: `key=value` pairs separated by the unit separator (0x1f).

use refault_paging::Shared;

/// What is to be monitored.
#[derive(Clone, Debug, Default)]
pub(crate) struct MonitorSettings {
    /// The configuration: TOML, or the JSON of DAMON's user-space tool.
    pub(crate) text: String,
    /// Keys of it to change, as `key=value`.
    pub(crate) changes: Vec<String>,
    /// Schemes on one line each.
    pub(crate) schemes: Vec<String>,
    /// Share of one processor that it may use.
    pub(crate) most_cpu: f64,
    /// Where it writes what it finds: `DESCRIPTOR:DEVICE:INODE:PATH`.
    pub(crate) out: Option<String>,
    /// Where it writes what it came to alone.
    pub(crate) sums: Option<String>,
}

/// What is to be recorded.
#[derive(Clone, Debug)]
pub(crate) struct RecordSettings {
    /// Where touched pages go: `DESCRIPTOR:DEVICE:INODE:PATH`.
    pub(crate) out: String,
    /// Nanoseconds between two looks.
    pub(crate) interval: u64,
    /// One page in `2^shift` is looked at.
    pub(crate) shift: u32,
    /// Share of one processor that it may cost: looks are further apart until that is kept.
    pub(crate) most_cpu: Option<f64>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Bytes.
    pub(crate) memory: u64,
    /// Each process has a budget of its own.
    pub(crate) own: bool,
    /// Compressed pages and the agent's own memory do not count.
    pub(crate) resident_only: bool,
    pub(crate) policy: String,
    /// The directory of the file, if there may be one.
    pub(crate) file: Option<String>,
    /// Where this library's file is, as programs are told.
    pub(crate) library: Option<String>,
    /// The descriptor of the segment that the tree shares.
    pub(crate) segment: Option<i32>,
    pub(crate) record: Option<RecordSettings>,
    pub(crate) monitor: Option<MonitorSettings>,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a share"))
}

impl Settings {
    pub(crate) fn parse(text: &str) -> Result<Settings, String> {
        let mut settings = Settings {
            memory: 0,
            own: false,
            resident_only: false,
            policy: "adaptive-mapped{cyclic=yes}".to_owned(),
            file: None,
            library: None,
            segment: None,
            record: None,
            monitor: None,
        };
        if text.split('\u{1f}').next() != Some(&format!("layout={:x}", Shared::LAYOUT)) {
            return Err(
                "it comes from another build of refault than this library, which must be of the same".to_owned()
            );
        }
        let (mut record, mut interval, mut shift, mut record_cpu) = (None, 200_000_000, 0, None);
        let mut monitored = false;
        let mut monitor = MonitorSettings { most_cpu: 0.01, ..MonitorSettings::default() };
        for pair in text.split('\u{1f}').skip(1) {
            let (key, value) = pair.split_once('=').ok_or("a pair without `=`")?;
            let number = || value.parse::<u64>().map_err(|_| format!("`{value}` is not a number"));
            match key {
                "memory" => settings.memory = number()?,
                "own" => settings.own = value == "1",
                "resident-only" => settings.resident_only = value == "1",
                "policy" => settings.policy = value.to_owned(),
                "library" => settings.library = Some(value.to_owned()),
                "file" => settings.file = Some(value.to_owned()),
                // For `refault top`, which looks at the environment of processes.
                "stats" => {}
                "segment" => settings.segment = Some(number()? as i32),
                "record" => record = Some(value.to_owned()),
                "record-interval-ms" => interval = number()?.max(1) * 1_000_000,
                "record-shift" => shift = number()?.min(32) as u32,
                "record-cpu" => record_cpu = Some(share(value)?),
                "monitor" => (monitored, monitor.text) = (true, value.to_owned()),
                "monitor-set" => monitor.changes.push(value.to_owned()),
                "monitor-scheme" => monitor.schemes.push(value.to_owned()),
                "monitor-cpu" => monitor.most_cpu = share(value)?,
                "monitor-out" => monitor.out = Some(value.to_owned()),
                "monitor-sums" => monitor.sums = Some(value.to_owned()),
                _ => return Err(format!("`{key}` is not a setting")),
            }
        }
        settings.record = record.map(|out| RecordSettings { out, interval, shift, most_cpu: record_cpu });
        settings.monitor = monitored.then_some(monitor);
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_another_build_are_refused() {
        let own = format!("layout={:x}\u{1f}memory=4096", Shared::LAYOUT);
        assert_eq!(Settings::parse(&own).map(|settings| settings.memory), Ok(4096));
        for text in ["memory=4096", "layout=1\u{1f}memory=4096"] {
            assert!(Settings::parse(text).is_err_and(|why| why.contains("another build of refault")), "{text:?}");
        }
        assert!(
            Settings::parse(&format!("{own}\u{1f}none=1")).is_err_and(|why| why.contains("`none` is not a setting"))
        );
    }
}
