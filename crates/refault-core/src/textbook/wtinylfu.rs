//! W-TinyLFU: an LRU window in front of a segmented LRU, and a sketch of frequencies that decides which pages may pass.
//!
//! New pages enter the window. What falls out of it competes with the main part's next victim: the one that was
//! counted more often stays, the newcomer only if it is strictly ahead. The main part is two LRU lists: a hit moves a
//! page from probation to protected, and what overflows there falls back to probation.
//!
//! What was counted for a page ends with it: a page that gets the id of one that was freed or forgotten is a new one.
//!
//! Two variants ([`WTinyLfuVariant`]), which differ in what is counted and how. In neither does the window adapt.
//!
//! Cost: 12 bytes per page id and 29 bytes per page of memory for the sketch; the paper's variant has 12.5 more for the
//! doorkeeper, at its default sample.
//! Source: Einziger, Friedman and Manes, *TinyLFU: A Highly Efficient Cache Admission Policy*, ACM ToS 13(4), 2017,
//! sections 3 and 4.

mod sketch;

use std::sync::Arc;

use super::evict_oldest;
use super::slot::Slot;
use crate::counters::Counters;
use crate::lists::linked::List;
use crate::memory::Memory;
use crate::page::PageId;
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};
use sketch::{Doorkeeper, Sketch};

/// False positive rate that the sketch is sized for, if as many pages were counted as the main part holds.
const SKETCH_ERROR: f64 = 0.001;

/// Which published form of the algorithm runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WTinyLfuVariant {
    /// The reference simulator's. Pages are counted when they come in, when they leave the window and when they are hit
    /// in the main part. They are not counted when they are hit in the window. All their counters grow, without bound
    /// (16 bits), and are halved after `sample` counted hits for each page of the main part. Until memory is full for
    /// the first time the window holds everything.
    #[default]
    LibCacheSim,
    /// The paper's. Each access is counted once. The first since the last halving goes to a Bloom filter, the
    /// doorkeeper; later ones to the smallest of the page's counters, up to `sample`. After `sample` accesses for each
    /// page of memory all counters are halved and the doorkeeper is emptied. The window never exceeds its share while
    /// the main part has room.
    Paper,
}

/// Variant, sizes of the parts and age of the sketch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WTinyLfuParams {
    /// Which published form.
    pub variant: WTinyLfuVariant,
    /// Share of memory of the window, 0 to 1; at least one page.
    pub window: f64,
    /// Sizes of probation and of the protected segment, as parts of the main part; not both 0.
    pub segments: [u16; 2],
    /// Counted accesses for each page after which all frequencies are halved, 1 to 100; `None` is the variant's own:
    /// 32, or for the paper's 10 (the paper leaves it open; its authors' library uses 10).
    pub sample: Option<u16>,
}

impl Default for WTinyLfuParams {
    fn default() -> WTinyLfuParams {
        WTinyLfuParams { variant: WTinyLfuVariant::LibCacheSim, window: 0.01, segments: [1, 4], sample: None }
    }
}

impl WTinyLfuParams {
    fn sample(&self) -> u16 {
        self.sample.unwrap_or(match self.variant {
            WTinyLfuVariant::LibCacheSim => 32,
            WTinyLfuVariant::Paper => 10,
        })
    }
}

impl Parameters for WTinyLfuParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "variant",
            default: "libcachesim",
            values: "libcachesim or paper",
            meaning: "libcachesim: hits in the window are not counted, there is no doorkeeper; paper: each access is \
                      counted once, the first behind a doorkeeper",
        },
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
            default: "32, or 10 with variant=paper",
            values: "a whole number from 1 to 100",
            meaning: "counted accesses for each page after which all frequencies are halved",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let invalid = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "variant" => {
                self.variant = match value {
                    "libcachesim" => WTinyLfuVariant::LibCacheSim,
                    "paper" => WTinyLfuVariant::Paper,
                    _ => return Err(invalid()),
                }
            }
            "window" => self.window = parse_share(value).ok_or_else(invalid)?,
            "segments" => {
                let parts = value.split_once(':').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
                self.segments = parts.filter(|parts| *parts != [0, 0]).ok_or_else(invalid)?;
            }
            "sample" => {
                let sample = value.parse().ok().filter(|sample| (1..=100).contains(sample));
                self.sample = Some(sample.ok_or_else(invalid)?);
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

/// What is kept of an id beside its links.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    place: Place,
    /// How often the id became another page's. Begins again when it is used up: what was counted then was halved since.
    reuses: u16,
}

/// When a page may be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Arrives,
    HitInWindow,
    HitInMain,
    LeavesWindow,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct WTinyLfu {
    params: WTinyLfuParams,
    slots: Vec<Slot<State>>,
    window: List,
    probation: List,
    protected: List,
    window_limit: usize,
    main_limit: usize,
    probation_limit: usize,
    protected_limit: usize,
    sketch: Sketch,
    /// Only the paper's variant asks it.
    doorkeeper: Doorkeeper,
    /// What the sketch hashes for each page id; without it the id.
    keys: Option<Arc<[u64]>>,
    /// Accesses counted since the sketch was halved, as far as they count towards the next halving.
    counted: u64,
    /// Counted accesses after which it is halved.
    sample: u64,
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
            window_limit: 1,
            main_limit: 0,
            probation_limit: 0,
            protected_limit: 0,
            sketch: Sketch::new(1, SKETCH_ERROR),
            doorkeeper: Doorkeeper::default(),
            keys: None,
            counted: 0,
            sample: 0,
            counters: Counters::default(),
        }
    }

    /// Hashes these keys, one per page id, instead of the ids: with the front-end's own page numbers the counts do not
    /// depend on how ids were given out. Ids beyond the keys are hashed themselves.
    pub fn with_keys(self, keys: Arc<[u64]>) -> WTinyLfu {
        WTinyLfu { keys: Some(keys), ..self }
    }

    /// What is counted for a page. One that has the id of a page before is not that page. What was counted for the
    /// other stays in the sketch under a key that no look-up asks for, until it is halved away.
    #[inline]
    fn key(&self, page: PageId) -> u64 {
        let key = self.keys.as_ref().and_then(|keys| keys.get(page as usize).copied());
        key.unwrap_or(u64::from(page)) ^ u64::from(self.slots[page as usize].state.reuses) << 48
    }

    fn estimate(&self, page: PageId) -> u16 {
        let key = self.key(page);
        let behind_door = self.params.variant == WTinyLfuVariant::Paper && self.doorkeeper.contains(key);
        self.sketch.estimate(key) + u16::from(behind_door)
    }

    fn count(&mut self, page: PageId, event: Event) {
        let key = self.key(page);
        let ages = match self.params.variant {
            WTinyLfuVariant::LibCacheSim => {
                if event != Event::HitInWindow {
                    self.sketch.add(key);
                }
                event == Event::HitInMain
            }
            WTinyLfuVariant::Paper => {
                let access = event != Event::LeavesWindow;
                if access && !self.doorkeeper.insert(key) {
                    self.sketch.add_minimal(key, self.params.sample());
                }
                access
            }
        };
        self.counted += u64::from(ages);
        if ages && self.counted >= self.sample {
            self.age();
        }
    }

    /// Makes the sketch fit memory, or all page ids if they are fewer. One in use that is up to twice as large does
    /// too: a memory that gives way little by little would forget all the time otherwise. If its size changes it
    /// forgets.
    fn size_sketch(&mut self) {
        let entries = self.main_limit.min(self.slots.len());
        let (wanted, _) = Sketch::sizes(entries, SKETCH_ERROR);
        let in_use = self.window.len() + self.probation.len() + self.protected.len() > 0;
        let most = if in_use { 2 * wanted } else { wanted };
        if !(wanted..=most).contains(&self.sketch.len()) {
            self.sketch = Sketch::new(entries, SKETCH_ERROR);
            if self.params.variant == WTinyLfuVariant::Paper {
                let most = usize::from(self.params.sample()) * self.slots.len();
                self.doorkeeper = Doorkeeper::new((self.sample as usize).min(most));
            }
            self.counted = 0;
        }
    }

    /// The past counts half from now on.
    fn age(&mut self) {
        self.sketch.halve();
        self.counted = match self.params.variant {
            WTinyLfuVariant::LibCacheSim => 0,
            WTinyLfuVariant::Paper => {
                self.doorkeeper.clear();
                self.counted / 2
            }
        };
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
        self.slots[page as usize].state.place = place;
    }

    /// Moves a page from probation to protected. What overflows falls back. Where probation overflows too, its oldest
    /// pages leave memory. It can overflow when the segments' sizes do not add up to the main part.
    fn promote<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        if self.protected_limit == 0 {
            self.probation.move_to_head(&mut self.slots, page);
            return;
        }
        self.probation.remove(&mut self.slots, page);
        self.protected.push_head(&mut self.slots, page);
        self.slots[page as usize].state.place = Place::Protected;
        while self.protected.len() > self.protected_limit {
            let Some(fallen) = self.protected.pop_tail(&mut self.slots) else { break };
            self.probation.push_head(&mut self.slots, fallen);
            self.slots[fallen as usize].state.place = Place::Probation;
            while self.probation.len() > self.probation_limit && self.evict_probation(memory) {}
        }
    }

    fn evict_probation<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.probation, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.slots[page as usize].state.place = Place::Nowhere;
        true
    }

    fn evict_main<M: Memory>(&mut self, memory: &mut M) -> bool {
        if self.evict_probation(memory) {
            return true;
        }
        let Some(page) = evict_oldest(&mut self.protected, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.slots[page as usize].state.place = Place::Nowhere;
        true
    }

    fn evict_window<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.window, &mut self.slots, memory, &mut self.counters) else {
            return false;
        };
        self.slots[page as usize].state.place = Place::Nowhere;
        true
    }

    /// Takes a page off its list.
    fn leave(&mut self, page: PageId) {
        let list = match self.slots[page as usize].state.place {
            Place::Nowhere => return,
            Place::Window => &mut self.window,
            Place::Probation => &mut self.probation,
            Place::Protected => &mut self.protected,
        };
        list.remove(&mut self.slots, page);
        self.slots[page as usize].state.place = Place::Nowhere;
    }

    /// Lets pages from the window into the main part while it has room, then lets the next compete for a place.
    fn evict_one<M: Memory>(&mut self, memory: &mut M) -> bool {
        while let Some(candidate) = self.window.tail() {
            if self.main_len() < self.main_limit {
                self.window.remove(&mut self.slots, candidate);
                self.enter_main(candidate);
                self.count(candidate, Event::LeavesWindow);
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
            self.count(candidate, Event::LeavesWindow);
            return evicted;
        }
        self.evict_main(memory)
    }
}

impl Policy for WTinyLfu {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.window.push_head(&mut self.slots, page);
        self.slots[page as usize].state.place = Place::Window;
        self.count(page, Event::Arrives);
        let keeps_share = self.params.variant == WTinyLfuVariant::Paper;
        while keeps_share && self.window.len() > self.window_limit && self.main_len() < self.main_limit {
            let Some(oldest) = self.window.pop_tail(&mut self.slots) else { break };
            self.enter_main(oldest);
        }
    }

    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        match self.slots[page as usize].state.place {
            Place::Nowhere => {}
            Place::Window => {
                self.window.move_to_head(&mut self.slots, page);
                self.count(page, Event::HitInWindow);
            }
            Place::Probation => {
                self.promote(page, memory);
                self.count(page, Event::HitInMain);
            }
            Place::Protected => {
                self.protected.move_to_head(&mut self.slots, page);
                self.count(page, Event::HitInMain);
            }
        }
    }

    fn freed(&mut self, page: PageId) {
        self.leave(page);
        self.forgotten(page);
    }

    fn forgotten(&mut self, page: PageId) {
        let reuses = &mut self.slots[page as usize].state.reuses;
        *reuses = reuses.wrapping_add(1);
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
        self.size_sketch();
    }

    /// The frequencies are forgotten if the sketch must change its size.
    fn set_capacity(&mut self, pages: usize) {
        self.window_limit = ((pages as f64 * self.params.window) as usize).max(1);
        self.main_limit = pages.saturating_sub(self.window_limit);
        let [probation, protected] = self.params.segments.map(f64::from);
        let part = |part: f64| (part / (probation + protected) * self.main_limit as f64) as usize;
        (self.probation_limit, self.protected_limit) = (part(probation), part(protected));
        let paper = self.params.variant == WTinyLfuVariant::Paper;
        let sampled = if paper { pages } else { self.main_limit };
        self.sample = u64::from(self.params.sample()) * sampled as u64;
        self.size_sketch();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<State>>()
            + self.sketch.metadata_bytes()
            + self.doorkeeper.metadata_bytes()
    }
}
