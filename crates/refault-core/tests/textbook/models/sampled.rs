//! Hyperbolic caching and LHD over plain vectors. The draws are the definition: an index into the pages in memory, of
//! which the last takes the place of one that goes.

use refault_core::PageId;
use refault_core::monitor::Random;

use crate::harness::Model;

fn draw(random: &mut Random, pages: usize) -> usize {
    random.within(0, pages as u64) as usize
}

/// Accesses and time of arrival of each page; the least accesses per time goes.
pub struct Hyperbolic {
    capacity: usize,
    sample: usize,
    random: Random,
    now: u64,
    pages: Vec<(PageId, u64, u64)>,
}

impl Hyperbolic {
    pub fn new(capacity: usize, sample: usize, seed: u64) -> Hyperbolic {
        Hyperbolic { capacity, sample, random: Random::new(seed), now: 0, pages: Vec::new() }
    }
}

impl Model for Hyperbolic {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        self.now += 1;
        if let Some(known) = self.pages.iter_mut().find(|known| known.0 == page) {
            known.1 += 1;
            return Vec::new();
        }
        let mut victims = Vec::new();
        let held = self.pages.len();
        if held == self.capacity {
            let candidates: Vec<usize> = if held <= self.sample {
                (0..held).collect()
            } else {
                (0..self.sample).map(|_| draw(&mut self.random, held)).collect()
            };
            let rate = |index: &usize| self.pages[*index].1 as f64 / (self.now - self.pages[*index].2) as f64;
            // `min_by` takes the first of equals.
            let worst = candidates.into_iter().min_by(|a, b| rate(a).total_cmp(&rate(b))).expect("memory is full");
            victims.push(self.pages.swap_remove(worst).0);
        }
        self.pages.push((page, 1, self.now));
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.pages.iter().any(|known| known.0 == page)
    }

    fn free(&mut self, page: PageId) {
        let index = self.pages.iter().position(|known| known.0 == page).expect("it is resident");
        self.pages.swap_remove(index);
    }
}

#[derive(Clone)]
struct Object {
    page: PageId,
    stamp: u64,
    last: u64,
    before: u64,
    explorer: bool,
}

#[derive(Clone)]
struct Histogram {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    rank: Vec<f32>,
}

/// LHD by the authors' description, with histograms that are scaled by moving each count by itself.
pub struct Lhd {
    pub capacity: usize,
    pub sample: usize,
    pub newcomers: usize,
    pub period: u64,
    pub ages: u64,
    random: Random,
    now: u64,
    shift: u32,
    objects: Vec<Object>,
    classes: Vec<Histogram>,
    /// Those that came and promised little, the latest last.
    recent: Vec<Option<PageId>>,
    recent_count: usize,
    victim_rank: f32,
    budget: usize,
    periods: u64,
    objects_mean: [f32; 2],
}

/// For each place the sum of what stands there and behind it, added up from the end.
fn tails(values: &[f32]) -> Vec<f32> {
    let tail = |from: usize| values[from..].iter().rev().fold(0.0, |sum, value| sum + value);
    (0..values.len()).map(tail).collect()
}

impl Lhd {
    pub fn new(capacity: usize, sample: usize, newcomers: usize, budget: usize, period: u64, ages: u64) -> Lhd {
        let class = |class: usize| Histogram {
            hits: vec![0.0; ages as usize],
            evictions: vec![0.0; ages as usize],
            rank: (1..=ages).map(|age| ((class + 1) as f64 / age as f64) as f32).collect(),
        };
        Lhd {
            capacity,
            sample,
            newcomers,
            period,
            ages,
            random: Random::new(7),
            now: 0,
            shift: 10,
            objects: Vec::new(),
            classes: (0..16).map(class).collect(),
            recent: vec![None; newcomers],
            recent_count: 0,
            victim_rank: 0.0,
            budget,
            periods: 0,
            objects_mean: [0.0; 2],
        }
    }

    fn age_of(&self, object: &Object) -> u64 {
        ((self.now - object.stamp) >> self.shift).min(self.ages - 1)
    }

    /// How often the sum of the last two ages can be doubled below all ages, at most 15 times.
    fn class_of(&self, object: &Object) -> usize {
        let age = object.last + object.before;
        (0..15).find(|doublings| age << doublings >= self.ages).unwrap_or(15)
    }

    fn rank_of(&self, object: &Object) -> f32 {
        let age = self.age_of(object);
        if age == self.ages - 1 {
            return f32::MIN;
        }
        let rank = self.classes[self.class_of(object)].rank[age as usize];
        if object.explorer { rank + 1.0 } else { rank }
    }

    fn evict(&mut self) -> PageId {
        let drawn = if self.periods > 50 { self.sample } else { 8 };
        let mut candidates: Vec<usize> = Vec::new();
        for _ in 0..drawn {
            candidates.push(draw(&mut self.random, self.objects.len()));
        }
        let place = |page: &PageId| self.objects.iter().position(|object| object.page == *page);
        candidates.extend(self.recent.iter().flatten().filter_map(place));
        let ranks: Vec<f32> = candidates.iter().map(|index| self.rank_of(&self.objects[*index])).collect();
        let least = ranks.iter().copied().fold(f32::MAX, f32::min);
        let victim = candidates[ranks.iter().position(|rank| *rank == least).expect("some were drawn")];
        self.victim_rank = 0.9f32 * self.victim_rank + (1.0 - 0.9f32) * least;
        let object = self.objects[victim].clone();
        let (class, age) = (self.class_of(&object), self.age_of(&object));
        self.classes[class].evictions[age as usize] += 1.0;
        self.budget += usize::from(object.explorer);
        self.objects.swap_remove(victim);
        object.page
    }

    fn end_period(&mut self) {
        for count in self.classes.iter_mut().flat_map(|class| class.hits.iter_mut().chain(&mut class.evictions)) {
            *count *= 0.9;
        }
        self.objects_mean = [self.objects_mean[0] * 0.9 + self.objects.len() as f32, self.objects_mean[1] * 0.9 + 1.0];
        if self.periods == 5 || self.periods == 25 {
            let step = (self.objects_mean[0] / self.objects_mean[1]) / (0.01 * self.ages as f32);
            let shift = (1..).find(|shift| (1u64 << shift) as f32 >= step).expect("steps are finite");
            let old = std::mem::replace(&mut self.shift, shift);
            self.objects_mean = self.objects_mean.map(|value| value * 8.0);
            for counts in self.classes.iter_mut().flat_map(|class| [&mut class.hits, &mut class.evictions]) {
                *counts = rescaled(counts, old, shift);
            }
        }
        for class in &mut self.classes {
            let events: Vec<f32> = class.hits.iter().zip(&class.evictions).map(|(hit, gone)| hit + gone).collect();
            let (hits, events) = (tails(&class.hits), tails(&events));
            let lived = tails(&events);
            for age in 0..class.rank.len() - 1 {
                class.rank[age] = if events[age] > 1e-5 { hits[age] / lived[age] } else { 0.0 };
            }
        }
        self.periods += 1;
    }

    fn touch(&mut self, index: usize, came: bool) {
        self.objects[index].stamp = self.now;
        let lucky = self.random.bits().is_multiple_of(32);
        self.objects[index].explorer = lucky && self.budget > 0 && self.periods < 50;
        self.budget -= usize::from(self.objects[index].explorer);
        if came && !lucky && self.newcomers > 0 && self.rank_of(&self.objects[index]) < self.victim_rank {
            self.recent[self.recent_count % self.newcomers] = Some(self.objects[index].page);
            self.recent_count += 1;
        }
        self.now += 1;
        if self.now.is_multiple_of(self.period) {
            self.end_period();
        }
    }
}

/// Counts by steps of `2^old` accesses as counts by steps of `2^new`. The last stands for all greater ages.
fn rescaled(counts: &[f32], old: u32, new: u32) -> Vec<f32> {
    let last = counts.len() - 1;
    let mut scaled = vec![0.0; counts.len()];
    scaled[last] = counts[last];
    if new < old {
        let parts = 1usize << (old - new);
        counts[counts.len() / parts..last].iter().for_each(|count| scaled[last] += count);
        for (age, count) in scaled.iter_mut().enumerate().take(last) {
            *count = counts[age / parts] / parts as f32;
        }
    } else if new > old {
        let merged = 1usize << (new - old);
        for (age, group) in counts.chunks_exact(merged).enumerate() {
            scaled[age] = group[1..].iter().fold(group[0], |sum, count| sum + count);
        }
    } else {
        scaled.copy_from_slice(counts);
    }
    scaled
}

impl Model for Lhd {
    fn access(&mut self, page: PageId) -> Vec<PageId> {
        if let Some(index) = self.objects.iter().position(|object| object.page == page) {
            let object = self.objects[index].clone();
            let age = self.age_of(&object);
            let class = self.class_of(&object);
            self.classes[class].hits[age as usize] += 1.0;
            self.budget += usize::from(object.explorer);
            (self.objects[index].before, self.objects[index].last) = (object.last, age);
            self.touch(index, false);
            return Vec::new();
        }
        let victims = if self.objects.len() == self.capacity { vec![self.evict()] } else { Vec::new() };
        self.objects.push(Object { page, stamp: self.now, last: 0, before: self.ages, explorer: false });
        self.touch(self.objects.len() - 1, true);
        victims
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.objects.iter().any(|object| object.page == page)
    }

    fn free(&mut self, page: PageId) {
        let index = self.objects.iter().position(|object| object.page == page).expect("it is resident");
        self.budget += usize::from(self.objects[index].explorer);
        self.objects.swap_remove(index);
        self.recent.iter_mut().filter(|recent| **recent == Some(page)).for_each(|recent| *recent = None);
    }
}
