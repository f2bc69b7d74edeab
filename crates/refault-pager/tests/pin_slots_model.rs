//! PinSlots under random schedules: this compiles `src/pin_slots.rs` and `src/state.rs` over shuttle's atomics and runs
//! pins against evictors of one page.
//!
//! Checked: the page is there for as long as a holder uses it, and slots are given back.

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
}

#[allow(dead_code, reason = "the model uses a part")]
#[path = "../src/pin_slots.rs"]
mod pin_slots;
#[allow(dead_code, reason = "the model uses a part")]
#[path = "../src/state.rs"]
mod state;

use std::sync::Arc;

use pin_slots::PinSlots;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use state::{PageWord, State};

const PAGE: u32 = 7;

struct Machine {
    pin_slots: PinSlots,
    word: PageWord,
    /// Whether the page is in memory.
    present: AtomicBool,
    slot: u64,
}

impl Machine {
    fn new(slots: usize) -> Machine {
        Machine { pin_slots: PinSlots::new(slots), word: PageWord::new(), present: AtomicBool::new(false), slot: 5 }
    }

    fn bring_in(&self) {
        loop {
            let seen = self.word.load();
            match seen.state() {
                State::Resident => return,
                State::Fresh | State::Stored => {
                    if self.word.begin(seen, State::Filling) {
                        assert!(!self.present.swap(true, Ordering::SeqCst));
                        let _ = self.word.finish(State::Resident, 0, false);
                    }
                }
                _ => thread::yield_now(),
            }
        }
    }

    /// A system call: it needs the page all the time, and waits for nothing. True if there was a slot.
    fn call(&self, thread: usize) -> bool {
        let Some(slot) = self.pin_slots.take(thread, 100_000) else { return false };
        slot.put(2, PAGE - 1, PAGE + 1);
        self.bring_in();
        for _ in 0..3 {
            assert!(self.present.load(Ordering::SeqCst), "EFAULT");
        }
        slot.give_back();
        true
    }

    fn evict(&self) {
        let seen = self.word.load();
        if seen.state() != State::Resident || !self.word.begin(seen, State::Evicting) {
            return;
        }
        if !self.pin_slots.never_used() && self.pin_slots.has(PAGE) {
            let _ = self.word.finish(State::Resident, 0, false);
        } else {
            self.present.store(false, Ordering::SeqCst);
            let _ = self.word.finish(State::Stored, self.slot, false);
        }
    }
}

#[test]
fn a_held_page_is_there() {
    let schedule = || {
        let machine = Arc::new(Machine::new(2));
        let holders = [1, 2].map(|holder| {
            let machine = machine.clone();
            thread::spawn(move || (0..2).for_each(|_| assert!(machine.call(holder))))
        });
        let evictor = {
            let machine = machine.clone();
            thread::spawn(move || (0..4).for_each(|_| machine.evict()))
        };
        for thread in holders.into_iter().chain([evictor]) {
            thread.join().unwrap();
        }
        // No thread holds it any more.
        machine.evict();
        assert!(!machine.present.load(Ordering::SeqCst));
    };
    shuttle::check_random(schedule, 5000);
    shuttle::check_pct(schedule, 5000, 3);
}

#[test]
fn a_frame_that_was_left_by_a_jump_holds_nothing() {
    shuttle::check_random(
        || {
            let machine = Machine::new(3);
            // A call that was left, one in a frame above it that waits, and another thread's.
            machine.pin_slots.take(1, 80_000).expect("room").put(0, PAGE, PAGE + 1);
            machine.pin_slots.take(1, 120_000).expect("room").put(0, 1, 2);
            machine.pin_slots.take(2, 90_000).expect("room").put(0, 3, 4);
            assert!(!machine.pin_slots.has(PAGE) && machine.pin_slots.has(1) && machine.pin_slots.has(3));
            assert!(machine.call(1) && machine.pin_slots.has(1), "a call from deeper frames leaves the one that waits");
        },
        10,
    );
}
