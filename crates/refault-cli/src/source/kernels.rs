//! What real kernels did with the accesses that a command replays: how near the model is to them or, where none was
//! asked, the command that asks, and about how long it takes.

use std::path::Path;

use refault_ask::kernel::version_of;
use refault_ask::known::{self, CRITERION};
use refault_ask::model::{self, Compared};
use refault_ask::sequence::MAX_ACCESSES;
use refault_console::text::number;
use refault_console::{Progress, say};
use refault_lab::LabError;
use refault_lab::size::PAGE_BYTES;
use refault_trace::{Reading, Source};
use serde_json::{Value, json};

use super::{KindName, ReadArgs, memory_text};

/// The kernels that are proposed to be asked.
const KERNELS: [&str; 2] = ["6.12", "7.2"];

/// What a command shows of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Accesses of the trace.
    pub accesses: u64,
    /// Its distinct pages.
    pub distinct: u64,
    /// How it was read.
    pub reading: &'a Reading,
    /// The sizes shown, in pages, ascending.
    pub sizes: &'a [u64],
    /// Accesses at the start that are not counted.
    pub warm_up: u64,
}

/// What kernels did with a trace's accesses.
#[derive(Clone, Debug)]
pub struct Kernels {
    /// Their answers, beside the model's; none if no kernel was asked exactly this.
    compared: Vec<Compared>,
    /// Sizes of memory, in pages, that kernels were asked about.
    limits: Vec<u64>,
    /// Whether one of the sizes shown is among them.
    is_shown: bool,
    /// How another size is asked about; the reason why not.
    ask: Result<Ask, &'static str>,
}

#[derive(Clone, Debug)]
struct Ask {
    command: String,
    minutes: u64,
}

impl Kernels {
    /// Looks up what was asked about a source. `loads` is how many pages a memory of some pages loads, by the model.
    ///
    /// # Errors
    /// The source cannot be read, which it was before.
    pub fn of(
        source: &Source,
        read: &ReadArgs,
        shown: Shown<'_>,
        loads: impl Fn(u64) -> u64,
    ) -> Result<Kernels, LabError> {
        let cache = refault_ask::cache_directory();
        let found = known::answers(source, shown.accesses, &cache).or_else(|error| {
            say(error);
            known::answers(source, shown.accesses, Path::new("/nonexistent"))
        })?;
        let compared = model::beside(source, found, &Progress::new("replaying what kernels were asked"))?;
        let mut limits: Vec<u64> = compared.iter().map(|of| of.answer.limit).collect();
        limits.sort_unstable();
        limits.dedup();
        let is_shown = shown.sizes.iter().any(|pages| limits.contains(pages));
        Ok(Kernels { compared, limits, is_shown, ask: ask(source, read, shown, loads) })
    }

    /// A sentence without a stop: which kernels were asked, and how near the model is to them.
    pub fn text(&self, reading: &Reading) -> String {
        let ask = |before: &str| match &self.ask {
            Ok(Ask { command, minutes }) => {
                let minutes = if *minutes == 1 { "a minute".to_owned() } else { format!("{minutes} minutes") };
                format!("{before}`{command}` would take about {minutes}")
            }
            Err(reason) => format!("{before}{reason}"),
        };
        if self.compared.is_empty() {
            return ask("no kernel was asked anything like this; ");
        }
        let limits: Vec<String> = self.limits.iter().map(|pages| memory_text(reading, *pages)).collect();
        let mut text = format!("{} did this", in_words("kernel", "kernels", &self.versions()));
        if let Some((median, furthest, of)) = self.nearness() {
            text += &format!(" within {} % of the model's loads", rounded_up(furthest));
            if rounded_up(median) != rounded_up(furthest) {
                let version = version_of(&of.answer.kernel);
                let (lists, memory) = (of.answer.lists.name(), memory_text(reading, of.answer.limit));
                text +=
                    &format!(" (half of them within {} %; furthest: {version}, {lists}, {memory})", rounded_up(median));
            }
        }
        text += &format!(", with {} of memory", in_words("", "", &limits));
        if self.is_shown { text } else { ask(&format!("{text}; no size above was asked: ")) }
    }

    /// The same for programs.
    pub fn to_json(&self) -> Value {
        let answer = |of: &Compared| {
            json!({
                "kernel": of.answer.kernel,
                "lists": of.answer.lists.name(),
                "memory_pages": of.answer.limit,
                "swappiness": of.answer.swappiness,
                "warm_up": of.answer.warm_up,
                "loads": of.answer.counters.get("loads"),
                "model": of.policy,
                "model_loads": of.model.get("loads"),
            })
        };
        let ask = self.ask.as_ref().ok();
        json!({
            "criterion": CRITERION,
            "asked": !self.compared.is_empty(),
            "within_percent": self.nearness().map(|(_, furthest, _)| furthest),
            "answers": self.compared.iter().map(answer).collect::<Vec<_>>(),
            "command": ask.map(|ask| &ask.command),
            "minutes": ask.map(|ask| ask.minutes),
        })
    }

    fn versions(&self) -> Vec<String> {
        let mut versions: Vec<String> = Vec::new();
        for of in &self.compared {
            let version = version_of(&of.answer.kernel).to_owned();
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        versions.sort_by_key(|version| {
            version.split('.').map(|number| number.parse::<u32>().unwrap_or(0)).collect::<Vec<_>>()
        });
        versions
    }

    /// How far the model's loads lie from the kernels', in per cent: the median, the furthest, and whose that is.
    fn nearness(&self) -> Option<(f64, f64, &Compared)> {
        let mut off: Vec<(f64, &Compared)> =
            self.compared.iter().filter_map(|of| Some((of.off("loads")?.abs(), of))).collect();
        off.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let (furthest, of) = *off.last()?;
        Some((off[(off.len() - 1) / 2].0, furthest, of))
    }
}

/// Per cent, to two places and never too small.
fn rounded_up(percent: f64) -> String {
    number((percent * 100.0).ceil() / 100.0)
}

/// "kernels 6.1, 6.12 and 7.2".
fn in_words(one: &str, many: &str, names: &[String]) -> String {
    let (word, names) = match names {
        [rest @ .., last] if !rest.is_empty() => (many, format!("{} and {last}", rest.join(", "))),
        names => (one, names.concat()),
    };
    if word.is_empty() { names } else { format!("{word} {names}") }
}

/// How a kernel is asked about a source, with the size shown in the middle.
fn ask(source: &Source, read: &ReadArgs, shown: Shown<'_>, loads: impl Fn(u64) -> u64) -> Result<Ask, &'static str> {
    if shown.distinct.saturating_mul(PAGE_BYTES) > refault_ask::iso::MAX_BYTES {
        return Err("it has more than 4 GiB of pages, too many for a guest; --limit takes a part");
    }
    let middle = shown.sizes.get(shown.sizes.len().saturating_sub(1) / 2).copied().unwrap_or(shown.distinct / 2);
    let size = middle.max(1).to_string() + "p";
    let mut words = ["ask", "--kernel", &KERNELS.join(","), "--memory", &size].map(str::to_owned).to_vec();
    if shown.warm_up > 0 {
        words.extend(["--warm-up".to_owned(), shown.warm_up.to_string()]);
    }
    let accesses = shown.accesses.min(MAX_ACCESSES);
    words.extend(read.words(shown.reading, (accesses < shown.accesses).then_some(MAX_ACCESSES)));
    words.push(place(source));
    let loads = loads(middle) as f64 * accesses as f64 / shown.accesses.max(1) as f64;
    let seconds = KERNELS.len() as f64 * known::seconds(accesses, loads as u64);
    Ok(Ask { command: command_line(words.into_iter()), minutes: (seconds / 60.0).ceil() as u64 })
}

/// A source as an argument names it.
fn place(source: &Source) -> String {
    match source {
        // Standard input was stored in a file without a name.
        Source::File { options, .. } if options.shown_as.is_some() => "FILE".to_owned(),
        Source::File { path, .. } => path.display().to_string(),
        Source::Part { whole, .. } => place(whole),
        Source::Workload(_) | Source::Custom(_) => source.name(),
    }
}

impl ReadArgs {
    /// The options that read a trace the same way for `refault ask`, and at most `limit` of its accesses.
    fn words(&self, reading: &Reading, limit: Option<u64>) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut value =
            |name: &str, value: Option<String>| words.extend(value.map(|value| format!("--{name}={value}")));
        value("kind", self.kind.map(|kind| kind.name().to_owned()));
        value("trace-format", self.trace_format.map(|format| format.name().to_owned()));
        let columns: Vec<String> = self.columns.iter().map(|(field, name)| format!("{}={name}", field)).collect();
        value("columns", (!columns.is_empty()).then(|| columns.join(",")));
        value("block-bytes", self.block_bytes.map(|bytes| bytes.to_string()));
        value("skip", (self.skip > 0).then(|| self.skip.to_string()));
        let limit = match (self.limit, limit) {
            (Some(own), Some(most)) => Some(own.min(most)),
            (own, most) => own.or(most),
        };
        value("limit", limit.map(|limit| limit.to_string()));
        value("from", self.from.map(time_text));
        value("to", self.to.map(time_text));
        let sized = self.objects_have_sizes || reading.objects.is_some_and(|objects| objects.sized);
        let switches = [
            ("--objects-have-sizes", sized),
            ("--skip-size-zero", self.skip_size_zero),
            ("--file-order", self.file_order),
            ("--skip-instructions", self.skip_instructions),
            ("--collapse", self.collapse),
        ];
        words.extend(switches.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| (*name).to_owned()));
        words
    }
}

/// Nanoseconds in the largest unit of which they are whole ones, as options take times.
fn time_text(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let whole = units.into_iter().find(|(unit, _)| ns.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{ns}ns"), |(unit, name)| format!("{}{name}", ns / unit))
}

impl KindName {
    fn name(self) -> &'static str {
        match self {
            KindName::Anon => "anon",
            KindName::Fd => "fd",
            KindName::Mapped => "mapped",
        }
    }
}

/// `refault` with these arguments as a shell takes it.
pub fn command_line(words: impl Iterator<Item = String>) -> String {
    std::iter::once("refault".to_owned()).chain(words.map(quoted)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
pub fn quoted(word: String) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_named_as_it_was_given() {
        let times = [10_000_000_000, 500_000_000, 7000, 1, 1_000_000_001].map(time_text);
        assert_eq!(times, ["10s", "500ms", "7us", "1ns", "1000000001ns"]);
    }

    #[test]
    fn the_command_can_be_given_to_a_shell() {
        let words = ["mrc", "--policy", "mglru{tiers=1}", "it's", "a.u64"].map(str::to_owned);
        assert_eq!(command_line(words.into_iter()), r"refault mrc --policy 'mglru{tiers=1}' 'it'\''s' a.u64");
    }

    #[test]
    fn kinds_are_named_as_they_are_read() {
        for kind in [KindName::Anon, KindName::Fd, KindName::Mapped] {
            assert_eq!(clap::ValueEnum::from_str(kind.name(), false), Ok(kind));
        }
    }
}
