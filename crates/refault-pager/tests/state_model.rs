//! The state word under random schedules: this compiles `src/state.rs` over shuttle's atomics. It runs the protocols of
//! the fault path, the evictor and discard over a model of what the kernel does to one page.
//!
//! Checked: no write is lost, no reader sees anything but the last write, and no fault waits for ever (shuttle reports
//! the deadlock).

mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
}

#[allow(dead_code, reason = "the model uses a part")]
#[path = "../src/state.rs"]
mod state;

use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use state::{PageWord, State};

/// One page as the kernel has it: contents if it is there, write protection, a count of wakes.
#[derive(Default)]
struct Kernel {
    page: Option<u64>,
    protected: bool,
    wakes: u64,
}

#[derive(Default)]
struct Machine {
    kernel: Mutex<Kernel>,
    woken: Condvar,
    word: Word,
    /// The store: slot → contents, slot numbers never repeat.
    store: Mutex<Vec<Option<u64>>>,
    keep: bool,
}

struct Word(PageWord);

impl Default for Word {
    fn default() -> Word {
        Word(PageWord::new())
    }
}

impl Machine {
    fn wake(&self) {
        self.kernel.lock().unwrap().wakes += 1;
        self.woken.notify_all();
    }

    /// A program's access: retried until no fault. The fault is handled in this thread, as any handler would; a fault
    /// on an owned page sleeps until a wake that comes after the fault was taken.
    fn access(&self, write: Option<u64>) -> u64 {
        loop {
            let seen_wakes = {
                let mut kernel = self.kernel.lock().unwrap();
                match (kernel.page, write) {
                    (Some(value), None) => return value,
                    (Some(_), Some(value)) if !kernel.protected => {
                        kernel.page = Some(value);
                        return value;
                    }
                    _ => kernel.wakes,
                }
            };
            if !self.fault(write.is_some()) {
                let mut kernel = self.kernel.lock().unwrap();
                while kernel.wakes == seen_wakes {
                    kernel = self.woken.wait(kernel).unwrap();
                }
            }
        }
    }

    /// The handler's part; false: another thread will wake the waiter.
    fn fault(&self, write: bool) -> bool {
        let word = &self.word.0;
        loop {
            let seen = word.load();
            match seen.state() {
                State::Fresh | State::Stored => {
                    if !word.begin(seen, State::Filling) {
                        continue;
                    }
                    let (value, kept) = match seen.state() {
                        State::Fresh => (0, false),
                        _ => (
                            self.store.lock().unwrap()[seen.slot() as usize].expect("a slot that is in use"),
                            self.keep && !write,
                        ),
                    };
                    {
                        let mut kernel = self.kernel.lock().unwrap();
                        assert!(kernel.page.is_none(), "filled a page that is there");
                        kernel.page = Some(value);
                        kernel.protected = kept;
                    }
                    self.wake();
                    if seen.state() == State::Stored && !kept {
                        self.store.lock().unwrap()[seen.slot() as usize] = None;
                    }
                    if word.finish(State::Resident, if kept { seen.slot() } else { 0 }, kept) {
                        self.wake();
                    }
                    return true;
                }
                State::Filling | State::Evicting | State::Moving => {
                    if word.mark_waited(seen) {
                        return false;
                    }
                }
                State::Resident if write && seen.kept() => {
                    if !word.begin(seen, State::Moving) {
                        continue;
                    }
                    self.store.lock().unwrap()[seen.slot() as usize] = None;
                    self.kernel.lock().unwrap().protected = false;
                    let _ = word.finish(State::Resident, 0, false);
                    self.wake();
                    return true;
                }
                State::Resident | State::Lost => {
                    self.wake();
                    return true;
                }
            }
        }
    }

    /// A page that is equal to its slot gives the slot up without being written.
    fn give_up(&self) {
        let word = &self.word.0;
        let seen = word.load();
        if seen.state() != State::Resident || !seen.kept() || !word.begin(seen, State::Moving) {
            return;
        }
        self.store.lock().unwrap()[seen.slot() as usize] = None;
        self.kernel.lock().unwrap().protected = false;
        if word.finish(State::Resident, 0, false) {
            self.wake();
        }
    }

    fn evict(&self, store_fails: bool) {
        let word = &self.word.0;
        let seen = word.load();
        if seen.state() != State::Resident || !word.begin(seen, State::Evicting) {
            return;
        }
        self.kernel.lock().unwrap().protected = true;
        let slot = if seen.kept() {
            Some(seen.slot())
        } else if store_fails {
            None
        } else {
            let value = self.kernel.lock().unwrap().page.expect("a resident page is there");
            thread::yield_now();
            let mut store = self.store.lock().unwrap();
            store.push(Some(value));
            Some(store.len() as u64 - 1)
        };
        {
            let mut kernel = self.kernel.lock().unwrap();
            if slot.is_some() {
                kernel.page = None;
            }
        }
        self.kernel.lock().unwrap().protected = false;
        let waited = match slot {
            Some(slot) => word.finish(State::Stored, slot, false),
            None => word.finish(State::Resident, 0, false),
        };
        if waited {
            self.wake();
        }
    }
}

fn scenario(keep: bool, store_fails: bool) {
    let machine = Arc::new(Machine { keep, ..Machine::default() });
    machine.access(Some(1));
    let evictors: Vec<_> = (0..2)
        .map(|_| {
            let machine = machine.clone();
            thread::spawn(move || {
                machine.evict(store_fails);
                machine.give_up();
                machine.evict(false);
            })
        })
        .collect();
    let reader = {
        let machine = machine.clone();
        thread::spawn(move || {
            let mut last = 0;
            for _ in 0..3 {
                let value = machine.access(None);
                assert!(value >= last, "an old page came back");
                last = value;
            }
        })
    };
    for value in 2..5 {
        machine.access(Some(value));
        assert_eq!(machine.access(None), value, "a write was lost");
    }
    reader.join().unwrap();
    evictors.into_iter().for_each(|evictor| evictor.join().unwrap());
    assert_eq!(machine.access(None), 4);
    let stored = machine.store.lock().unwrap().iter().flatten().count();
    let word = machine.word.0.load();
    assert_eq!(stored, usize::from(word.state() == State::Stored || word.kept()), "a slot leaked");
}

#[test]
fn no_write_is_lost_and_nobody_waits_for_ever() {
    for keep in [false, true] {
        for store_fails in [false, true] {
            shuttle::check_random(move || scenario(keep, store_fails), 3000);
            shuttle::check_pct(move || scenario(keep, store_fails), 1000, 3);
        }
    }
}
