//! The agreement between readers without a lock and those who take pages away, under random schedules. This compiles
//! `src/engine/pins.rs` over shuttle's atomics. Readers, an evictor, a writer, a mover of pages to other frames, and a
//! reaper of orphans share two pages that fight for three frames.
//!
//! Checked: a reader never sees contents that are not its page's, or that change while it reads; frames are neither
//! lost nor given away twice.

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, Ordering};
}

#[allow(dead_code, reason = "the model uses a part")]
#[path = "../src/engine/pins.rs"]
mod pins;

use std::sync::Arc;

use pins::{FRAME, HIDDEN, MARKS, NOWHERE, Pins, UNREAD};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shuttle::thread;

/// What the engine's lock protects.
struct Engine {
    free: Vec<u32>,
    orphans: usize,
}

struct Cache {
    engine: Mutex<Engine>,
    pins: Pins,
    words: [AtomicU32; 2],
    /// Page and version, in two halves that a torn read would see differ.
    frames: [[AtomicU64; 2]; 3],
}

fn contents(page: usize, version: u64) -> u64 {
    (page as u64) << 32 | version
}

impl Cache {
    fn new() -> Cache {
        Cache {
            engine: Mutex::new(Engine { free: vec![0, 1, 2], orphans: 0 }),
            pins: Pins::new(3),
            words: [NOWHERE, NOWHERE].map(AtomicU32::new),
            frames: Default::default(),
        }
    }

    fn bury(&self, frame: u32) {
        let mut engine = self.engine.lock().unwrap();
        if self.pins.bury(frame) {
            engine.orphans -= 1;
            assert!(!engine.free.contains(&frame), "freed twice");
            engine.free.push(frame);
        }
    }

    fn fill(&self, frame: u32, page: usize, version: u64) {
        for half in &self.frames[frame as usize] {
            half.store(contents(page, version), Ordering::SeqCst);
        }
    }

    /// The page gets a frame with these contents, if it has none and there is one.
    fn bring_in(&self, page: usize, version: u64) {
        let mut engine = self.engine.lock().unwrap();
        if self.words[page].load(Ordering::SeqCst) == NOWHERE
            && let Some(frame) = engine.free.pop()
        {
            self.fill(frame, page, version);
            self.words[page].store(frame | UNREAD, Ordering::SeqCst);
        }
    }

    /// As `Pages::relocate`: the page's contents move to a free frame, unless a thread reads them.
    fn relocate(&self, page: usize) {
        let mut engine = self.engine.lock().unwrap();
        if self.words[page].load(Ordering::SeqCst) & HIDDEN != 0 {
            return;
        }
        let Some(to) = engine.free.pop() else { return };
        let Some(before) = self.pins.take(&self.words[page]) else { return engine.free.push(to) };
        let from = &self.frames[(before & FRAME) as usize];
        for (old, new) in from.iter().zip(&self.frames[to as usize]) {
            new.store(old.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        self.words[page].store(to | before & MARKS, Ordering::SeqCst);
        // The page that gets the frame next may write it at once.
        from.iter().for_each(|half| half.store(u64::MAX, Ordering::SeqCst));
        engine.free.push(before & FRAME);
    }

    fn evict(&self, page: usize) {
        let mut engine = self.engine.lock().unwrap();
        let word = self.words[page].load(Ordering::SeqCst);
        if word & HIDDEN == 0 && self.pins.take(&self.words[page]).is_some() {
            engine.free.push(word & FRAME);
        }
    }

    /// The page's contents change: in place if no thread reads them, otherwise the frame is left to its readers.
    fn overwrite(&self, page: usize, version: u64) {
        let mut engine = self.engine.lock().unwrap();
        let word = self.words[page].load(Ordering::SeqCst);
        if word & HIDDEN != 0 {
            return;
        }
        let frame = word & FRAME;
        self.words[page].fetch_or(HIDDEN, Ordering::SeqCst);
        if self.pins.count(frame) == 0 {
            self.fill(frame, page, version);
            self.words[page].fetch_and(!HIDDEN, Ordering::SeqCst);
            return;
        }
        self.words[page].store(NOWHERE, Ordering::SeqCst);
        engine.orphans += 1;
        let free = self.pins.orphan(frame);
        drop(engine);
        if free {
            self.bury(frame);
        }
    }

    fn read(&self, page: usize) {
        let Some(word) = self.pins.look(&self.words[page], |frame| self.bury(frame)) else { return };
        let frame = word & FRAME;
        // As `take_mark` does.
        let _ = self.words[page].fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            (word != NOWHERE && word & MARKS != 0).then_some(word & !MARKS)
        });
        let [first, second] = &self.frames[frame as usize];
        let seen = [first, second, first].map(|half| half.load(Ordering::SeqCst));
        assert!(seen.iter().all(|half| *half == seen[0]), "a pinned frame has changed");
        assert_eq!((seen[0] >> 32) as usize, page, "another page's contents");
        if self.pins.unpin(frame) {
            self.bury(frame);
        }
    }
}

fn scenario() {
    let cache = Arc::new(Cache::new());
    cache.bring_in(0, 1);
    let run = |work: fn(&Cache)| {
        let cache = cache.clone();
        thread::spawn(move || work(&cache))
    };
    let threads = [
        run(|cache| (0..3).for_each(|_| cache.read(0))),
        run(|cache| (0..3).for_each(|turn| cache.read(turn % 2))),
        run(|cache| {
            for version in 2..4 {
                cache.overwrite(0, version);
                cache.bring_in(1, version);
                cache.bring_in(0, version);
            }
        }),
        run(|cache| {
            cache.evict(0);
            cache.bring_in(1, 9);
            cache.evict(1);
            cache.bring_in(0, 9);
        }),
        run(|cache| (0..4).for_each(|turn| cache.relocate(turn % 2))),
    ];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let engine = cache.engine.lock().unwrap();
    let mapped = cache.words.iter().filter(|word| word.load(Ordering::SeqCst) & HIDDEN == 0).count();
    assert_eq!((engine.free.len() + mapped, engine.orphans), (3, 0), "every frame is free or a page's");
    assert!((0..3).all(|frame| cache.pins.count(frame) == 0));
}

#[test]
fn readers_see_their_page_whole_and_no_frame_is_lost() {
    shuttle::check_random(scenario, 5000);
    shuttle::check_pct(scenario, 5000, 3);
}
