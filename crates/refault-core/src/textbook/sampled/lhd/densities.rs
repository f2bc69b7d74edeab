//! What LHD has learnt: hits and evictions by class and age, and the densities that follow.
//!
//! Densities and counts have 32 bits, as in the authors' simulator, so that ties fall alike.
//!
//! Invariant: the histograms hold the ages up to the greatest at which something happened, or all of them once that was
//! the oldest. Nothing happened at the others, whose densities are those of the beginning or none.

/// Classes of pages, by the ages of their last two hits.
const CLASSES: usize = 16;
/// What is left of a count after a period.
pub(super) const DECAY: f32 = 0.9;
/// The shift from accesses to ages at first.
const FIRST_SHIFT: u32 = 10;
/// How much of memory's turnover one step of age may be.
const AGE_ERROR: f32 = 0.01;
/// The periods after which ages are fitted to the pages in memory.
const FITTED_AFTER: [u64; 2] = [5, 25];
/// What a mean of pages in memory weighs more after ages were fitted to it.
const FITTED_WEIGHT: f32 = 8.0;
/// Events of a class below which it promises nothing.
const MIN_EVENTS: f32 = 1e-5;

#[derive(Clone, Debug)]
struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    densities: Vec<f32>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Densities {
    ages: usize,
    /// Ages that the histograms hold.
    held: usize,
    is_computed: bool,
    shift: u32,
    classes: Vec<Class>,
    /// The decayed sum of pages in memory at the ends of periods, and its weight.
    pages: f32,
    pages_weight: f32,
}

impl Densities {
    pub(super) fn new(ages: usize) -> Densities {
        let class = Class { hits: Vec::new(), evictions: Vec::new(), densities: Vec::new() };
        Densities {
            ages,
            held: 0,
            is_computed: false,
            shift: FIRST_SHIFT,
            classes: vec![class; CLASSES],
            pages: 0.0,
            pages_weight: 0.0,
        }
    }

    /// The density of an age at which nothing happened yet, nor at a greater one.
    fn unseen(&self, class: usize, age: usize) -> f32 {
        if self.is_computed { 0.0 } else { ((class + 1) as f64 / (age + 1) as f64) as f32 }
    }

    /// Makes the histograms hold these ages, at least.
    fn hold(&mut self, ages: usize) {
        if ages <= self.held {
            return;
        }
        let held = if ages == self.ages { ages } else { ages.next_power_of_two().min(self.ages - 1) };
        for class in 0..CLASSES {
            let densities: Vec<f32> = (self.held..held).map(|age| self.unseen(class, age)).collect();
            let class = &mut self.classes[class];
            class.hits.resize(held, 0.0);
            class.evictions.resize(held, 0.0);
            class.densities.extend(densities);
        }
        self.held = held;
    }

    /// Forgets the ages behind the last at which something happened.
    fn release(&mut self) {
        let is_zero =
            |age: usize| self.classes.iter().all(|class| class.hits[age] == 0.0 && class.evictions[age] == 0.0);
        self.held = (0..self.held).rev().find(|age| !is_zero(*age)).map_or(0, |age| age + 1);
        for class in &mut self.classes {
            for values in [&mut class.hits, &mut class.evictions, &mut class.densities] {
                values.truncate(self.held);
                values.shrink_to_fit();
            }
        }
    }

    /// The class of a page by the sum of its last two ages: the logarithm of how often it fits into all ages.
    pub(super) fn class(&self, mut age: u64) -> usize {
        let mut class = 0;
        while class < CLASSES - 1 && age < self.ages as u64 {
            age <<= 1;
            class += 1;
        }
        class
    }

    /// The age of a page whose last access is this number of accesses ago.
    pub(super) fn age(&self, accesses: u64) -> usize {
        (accesses >> self.shift).min(self.ages as u64 - 1) as usize
    }

    /// What a page promises, or an object of several. The oldest promise nothing.
    pub(super) fn of(&self, class: usize, age: usize, pages: f32, explores: bool) -> f32 {
        if age == self.ages - 1 {
            return f32::MIN;
        }
        let density = self.classes[class].densities.get(age).copied();
        density.unwrap_or_else(|| self.unseen(class, age)) / pages + if explores { 1.0 } else { 0.0 }
    }

    pub(super) fn hit(&mut self, class: usize, age: usize) {
        self.hold(age + 1);
        self.classes[class].hits[age] += 1.0;
    }

    pub(super) fn evicted(&mut self, class: usize, age: usize) {
        self.hold(age + 1);
        self.classes[class].evictions[age] += 1.0;
    }

    /// A period is over: `pages` are in memory, and `periods` came before it.
    pub(super) fn compute(&mut self, pages: usize, periods: u64) {
        for class in &mut self.classes {
            class.hits.iter_mut().chain(&mut class.evictions).for_each(|count| *count *= DECAY);
        }
        self.pages = self.pages * DECAY + pages as f32;
        self.pages_weight = self.pages_weight * DECAY + 1.0;
        if FITTED_AFTER.contains(&periods) {
            self.fit_ages();
        }
        for class in &mut self.classes {
            class.compute(self.held == self.ages);
        }
        self.is_computed = true;
    }

    /// Makes steps of age as long as the pages in memory ask for, and moves the counts to their new ages.
    fn fit_ages(&mut self) {
        let wanted = (self.pages / self.pages_weight) / (AGE_ERROR * self.ages as f32);
        let mut shift = 1;
        while ((1u64 << shift) as f32) < wanted {
            shift += 1;
        }
        let (old, ages) = (std::mem::replace(&mut self.shift, shift), self.ages);
        self.pages *= FITTED_WEIGHT;
        self.pages_weight *= FITTED_WEIGHT;
        self.hold(ages);
        for counts in self.classes.iter_mut().flat_map(|class| [&mut class.hits, &mut class.evictions]) {
            if shift < old {
                stretch(counts, ages, old - shift);
            } else if shift > old {
                compress(counts, ages, shift - old);
            }
        }
        self.release();
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        CLASSES * 3 * self.held * size_of::<f32>()
    }
}

/// Each count is spread over the ages that it becomes; what no longer fits joins the oldest.
fn stretch(counts: &mut [f32], ages: usize, by: u32) {
    for age in ages.checked_shr(by).unwrap_or(0)..ages - 1 {
        counts[ages - 1] += counts[age];
    }
    for age in (0..ages - 1).rev() {
        counts[age] = counts[age.checked_shr(by).unwrap_or(0)] / (1u64 << by) as f32;
    }
}

/// The counts of ages that become one are added up. The oldest keep theirs.
fn compress(counts: &mut [f32], ages: usize, by: u32) {
    let left = ages.checked_shr(by).unwrap_or(0);
    for age in 0..left {
        let merged = &counts[age << by..(age + 1) << by];
        counts[age] = merged[1..].iter().fold(merged[0], |sum, count| sum + count);
    }
    counts[left..ages - 1].fill(0.0);
}

impl Class {
    /// From the greatest age held down: hits from here on over the time lived from here on. The oldest of all promises
    /// nothing.
    fn compute(&mut self, holds_oldest: bool) {
        let (mut hits, mut events, mut lived) = (0.0, 0.0, 0.0);
        for age in (0..self.hits.len()).rev() {
            hits += self.hits[age];
            events += self.hits[age] + self.evictions[age];
            lived += events;
            let is_oldest = holds_oldest && age == self.hits.len() - 1;
            if !is_oldest {
                self.densities[age] = if events > MIN_EVENTS { hits / lived } else { 0.0 };
            }
        }
    }
}
