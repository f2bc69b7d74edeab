//! Access patterns that are known exactly: areas, and phases in which patterns run over them, as the workload generator
//! masim describes them (spec: tools §2).
//!
//! Differences, so that a seed names a sequence and an interval of some milliseconds sees all patterns of a phase: the
//! pick of a pattern holds for 256 accesses instead of 131 072. Random numbers come from a seeded generator instead of
//! a stored table. A phase ends by its time at the given speed. Areas lie one after the other, rounded up to pages.
//!
//! ```
//! use refault_sim::monitoring::pattern::Pattern;
//!
//! let pattern = Pattern::parse("a, 40960\nb, 8192\n\nboth\n100\na, 0, 4096, 1\nb, 1, 0, 3\n")?;
//! let mut entries = Vec::new();
//! pattern.start(10_000, 1).play(50, &mut entries);
//! assert_eq!((pattern.pages(), pattern.milliseconds(), entries.len()), (12, 100, 50));
//! # Ok::<(), refault_sim::monitoring::pattern::PatternError>(())
//! ```

use refault_core::monitor::Random;
use refault_trace::{Entry, Kind};

/// Accesses for which a picked pattern holds.
const BATCH: u64 = 256;
/// All phases together, in ms: at the default speed, some minutes of work.
const MAX_MILLISECONDS: u64 = 4 * 3_600_000;
const PAGE: u64 = 4096;

/// Why a description is refused: line and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl std::fmt::Display for PatternError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for PatternError {}

/// Areas and phases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    areas: Vec<Area>,
    phases: Vec<Phase>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Area {
    name: String,
    first_page: u64,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Phase {
    name: String,
    milliseconds: u64,
    runs: Vec<Run>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    area: usize,
    random: bool,
    stride: u64,
    weight: u64,
    write: bool,
}

/// Ten areas, all at once, then one after the other.
const STAIRS: &str = include_str!("patterns/stairs.masim");
/// Two areas, both at once, then taking turns.
const ZIGZAG: &str = include_str!("patterns/zigzag.masim");
/// A small area accessed at random all the time, a large one swept now and then, and one left alone.
const HOT_SPOT: &str = include_str!("patterns/hot-spot.masim");
/// Everything equally, at random: nothing to find.
const UNIFORM: &str = include_str!("patterns/uniform.masim");

impl Pattern {
    /// The built-in patterns.
    pub const NAMES: [&'static str; 4] = ["stairs", "zigzag", "hot-spot", "uniform"];

    /// A built-in pattern.
    pub fn from_name(name: &str) -> Option<Pattern> {
        let text = match name {
            "stairs" => STAIRS,
            "zigzag" => ZIGZAG,
            "hot-spot" => HOT_SPOT,
            "uniform" => UNIFORM,
            _ => return None,
        };
        Some(Pattern::parse(text).expect("invariant: built-in patterns are legal"))
    }

    /// Reads a description in masim's format.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let refuse = |line: usize, reason: &str| PatternError { line, reason: reason.to_owned() };
        let mut paragraphs: Vec<Vec<(usize, &str)>> = vec![Vec::new()];
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('#') {
                continue;
            }
            if !line.is_empty() {
                paragraphs.last_mut().expect("invariant: never empty").push((index + 1, line));
            } else if paragraphs.last().is_some_and(|last| !last.is_empty()) {
                paragraphs.push(Vec::new());
            }
        }
        paragraphs.retain(|paragraph| !paragraph.is_empty());
        let mut paragraphs = paragraphs.into_iter();
        let mut areas: Vec<Area> = Vec::new();
        let mut page = 0u64;
        for (line, text) in paragraphs.next().ok_or_else(|| refuse(1, "there are no areas"))? {
            let mut fields = text.split(',').map(str::trim);
            let name = fields.next().unwrap_or_default().to_owned();
            let bytes = number(fields.next(), line, "the area's bytes")?;
            if bytes == 0 || bytes > 1 << 46 {
                return Err(refuse(line, "an area must have from 1 byte to 64 TiB"));
            }
            areas.push(Area { name, first_page: page, bytes });
            page += bytes.div_ceil(PAGE);
        }
        let (mut phases, mut milliseconds) = (Vec::new(), 0u64);
        for paragraph in paragraphs {
            let phase = parse_phase(&paragraph, &areas)?;
            milliseconds = milliseconds.saturating_add(phase.milliseconds);
            if milliseconds > MAX_MILLISECONDS {
                let hours = MAX_MILLISECONDS / 3_600_000;
                return Err(refuse(paragraph[0].0, &format!("the phases take more than {hours} hours up to here")));
            }
            phases.push(phase);
        }
        if phases.is_empty() {
            return Err(refuse(text.lines().count().max(1), "there are no phases"));
        }
        Ok(Pattern { areas, phases })
    }

    /// Pages of all areas.
    pub fn pages(&self) -> u64 {
        self.areas.last().map_or(0, |area| area.first_page + area.bytes.div_ceil(PAGE))
    }

    /// Length of all phases in ms.
    pub fn milliseconds(&self) -> u64 {
        self.phases.iter().map(|phase| phase.milliseconds).sum()
    }

    /// Names of areas with the bytes they lie at.
    pub fn areas(&self) -> impl Iterator<Item = (&str, std::ops::Range<u64>)> {
        self.areas.iter().map(|area| (area.name.as_str(), area.first_page * PAGE..area.first_page * PAGE + area.bytes))
    }

    /// The program at a speed in accesses per second.
    pub fn start(&self, accesses_per_second: u64, seed: u64) -> Player<'_> {
        Player {
            pattern: self,
            speed: accesses_per_second,
            random: Random::new(seed),
            phase: 0,
            left: accesses(&self.phases[0], accesses_per_second),
            offsets: vec![0; self.phases[0].runs.len()],
            run: 0,
            batch: 0,
        }
    }
}

fn number(text: Option<&str>, line: usize, what: &str) -> Result<u64, PatternError> {
    let refuse = |reason: &str| PatternError { line, reason: format!("{what} {reason}") };
    text.ok_or_else(|| refuse("is missing"))?.parse().map_err(|_| refuse("must be a whole number"))
}

fn parse_phase(paragraph: &[(usize, &str)], areas: &[Area]) -> Result<Phase, PatternError> {
    let (line, name) = paragraph[0];
    let milliseconds = number(paragraph.get(1).map(|(_, text)| *text), line, "the phase's length in ms")?;
    let mut runs = Vec::new();
    for &(line, text) in paragraph.iter().skip(2) {
        let mut fields = text.split(',').map(str::trim);
        let area = fields.next().unwrap_or_default();
        let area = areas
            .iter()
            .position(|known| known.name == area)
            .ok_or_else(|| PatternError { line, reason: format!("'{area}' is not an area") })?;
        let random = number(fields.next(), line, "random (1) or sequential (0)")? != 0;
        let stride = number(fields.next(), line, "the stride")?;
        let weight = number(fields.next(), line, "the weight")?;
        let write = match fields.next() {
            None | Some("wo" | "rw") => true,
            Some("ro") => false,
            Some(other) => {
                return Err(PatternError { line, reason: format!("'{other}' is not a mode; use ro, wo or rw") });
            }
        };
        runs.push(Run { area, random, stride, weight: weight.min(1 << 32), write });
    }
    if runs.iter().all(|run| run.weight == 0) {
        return Err(PatternError { line, reason: format!("the phase '{name}' has no pattern with a weight") });
    }
    Ok(Phase { name: name.to_owned(), milliseconds, runs })
}

fn accesses(phase: &Phase, speed: u64) -> u64 {
    (u128::from(phase.milliseconds) * u128::from(speed) / 1000) as u64
}

/// A pattern at work.
#[derive(Clone, Debug)]
pub struct Player<'a> {
    pattern: &'a Pattern,
    speed: u64,
    random: Random,
    phase: usize,
    /// Accesses left in the phase.
    left: u64,
    offsets: Vec<u64>,
    run: usize,
    /// Accesses for which the pick still holds.
    batch: u64,
}

impl Player<'_> {
    /// The name of the phase under way; `None` at the end.
    pub fn phase(&self) -> Option<&str> {
        self.pattern.phases.get(self.phase).map(|phase| phase.name.as_str())
    }

    /// Appends up to `count` accesses; fewer at the end.
    pub fn play(&mut self, count: u64, out: &mut Vec<Entry>) {
        for _ in 0..count {
            while self.left == 0 {
                self.phase += 1;
                let Some(phase) = self.pattern.phases.get(self.phase) else { return };
                self.left = accesses(phase, self.speed);
                self.offsets = vec![0; phase.runs.len()];
                self.batch = 0;
            }
            let Some(phase) = self.pattern.phases.get(self.phase) else { return };
            if self.batch == 0 {
                self.run = pick(&phase.runs, &mut self.random);
                self.batch = BATCH;
            }
            let run = &phase.runs[self.run];
            let area = &self.pattern.areas[run.area];
            let offset = if run.random {
                self.random.within(0, area.bytes)
            } else {
                let next = self.offsets[self.run].saturating_add(run.stride);
                self.offsets[self.run] = if next >= area.bytes { 0 } else { next };
                self.offsets[self.run]
            };
            out.push(Entry::new(area.first_page + offset / PAGE, Kind::Anon, run.write));
            self.left -= 1;
            self.batch -= 1;
        }
    }
}

fn pick(runs: &[Run], random: &mut Random) -> usize {
    let total = runs.iter().map(|run| run.weight).sum();
    let mut at = random.within(0, total);
    for (index, run) in runs.iter().enumerate() {
        if at < run.weight {
            return index;
        }
        at -= run.weight;
    }
    runs.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(text: &str, speed: u64, count: u64) -> Vec<u64> {
        let pattern = Pattern::parse(text).unwrap();
        let mut out = Vec::new();
        pattern.start(speed, 1).play(count, &mut out);
        out.iter().map(|entry| entry.page()).collect()
    }

    #[test]
    fn strides_start_behind_the_first_byte_and_wrap_to_it() {
        let pages = played("a, 12288\nb, 5000\n\np\n1000\na, 0, 4096, 1\n\nq\n1000\nb, 0, 4096, 1, ro\n", 5, 100);
        assert_eq!(pages, [1, 2, 0, 1, 2, 4, 3, 4, 3, 4]);
    }

    #[test]
    fn weights_decide_how_often_an_area_is_met() {
        let pages = played("a, 4096\nb, 4096\n\np\n1000\na, 0, 4096, 1\nb, 0, 4096, 3\n", 400_000, 400_000);
        let share = pages.iter().filter(|&&page| page == 1).count() as f64 / pages.len() as f64;
        assert!((0.70..0.80).contains(&share), "{share}");
    }

    #[test]
    fn built_in_patterns_are_the_described_ones() {
        for name in Pattern::NAMES {
            assert!(Pattern::from_name(name).unwrap().milliseconds() > 0);
        }
        let stairs = Pattern::from_name("stairs").unwrap();
        assert_eq!((stairs.areas().count(), stairs.pages(), stairs.milliseconds()), (10, 24_420, 60_000));
        let zigzag = Pattern::from_name("zigzag").unwrap();
        assert_eq!((zigzag.areas().count(), zigzag.milliseconds()), (2, 70_000));
        assert_eq!(Pattern::from_name("circle"), None);
    }

    #[test]
    fn bad_descriptions_name_the_line() {
        for (text, line) in [
            ("", 1),
            ("a\n", 1),
            ("a, x\n", 1),
            ("a, 0\n", 1),
            ("# only\na, 4096\n", 2),
            ("a, 4096\n\np\nlong\n", 3),
            ("a, 4096\n\np\n5\n", 3),
            ("a, 4096\n\np\n5\nb, 0, 1, 1\n", 5),
            ("a, 4096\n\np\n5\na, 0, 1, 0\n", 3),
            ("a, 4096\n\np\n5\na, 0, 1, 1, xx\n", 5),
        ] {
            assert_eq!(Pattern::parse(text).unwrap_err().line, line, "{text:?}");
        }
    }
}
