//! W-TinyLFU: an LRU window in front of a segmented LRU, and a sketch of frequencies that decides who may pass.
//!
//! New pages enter the window. What falls out of it competes with the main part's next victim: the one that was
//! counted more often stays, the newcomer only if it is strictly ahead. The main part is two LRU lists: a hit moves a
//! page from probation to protected, and what overflows there falls back to probation.
//!
//! The default is the reference simulator's variant: pages are counted when they come in, when they leave the window
//! and when they are hit in the main part, but not when they are hit in the window; counters are exact up to 16 bits
//! and halved after every 32 x main counted hits; there is no doorkeeper and the window does not adapt. Until memory
//! is full for the first time the window holds everything.
//!
//! Cost: 12 bytes a page id and 29 bytes a page of memory for the sketch.
//! Source: Einziger, Friedman and Manes, *TinyLFU: A Highly Efficient Cache Admission Policy*, ACM ToS 13(4), 2017,
//! sections 3 and 4.

mod sketch;

use std::sync::Arc;

use super::evict_oldest;
use super::slot::Slot;
use crate::counters::Counters;
use crate::list::List;
use crate::memory::Memory;
use crate::page::PageId;
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};
use sketch::Sketch;

/// False positive rate that the sketch is sized for, if as many pages were counted as the main part holds.
const SKETCH_ERROR: f64 = 0.001;

/// Sizes of the parts and age of the sketch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WTinyLfuParams {
    /// Share of memory of the window, 0 to 1; at least one page.
    pub window: f64,
    /// Sizes of probation and of the protected segment, as parts of the main part; not both 0.
    pub segments: [u16; 2],
    /// The sketch is halved after this many counted hits for each page of the main part, at least 1.
    pub sample: u32,
}

impl Default for WTinyLfuParams {
    fn default() -> WTinyLfuParams {
        WTinyLfuParams { window: 0.01, segments: [1, 4], sample: 32 }
    }
}

impl Parameters for WTinyLfuParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "window",
            default: "1%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "share of memory of the window (at least one page)",
        },
        Parameter {
            name: "segments",
            default: "1:4",
            values: "two whole numbers with a colon between them, not both 0",
            meaning: "sizes of probation and of the protected segment, as parts of the main part",
        },
        Parameter {
            name: "sample",
            default: "32",
            values: "a whole number from 1 to 1000000",
            meaning: "counted hits for each page of the main part after which all frequencies are halved",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let invalid = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "window" => self.window = parse_share(value).ok_or_else(invalid)?,
            "segments" => {
                let parts = value.split_once(':').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
                self.segments = parts.filter(|parts| *parts != [0, 0]).ok_or_else(invalid)?;
            }
            "sample" => {
                let sample = value.parse().ok().filter(|sample| (1..=1_000_000).contains(sample));
                self.sample = sample.ok_or_else(invalid)?;
            }
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    Window,
    Probation,
    Protected,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct WTinyLfu {
    params: WTinyLfuParams,
    slots: Vec<Slot<Place>>,
    window: List,
    probation: List,
    protected: List,
    main_limit: usize,
    probation_limit: usize,
    protected_limit: usize,
    sketch: Sketch,
    /// What the sketch hashes for each page id; without it the id.
    keys: Option<Arc<[u64]>>,
    /// Hits counted since the sketch was halved.
    counted: u64,
    counters: Counters,
}

impl Default for WTinyLfu {
    fn default() -> WTinyLfu {
        WTinyLfu::new(WTinyLfuParams::default())
    }
}

impl WTinyLfu {
    /// Empty lists.
    pub fn new(params: WTinyLfuParams) -> WTinyLfu {
        WTinyLfu {
            params,
            slots: Vec::new(),
            window: List::default(),
            probation: List::default(),
            protected: List::default(),
            main_limit: 0,
            probation_limit: 0,
            protected_limit: 0,
            sketch: Sketch::new(1, SKETCH_ERROR),
            keys: None,
            counted: 0,
            counters: Counters::default(),
        }
    }

    /// Hashes these keys, one a page id, instead of the ids: with the front-end's own page numbers the counts do not
    /// depend on how ids were given out. Ids beyond the keys are hashed themselves.
    pub fn with_keys(self, keys: Arc<[u64]>) -> WTinyLfu {
        WTinyLfu { keys: Some(keys), ..self }
    }

    #[inline]
    fn key(&self, page: PageId) -> u64 {
        let key = self.keys.as_ref().and_then(|keys| keys.get(page as usize).copied());
        key.unwrap_or(u64::from(page))
    }

    fn estimate(&self, page: PageId) -> u16 {
        self.sketch.estimate(self.key(page))
    }

    fn count(&mut self, page: PageId) {
        self.sketch.add(self.key(page));
    }

    fn main_len(&self) -> usize {
        self.probation.len() + self.protected.len()
    }

    /// Puts a page that is on no list into the first segment of the main part with room.
    fn enter_main(&mut self, page: PageId) {
        let (list, place) =
            if self.probation.len() >= self.probation_limit && self.protected.len() < self.protected_limit {
                (&mut self.protected, Place::Protected)
            } else {
                (&mut self.probation, Place::Probation)
            };
        list.push_head(&mut self.slots, page);
        self.slots[page as usize].state = place;
    }

    /// Moves a page from probation to protected. What overflows falls back, and out of memory where probation
    /// overflows too, as it can when the segments' sizes do not add up to the main part.
    fn promote<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        if self.protected_limit == 0 {
            self.probation.move_to_head(&mut self.slots, page);
            return;
        }
        self.probation.remove(&mut self.slots, page);
        self.protected.push_head(&mut self.slots, page);
        self.slots[page as usize].state = Place::Protected;
        while self.protected.len() > self.protected_limit {
            let Some(fallen) = self.protected.pop_tail(&mut self.slots) else { break };
            self.probation.push_head(&mut self.slots, fallen);
            self.slots[fallen as usize].state = Place::Probation;
            while self.probation.len() > self.probation_limit && self.evict_probation(memory) {}
        }
    }

    fn evict_probation<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.probation, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.slots[page as usize].state = Place::Nowhere;
        true
    }

    fn evict_main<M: Memory>(&mut self, memory: &mut M) -> bool {
        if self.evict_probation(memory) {
            return true;
        }
        let Some(page) = evict_oldest(&mut self.protected, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.slots[page as usize].state = Place::Nowhere;
        true
    }

    fn evict_window<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.window, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.slots[page as usize].state = Place::Nowhere;
        true
    }

    /// Lets pages from the window into the main part while it has room, then lets the next compete for a place.
    fn evict_one<M: Memory>(&mut self, memory: &mut M) -> bool {
        while let Some(candidate) = self.window.tail() {
            if self.main_len() < self.main_limit {
                self.window.remove(&mut self.slots, candidate);
                self.enter_main(candidate);
                self.count(candidate);
                continue;
            }
            let rival = self.probation.tail().or(self.protected.tail());
            let admitted = rival.is_some_and(|rival| self.estimate(candidate) > self.estimate(rival));
            let evicted = if admitted && self.evict_main(memory) {
                self.window.remove(&mut self.slots, candidate);
                self.enter_main(candidate);
                true
            } else {
                self.evict_window(memory) || self.evict_main(memory)
            };
            self.count(candidate);
            return evicted;
        }
        self.evict_main(memory)
    }

    /// Counts a hit in the main part.
    fn count_hit(&mut self, page: PageId) {
        self.count(page);
        self.counted += 1;
        if self.counted >= u64::from(self.params.sample) * self.main_limit as u64 {
            self.counted = 0;
            self.sketch.halve();
        }
    }
}

impl Policy for WTinyLfu {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.window.push_head(&mut self.slots, page);
        self.slots[page as usize].state = Place::Window;
        self.count(page);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        match self.slots[page as usize].state {
            Place::Nowhere => {}
            Place::Window => self.window.move_to_head(&mut self.slots, page),
            Place::Probation => {
                self.promote(page, memory);
                self.count_hit(page);
            }
            Place::Protected => {
                self.protected.move_to_head(&mut self.slots, page);
                self.count_hit(page);
            }
        }
    }

    fn freed(&mut self, page: PageId) {
        let list = match self.slots[page as usize].state {
            Place::Nowhere => return,
            Place::Window => &mut self.window,
            Place::Probation => &mut self.probation,
            Place::Protected => &mut self.protected,
        };
        list.remove(&mut self.slots, page);
        self.slots[page as usize].state = Place::Nowhere;
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        while freed < request.goal && self.evict_one(memory) {
            freed += 1;
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.slots.resize(pages.max(self.slots.len()), Slot::default());
    }

    /// The frequencies are forgotten if the sketch must change its size.
    fn set_capacity(&mut self, pages: usize) {
        let window = ((pages as f64 * self.params.window) as usize).max(1);
        self.main_limit = pages.saturating_sub(window);
        let [probation, protected] = self.params.segments.map(f64::from);
        let part = |part: f64| (part / (probation + protected) * self.main_limit as f64) as usize;
        (self.probation_limit, self.protected_limit) = (part(probation), part(protected));
        let sketch = Sketch::new(self.main_limit, SKETCH_ERROR);
        if sketch.len() != self.sketch.len() {
            self.sketch = sketch;
            self.counted = 0;
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<Place>>() + self.sketch.metadata_bytes()
    }
}
