//! What a launcher tells the agent: one struct, which both use, as one value of the environment.
//!
//! The value is `key=value` pairs separated by the unit separator (0x1f); bytes of a value that could not stand there
//! are escaped. The first pair is the layout of the segment, which only launcher and agent of one build have in common.
//!
//! Invariants: [`AgentSettings::decode`] of [`AgentSettings::encode`] is the same settings, whatever bytes they hold;
//! no key is unknown to one side, since the struct is taken apart and built here alone.
//!
//! ```
//! use refault_paging::settings::AgentSettings;
//!
//! let settings = AgentSettings { memory: 64 << 20, policy: "lru".to_owned(), ..AgentSettings::default() };
//! assert_eq!(AgentSettings::decode(&settings.encode()), Ok(settings));
//! ```

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::Shared;

/// The variable of the environment that holds them.
pub const VARIABLE: &str = "REFAULT_AGENT";

/// Stands between two pairs.
const SEPARATOR: u8 = 0x1f;
/// Stands before a letter that is a byte which cannot stand there itself.
const ESCAPE: u8 = 0x1e;
/// Those bytes, and the letters that they are. The environment has no zeros.
const ESCAPED: [(u8, u8); 3] = [(SEPARATOR, b's'), (ESCAPE, b'e'), (0, b'0')];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentSettings {
    /// The budget in bytes.
    pub memory: u64,
    /// Each process has a budget of its own.
    pub own: bool,
    /// Compressed pages and the agent's own memory do not count.
    pub resident_only: bool,
    /// Name and parameters of the policy.
    pub policy: String,
    /// The directory of the file that compressed memory may overflow to, if there may be one.
    pub file: Option<OsString>,
    /// Where the agent's library is, as programs are told.
    pub library: Option<OsString>,
    /// The file of statistics. For `refault top`, which looks at the environment of processes.
    pub stats: Option<OsString>,
    /// The descriptor of the segment that the tree shares.
    pub segment: Option<i32>,
    /// What is recorded, if anything is.
    pub record: Option<RecordSettings>,
    /// What is monitored, if anything is.
    pub monitor: Option<MonitorSettings>,
}

/// What is recorded of accesses.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordSettings {
    /// The file that touched pages go to.
    pub out: Output,
    /// Milliseconds between two looks, at least 1.
    pub interval_ms: u64,
    /// One page in `2^shift` is looked at; 32 at most.
    pub shift: u32,
    /// Share of one processor that it may cost: looks are further apart until that is kept.
    pub most_cpu: Option<f64>,
}

/// What is monitored, and what is done about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorSettings {
    /// The configuration: TOML, or the JSON of DAMON's user-space tool.
    pub text: String,
    /// Keys of it to change, as `key=value`.
    pub changes: Vec<String>,
    /// Schemes on one line each.
    pub schemes: Vec<String>,
    /// Share of one processor that it may use.
    pub most_cpu: f64,
    /// The file that findings go to.
    pub out: Option<Output>,
    /// The file that sums alone go to.
    pub sums: Option<Output>,
}

/// An open file that programs inherit. A program may close it, or have another under its number: then the path is
/// opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Its number.
    pub descriptor: i32,
    /// The file system that it is on, and its number there: 0 if the kernel does not say.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// Where it is.
    pub path: OsString,
}

impl Output {
    /// As `DESCRIPTOR:DEVICE:INODE:PATH`.
    fn encode(&self) -> OsString {
        let Output { descriptor, device, inode, path } = self;
        let mut place = OsString::from(format!("{descriptor}:{device}:{inode}:"));
        place.push(path);
        place
    }

    fn decode(place: &OsStr) -> Result<Output, String> {
        let wrong = || format!("`{}` is not an open file", place.display());
        let mut parts = place.as_bytes().splitn(4, |byte| *byte == b':');
        let mut part = || parts.next().ok_or_else(wrong);
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let (descriptor, device, inode) = (number(&text(part()?))?, number(&text(part()?))?, number(&text(part()?))?);
        Ok(Output { descriptor, device, inode, path: OsString::from_vec(part()?.to_vec()) })
    }
}

impl AgentSettings {
    /// As one value of the environment.
    pub fn encode(&self) -> OsString {
        // Taken apart, so that a new field is not forgotten here.
        let AgentSettings { memory, own, resident_only, policy, file, library, stats, segment, record, monitor } = self;
        let mut pairs = Pairs(format!("layout={:x}", Shared::LAYOUT).into_bytes());
        pairs.number("memory", memory);
        pairs.flag("own", *own);
        pairs.flag("resident-only", *resident_only);
        pairs.text("policy", policy);
        pairs.given("file", file);
        pairs.given("library", library);
        pairs.given("stats", stats);
        segment.iter().for_each(|segment| pairs.number("segment", segment));
        if let Some(RecordSettings { out, interval_ms, shift, most_cpu }) = record {
            pairs.text("record", out.encode());
            pairs.number("record-interval-ms", interval_ms);
            pairs.number("record-shift", shift);
            most_cpu.iter().for_each(|share| pairs.number("record-cpu", share));
        }
        if let Some(MonitorSettings { text, changes, schemes, most_cpu, out, sums }) = monitor {
            pairs.text("monitor", text);
            changes.iter().for_each(|change| pairs.text("monitor-set", change));
            schemes.iter().for_each(|scheme| pairs.text("monitor-scheme", scheme));
            pairs.number("monitor-cpu", most_cpu);
            pairs.given("monitor-out", &out.as_ref().map(Output::encode));
            pairs.given("monitor-sums", &sums.as_ref().map(Output::encode));
        }
        OsString::from_vec(pairs.0)
    }

    /// From such a value.
    ///
    /// # Errors
    /// It comes from another build, or names the pair that has no meaning.
    pub fn decode(value: &OsStr) -> Result<AgentSettings, String> {
        let mut pairs = value.as_bytes().split(|byte| *byte == SEPARATOR);
        if pairs.next() != Some(format!("layout={:x}", Shared::LAYOUT).as_bytes()) {
            return Err(
                "it comes from another build of refault than this library, which must be of the same".to_owned()
            );
        }
        let mut settings = AgentSettings::default();
        for pair in pairs {
            let at = pair.iter().position(|byte| *byte == b'=').ok_or("a pair without `=`")?;
            let key = String::from_utf8_lossy(&pair[..at]);
            settings.set(&key, unescaped(&pair[at + 1..]).ok_or_else(|| format!("`{key}` ends in an escape"))?)?;
        }
        Ok(settings)
    }

    /// The file of statistics in such a value, of whatever build.
    pub fn stats_of(value: &[u8]) -> Option<OsString> {
        let mut pairs = value.split(|byte| *byte == SEPARATOR);
        unescaped(pairs.find_map(|pair| pair.strip_prefix(b"stats="))?).map(OsString::from_vec)
    }

    fn set(&mut self, key: &str, value: Vec<u8>) -> Result<(), String> {
        let value = OsString::from_vec(value);
        let text = || value.to_string_lossy().into_owned();
        match key {
            "memory" => self.memory = number(&text())?,
            "own" => self.own = value == "1",
            "resident-only" => self.resident_only = value == "1",
            "policy" => self.policy = text(),
            "file" => self.file = Some(value),
            "library" => self.library = Some(value),
            "stats" => self.stats = Some(value),
            "segment" => self.segment = Some(number(&text())?),
            "record" => {
                let out = Output::decode(&value)?;
                self.record = Some(RecordSettings { out, interval_ms: 1, shift: 0, most_cpu: None });
            }
            "monitor" => self.monitor = Some(MonitorSettings { text: text(), ..MonitorSettings::default() }),
            _ => return self.set_part(key, value),
        }
        Ok(())
    }

    /// What belongs to a pair that stands before it.
    fn set_part(&mut self, key: &str, value: OsString) -> Result<(), String> {
        let text = || value.to_string_lossy().into_owned();
        match (key, &mut self.record, &mut self.monitor) {
            ("record-interval-ms", Some(record), _) => record.interval_ms = number::<u64>(&text())?.max(1),
            ("record-shift", Some(record), _) => record.shift = number::<u32>(&text())?.min(MAX_SHIFT),
            ("record-cpu", Some(record), _) => record.most_cpu = Some(number(&text())?),
            ("monitor-set", _, Some(monitor)) => monitor.changes.push(text()),
            ("monitor-scheme", _, Some(monitor)) => monitor.schemes.push(text()),
            ("monitor-cpu", _, Some(monitor)) => monitor.most_cpu = number(&text())?,
            ("monitor-out", _, Some(monitor)) => monitor.out = Some(Output::decode(&value)?),
            ("monitor-sums", _, Some(monitor)) => monitor.sums = Some(Output::decode(&value)?),
            _ => return Err(format!("`{key}` is not a setting")),
        }
        Ok(())
    }
}

/// The highest `RecordSettings::shift`.
const MAX_SHIFT: u32 = 32;

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

/// A value of the environment that is being written.
struct Pairs(Vec<u8>);

impl Pairs {
    fn text(&mut self, key: &str, value: impl AsRef<OsStr>) {
        self.0.push(SEPARATOR);
        self.0.extend(key.as_bytes());
        self.0.push(b'=');
        for byte in value.as_ref().as_bytes() {
            match ESCAPED.iter().find(|(escaped, _)| escaped == byte) {
                Some((_, letter)) => self.0.extend([ESCAPE, *letter]),
                None => self.0.push(*byte),
            }
        }
    }

    fn number(&mut self, key: &str, value: &impl Display) {
        self.text(key, value.to_string());
    }

    fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.text(key, "1");
        }
    }

    fn given(&mut self, key: &str, value: &Option<OsString>) {
        value.iter().for_each(|value| self.text(key, value));
    }
}

/// The bytes that were escaped; `None` if an escape has no meaning.
fn unescaped(value: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = value.iter();
    let mut found = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        found.push(match *byte {
            ESCAPE => {
                let letter = bytes.next()?;
                ESCAPED.iter().find(|(_, known)| known == letter)?.0
            }
            byte => byte,
        });
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any bytes, those often that mean something here.
    fn bytes() -> impl Strategy<Value = OsString> {
        let byte = prop_oneof![3 => any::<u8>(), 1 => proptest::sample::select(vec![SEPARATOR, ESCAPE, 0, b'=', b'e'])];
        proptest::collection::vec(byte, 0..12).prop_map(OsString::from_vec)
    }

    fn text() -> impl Strategy<Value = String> {
        bytes().prop_map(|bytes| bytes.to_string_lossy().into_owned())
    }

    fn maybe<T: Strategy>(strategy: T) -> impl Strategy<Value = Option<T::Value>>
    where
        T::Value: Clone,
    {
        proptest::option::of(strategy)
    }

    fn share() -> impl Strategy<Value = f64> {
        any::<f64>().prop_filter("a share is a number", |share| share.is_finite())
    }

    prop_compose! {
        fn output()(descriptor in any::<i32>(), device in any::<u64>(), inode in any::<u64>(), path in bytes())
            -> Output { Output { descriptor, device, inode, path } }
    }

    prop_compose! {
        fn record()(out in output(), interval_ms in 1u64.., shift in 0..=MAX_SHIFT, most_cpu in maybe(share()))
            -> RecordSettings { RecordSettings { out, interval_ms, shift, most_cpu } }
    }

    prop_compose! {
        fn monitor()(
            text in text(), changes in proptest::collection::vec(text(), 0..3),
            schemes in proptest::collection::vec(text(), 0..3), most_cpu in share(),
            out in maybe(output()), sums in maybe(output()),
        ) -> MonitorSettings { MonitorSettings { text, changes, schemes, most_cpu, out, sums } }
    }

    prop_compose! {
        fn settings()(
            memory in any::<u64>(), own in any::<bool>(), resident_only in any::<bool>(), policy in text(),
            file in maybe(bytes()), library in maybe(bytes()), stats in maybe(bytes()), segment in maybe(any::<i32>()),
            record in maybe(record()), monitor in maybe(monitor()),
        ) -> AgentSettings {
            AgentSettings { memory, own, resident_only, policy, file, library, stats, segment, record, monitor }
        }
    }

    proptest! {
        #[test]
        fn what_the_launcher_says_is_what_the_agent_reads(settings in settings()) {
            let value = settings.encode();
            prop_assert!(!value.as_bytes().contains(&0), "the environment holds no zeros");
            prop_assert_eq!(AgentSettings::stats_of(value.as_bytes()), settings.stats.clone());
            prop_assert_eq!(AgentSettings::decode(&value), Ok(settings));
        }

        #[test]
        fn no_value_makes_it_panic(value in bytes()) {
            let mut of_this_build = AgentSettings::default().encode();
            of_this_build.push(&value);
            let _ = (AgentSettings::decode(&of_this_build), AgentSettings::decode(&value));
        }
    }

    #[test]
    fn settings_of_another_build_are_refused() {
        let own = AgentSettings { memory: 4096, ..AgentSettings::default() }.encode();
        assert_eq!(AgentSettings::decode(&own).map(|settings| settings.memory), Ok(4096));
        for text in ["memory=4096", "layout=1\u{1f}memory=4096", ""] {
            let decoded = AgentSettings::decode(OsStr::new(text));
            assert!(decoded.is_err_and(|why| why.contains("another build of refault")), "{text:?}");
        }
        for (pair, why) in [
            ("none=1", "`none` is not a setting"),
            ("record-shift=1", "`record-shift` is not a setting"),
            ("memory=much", "`much` is not a number"),
            ("monitor=\u{1f}monitor-out=1:2:3", "is not an open file"),
            ("monitor=\u{1f}monitor-out=1:x:3:path", "`x` is not a number"),
            ("segment", "a pair without `=`"),
            ("policy=\u{1e}", "`policy` ends in an escape"),
        ] {
            let mut value = own.clone();
            value.push(format!("\u{1f}{pair}"));
            assert!(AgentSettings::decode(&value).is_err_and(|found| found.contains(why)), "{pair:?}");
        }
    }
}
