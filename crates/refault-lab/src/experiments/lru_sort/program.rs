//! A program as laws of access instead of a list of accesses: whether a page was touched in an interval, and which page
//! that is not in memory will be touched next, are computed on demand. So the cost of a simulated
//! second is that of its page faults, however many accesses it makes.
//!
//! Program time runs only while the program runs; all times here are nanoseconds of it. Pages are `0..pages`, laid out
//! part after part. Laws repeat with the program's cycle of phases.
//!
//! Accuracy: sweeps are exact; random touches are a Poisson process of which each question draws its own sample. So two
//! observers of one interval may disagree on a single page while both see the right rate.

use refault_core::monitor::Random;

/// How the pages of a part are touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Not at all after it was filled.
    Cold,
    /// One page after the other, the whole part once in `period` seconds.
    Sweep {
        /// Seconds for all pages of the part.
        period: f64,
    },
    /// Anywhere, each page at this mean rate per second.
    Random {
        /// Touches per second of one page.
        rate: f64,
    },
}

/// A share of the footprint with its law in one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Share of the footprint, 0..=1; those of a phase add up to 1.
    pub share: f64,
    /// How it is touched.
    pub law: Law,
}

/// A stretch of program time with its own laws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Seconds until the next phase; the last is followed by the first. Infinite for programs of one phase.
    pub seconds: f64,
    /// The parts, in address order.
    pub parts: &'static [Part],
}

/// A part with its pages.
#[derive(Clone, Copy, Debug)]
struct Placed {
    first: u64,
    pages: u64,
    law: PlacedLaw,
}

#[derive(Clone, Copy, Debug)]
enum PlacedLaw {
    Cold,
    /// Period and offset in ns.
    Sweep {
        period: u64,
        offset: u64,
    },
    /// Touches of one page a ns.
    Random {
        rate: f64,
    },
}

impl Placed {
    /// When the sweep reaches a page, within its period.
    fn reaches(&self, page: u64, period: u64) -> u64 {
        (u128::from(page - self.first) * u128::from(period) / u128::from(self.pages)) as u64
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Program {
    pages: u64,
    /// Filling the memory, then the cycle of phases.
    phases: Vec<(u64, Vec<Placed>)>,
    /// Length of the cycle; filling excluded.
    cycle: u64,
    random: Random,
    /// Bit a page: not in memory.
    absent: Vec<u64>,
}

const SECOND: f64 = 1e9;
/// Longer than any run.
const FOREVER: u64 = 1 << 62;

impl Program {
    /// A program of `pages` pages that fills its memory in `fill` seconds and then goes through `phases`.
    pub fn new(pages: u64, fill: f64, phases: &[Phase], seed: u64) -> Program {
        let mut random = Random::new(seed);
        let fill_ns = ((fill * SECOND) as u64).max(pages);
        let filling = Placed { first: 0, pages, law: PlacedLaw::Sweep { period: fill_ns, offset: 0 } };
        let mut placed = vec![(fill_ns, vec![filling])];
        for phase in phases {
            let parts = place(phase, pages, &mut random);
            let length = if phase.seconds.is_finite() { (phase.seconds * SECOND) as u64 } else { FOREVER };
            placed.push((length.max(1), parts));
        }
        let cycle = placed[1..].iter().fold(0u64, |sum, (length, _)| sum.saturating_add(*length)).min(FOREVER);
        let mut absent = vec![u64::MAX; pages.div_ceil(64) as usize];
        if !pages.is_multiple_of(64) {
            *absent.last_mut().expect("invariant: a program has pages") = (1 << (pages % 64)) - 1;
        }
        Program { pages, phases: placed, cycle, random, absent }
    }

    /// Pages of the footprint.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Program time at which the memory is filled.
    pub fn filled_at(&self) -> u64 {
        self.phases[0].0
    }

    /// A page came into memory or left it.
    pub fn set_absent(&mut self, page: u64, absent: bool) {
        let bit = 1 << (page % 64);
        let word = &mut self.absent[(page / 64) as usize];
        if absent { *word |= bit } else { *word &= !bit }
    }

    /// The phase at a time and when it ends.
    fn phase_at(&self, time: u64) -> (usize, u64, u64) {
        let fill = self.phases[0].0;
        if time < fill {
            return (0, 0, fill);
        }
        let into = (time - fill) % self.cycle;
        let mut start = time - into;
        for (index, (length, _)) in self.phases.iter().enumerate().skip(1) {
            let end = start.saturating_add(*length);
            if time < end {
                return (index, start, end);
            }
            start = end;
        }
        unreachable!("invariant: a time lies in one phase of its cycle")
    }

    /// Whether a page is touched in `(from, to]`.
    pub fn touched(&mut self, page: u64, from: u64, to: u64) -> bool {
        let mut at = from;
        while at < to {
            let (index, _, end) = self.phase_at(at);
            let until = to.min(end);
            let part = *part_of(&self.phases[index].1, page);
            let hit = match part.law {
                PlacedLaw::Cold => false,
                PlacedLaw::Sweep { period, offset } => {
                    // Rounds completed at the page before a time, up to a constant.
                    let phase = part.reaches(page, period);
                    let rounds = |time: u64| (time + offset + period - phase) / period;
                    rounds(until) > rounds(at)
                }
                PlacedLaw::Random { rate } => {
                    let missed = (-rate * (until - at) as f64).exp();
                    self.uniform() >= missed
                }
            };
            if hit {
                return true;
            }
            at = until;
        }
        false
    }

    /// All touches in `(from, to]`, for those who make them: the pages of a sweep in its order, then random ones.
    pub fn touches(&mut self, from: u64, to: u64, touch: &mut dyn FnMut(u64)) {
        let mut at = from;
        while at < to {
            let (index, _, end) = self.phase_at(at);
            let until = to.min(end);
            for part in 0..self.phases[index].1.len() {
                let part = self.phases[index].1[part];
                match part.law {
                    PlacedLaw::Cold => {}
                    PlacedLaw::Sweep { period, offset } => {
                        let reached =
                            |time: u64| u128::from(time + offset) * u128::from(part.pages) / u128::from(period);
                        let pages = reached(at) + 1..=reached(until);
                        pages.for_each(|page| touch(part.first + (page % u128::from(part.pages)) as u64));
                    }
                    PlacedLaw::Random { rate } => {
                        let mean = rate * part.pages as f64 * (until - at) as f64;
                        let count = (mean + self.uniform()) as u64;
                        (0..count).for_each(|_| touch(self.random.within(part.first, part.first + part.pages)));
                    }
                }
            }
            at = until;
        }
    }

    /// The next touch of a page that is not in memory, after `now` and no later than `until`: its time and the page.
    pub fn next_fault(&mut self, now: u64, until: u64) -> Option<(u64, u64)> {
        let mut at = now;
        while at < until {
            let (index, _, end) = self.phase_at(at);
            let limit = until.min(end);
            let mut best: Option<(u64, u64)> = None;
            for part in 0..self.phases[index].1.len() {
                let part = self.phases[index].1[part];
                let next = match part.law {
                    PlacedLaw::Cold => None,
                    PlacedLaw::Sweep { period, offset } => self.next_swept(&part, period, offset, at),
                    PlacedLaw::Random { rate } => self.next_random(&part, rate, at),
                };
                if let Some(next) = next.filter(|next| next.0 <= limit)
                    && best.is_none_or(|best| next.0 < best.0)
                {
                    best = Some(next);
                }
            }
            if best.is_some() {
                return best;
            }
            at = limit;
        }
        None
    }

    fn next_swept(&self, part: &Placed, period: u64, offset: u64, now: u64) -> Option<(u64, u64)> {
        let into = (now + offset) % period;
        // The first page that is reached strictly later in this round.
        let mut ahead = part.first + (u128::from(into) * u128::from(part.pages) / u128::from(period)) as u64;
        while ahead < part.first + part.pages && part.reaches(ahead, period) <= into {
            ahead += 1;
        }
        let end = part.first + part.pages;
        if let Some(page) = self.first_absent(ahead, end) {
            return Some((now + part.reaches(page, period) - into, page));
        }
        let page = self.first_absent(part.first, ahead.min(end))?;
        Some((now + period + part.reaches(page, period) - into, page))
    }

    fn next_random(&mut self, part: &Placed, rate: f64, now: u64) -> Option<(u64, u64)> {
        let absent = self.count_absent(part.first, part.first + part.pages);
        if absent == 0 {
            return None;
        }
        let wait = -(1.0 - self.uniform()).ln() / (rate * absent as f64);
        let rank = self.random.within(0, absent);
        let page = self.nth_absent(part.first, rank);
        let wait = if wait < FOREVER as f64 { wait as u64 } else { FOREVER };
        Some((now + wait.max(1), page))
    }

    /// 0..1.
    fn uniform(&mut self) -> f64 {
        (self.random.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The bits of a word that lie in `from..to`.
    fn word(&self, index: u64, from: u64, to: u64) -> u64 {
        let mut word = self.absent[index as usize];
        if index == from / 64 {
            word &= u64::MAX << (from % 64);
        }
        if index == to / 64 {
            word &= !(u64::MAX << (to % 64));
        }
        word
    }

    fn first_absent(&self, from: u64, to: u64) -> Option<u64> {
        if from >= to {
            return None;
        }
        let mut words = from / 64..to.div_ceil(64);
        words.find_map(|index| {
            let word = self.word(index, from, to);
            (word != 0).then(|| index * 64 + u64::from(word.trailing_zeros()))
        })
    }

    fn count_absent(&self, from: u64, to: u64) -> u64 {
        (from / 64..to.div_ceil(64)).map(|index| u64::from(self.word(index, from, to).count_ones())).sum()
    }

    fn nth_absent(&self, from: u64, mut rank: u64) -> u64 {
        for index in from / 64.. {
            let mut word = self.word(index, from, self.pages);
            let ones = u64::from(word.count_ones());
            if rank < ones {
                for _ in 0..rank {
                    word &= word - 1;
                }
                return index * 64 + u64::from(word.trailing_zeros());
            }
            rank -= ones;
        }
        unreachable!("invariant: the rank is below the number of absent pages")
    }
}

fn part_of(parts: &[Placed], page: u64) -> &Placed {
    let at = parts.partition_point(|part| part.first + part.pages <= page);
    &parts[at.min(parts.len() - 1)]
}

/// Lays the parts of a phase out over the pages; sweeps start anywhere.
fn place(phase: &Phase, pages: u64, random: &mut Random) -> Vec<Placed> {
    let mut placed = Vec::new();
    let mut share = 0.0;
    let mut first = 0;
    for (index, part) in phase.parts.iter().enumerate() {
        share += part.share;
        let last = index + 1 == phase.parts.len();
        let end = if last { pages } else { ((pages as f64 * share).round() as u64).min(pages) };
        if end > first {
            let law = match part.law {
                Law::Cold => PlacedLaw::Cold,
                Law::Sweep { period } => {
                    let period = ((period * SECOND) as u64).max(end - first);
                    PlacedLaw::Sweep { period, offset: random.within(0, period) }
                }
                Law::Random { rate } => PlacedLaw::Random { rate: rate / SECOND },
            };
            placed.push(Placed { first, pages: end - first, law });
        }
        first = end;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: [Part; 2] =
        [Part { share: 0.5, law: Law::Sweep { period: 1.0 } }, Part { share: 0.5, law: Law::Cold }];
    const RANDOM: [Part; 1] = [Part { share: 1.0, law: Law::Random { rate: 2.0 } }];

    fn filled(phases: &[Phase], pages: u64) -> (Program, u64) {
        let mut program = Program::new(pages, 0.001, phases, 5);
        (0..pages).for_each(|page| program.set_absent(page, false));
        let start = program.filled_at();
        (program, start)
    }

    #[test]
    fn filling_touches_each_page_once_in_order() {
        let mut program = Program::new(100, 0.1, &[Phase { seconds: f64::INFINITY, parts: &SWEEP }], 1);
        let mut now = 0;
        let mut order = Vec::new();
        while let Some((time, page)) = program.next_fault(now, program.filled_at()) {
            assert!(time > now);
            program.set_absent(page, false);
            order.push(page);
            now = time;
        }
        // The first page is reached at the start of a round, so it comes last.
        assert_eq!(order.len(), 100);
        assert!(order[..99].windows(2).all(|pair| pair[0] + 1 == pair[1]), "{order:?}");
    }

    #[test]
    fn a_sweep_touches_each_page_once_a_period_and_faults_agree() {
        let (mut program, start) = filled(&[Phase { seconds: f64::INFINITY, parts: &SWEEP }], 200);
        for page in 0..200 {
            let touches =
                (0..40).filter(|i| program.touched(page, start + i * 50_000_000, start + (i + 1) * 50_000_000)).count();
            assert_eq!(touches, if page < 100 { 2 } else { 0 }, "page {page} in two periods");
        }
        for page in [0, 7, 99] {
            program.set_absent(page, true);
            let (time, found) = program.next_fault(start, FOREVER).unwrap();
            assert_eq!(found, page);
            assert!(program.touched(page, start, time) && !program.touched(page, start, time - 1));
            let (again, _) = program.next_fault(time, FOREVER).unwrap();
            assert_eq!(again - time, 1_000_000_000);
            program.set_absent(page, false);
        }
        program.set_absent(150, true);
        assert_eq!(program.next_fault(start, start + 5_000_000_000), None, "cold pages are never touched");
    }

    #[test]
    fn touches_that_are_made_are_those_that_are_seen() {
        let (mut program, start) =
            filled(&[Phase { seconds: 2.0, parts: &SWEEP }, Phase { seconds: 1.0, parts: &RANDOM }], 200);
        let mut made = Vec::new();
        for step in 0..40 {
            let (from, to) = (start + step * 50_000_000, start + (step + 1) * 50_000_000);
            let mut now = Vec::new();
            program.touches(from, to, &mut |page| now.push(page));
            let seen: Vec<u64> = (0..200).filter(|page| program.touched(*page, from, to)).collect();
            let mut sorted = now.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted, seen, "step {step}");
            made.extend(now);
        }
        assert_eq!(made.len(), 200, "two rounds of half of the pages");
        let mut random = 0;
        program.touches(start + 2_000_000_000, start + 3_000_000_000, &mut |_| random += 1);
        assert!((399..=401).contains(&random), "200 pages, two touches a second: {random}");
        let mut filled = Vec::new();
        program.touches(0, program.filled_at(), &mut |page| filled.push(page));
        filled.sort_unstable();
        assert_eq!(filled, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn random_touches_have_their_rate() {
        let (mut program, start) = filled(&[Phase { seconds: f64::INFINITY, parts: &RANDOM }], 1000);
        let hits = (0..1000).filter(|&page| program.touched(page, start, start + 100_000_000)).count();
        // 1 - exp(-0.2) = 18.1 %
        assert!((140..230).contains(&hits), "{hits}");
        for page in [3, 500, 999] {
            program.set_absent(page, true);
        }
        let mut now = start;
        let mut seen = [0; 3];
        for _ in 0..3000 {
            let (time, page) = program.next_fault(now, FOREVER).unwrap();
            seen[[3, 500, 999].iter().position(|&p| p == page).unwrap()] += 1;
            now = time;
        }
        // Three pages at two touches per second: 3000 touches in about 500 s.
        let seconds = (now - start) as f64 / SECOND;
        assert!((450.0..550.0).contains(&seconds) && seen.iter().all(|&n| n > 850), "{seconds} {seen:?}");
    }

    #[test]
    fn phases_take_turns() {
        let phases = [Phase { seconds: 2.0, parts: &SWEEP }, Phase { seconds: 3.0, parts: &RANDOM }];
        let (mut program, start) = filled(&phases, 100);
        let second = 1_000_000_000;
        assert!(!program.touched(80, start, start + 2 * second));
        assert!(program.touched(80, start + 2 * second, start + 5 * second));
        assert!(!program.touched(80, start + 5 * second, start + 7 * second), "the cycle starts again");
        program.set_absent(80, true);
        let (time, _) = program.next_fault(start, FOREVER).unwrap();
        assert!(time > start + 2 * second);
    }
}
