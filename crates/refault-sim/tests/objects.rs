//! Objects of any size beside slow models: every policy that holds objects evicts the same ones, byte for byte.

use proptest::prelude::*;
use refault_core::policy::PolicySpec;
use refault_core::policy::registry::{Fact, POLICIES};
use refault_sim::objects::ObjectReplay;

const OBJECTS: u32 = 40;
const MAX_BYTES: u64 = 20_000;

/// An object in memory, as the slow models keep it.
#[derive(Clone, Debug)]
struct Held {
    object: u32,
    bytes: u64,
    came: u64,
    last: u64,
    before: u64,
    accesses: u64,
    age: f64,
    marked: bool,
}

impl Held {
    /// What GDSF gives it: the cache's age at its last access, and accesses by size in pages.
    fn worth(&self) -> f64 {
        self.age + self.accesses as f64 / f64::from((self.bytes.max(1) as f64 / 4096.0) as f32)
    }
}

/// Objects in the order in which they came, and which of them goes.
struct Slow {
    policy: &'static str,
    limit: u64,
    held: Vec<Held>,
    /// Evicted times of the last access, for LRU-2.
    history: std::collections::HashMap<u32, u64>,
    now: u64,
    age: f64,
    hand: usize,
}

impl Slow {
    fn victim(&mut self) -> usize {
        let least = |key: &dyn Fn(&Held) -> (f64, u64)| {
            let of = |at: &usize| key(&self.held[*at]);
            (0..self.held.len()).min_by(|a, b| of(a).partial_cmp(&of(b)).expect("numbers")).expect("something is held")
        };
        match self.policy {
            "fifo" => 0,
            "lru" => least(&|held| (held.last as f64, 0)),
            "lfu" => least(&|held| (held.accesses as f64, held.last)),
            "lfuda" => least(&|held| (held.age + held.accesses as f64, held.last)),
            "gdsf" => least(&|held| (held.worth(), held.last)),
            "lru-k" => least(&|held| (held.before as f64, held.last)),
            // A marked object goes round once more.
            "clock" => loop {
                if !std::mem::take(&mut self.held[0].marked) {
                    break 0;
                }
                let held = self.held.remove(0);
                self.held.push(held);
            },
            // The hand moves from the oldest on and leaves marked objects where they are.
            "sieve" => loop {
                if self.hand >= self.held.len() {
                    self.hand = 0;
                }
                if !std::mem::take(&mut self.held[self.hand].marked) {
                    break self.hand;
                }
                self.hand += 1;
            },
            // All are looked at: fewer are held than are drawn.
            "hyperbolic" => {
                let room = |held: &Held| u128::from(self.now - held.came) * u128::from(held.bytes.max(1));
                let is_worse = |a: &Held, b: &Held| u128::from(a.accesses) * room(b) < u128::from(b.accesses) * room(a);
                (1..self.held.len())
                    .fold(0, |worst, at| if is_worse(&self.held[at], &self.held[worst]) { at } else { worst })
            }
            other => panic!("no model of {other}"),
        }
    }

    fn access(&mut self, object: u32, bytes: u64) -> bool {
        let mut found = self.held.iter().position(|held| held.object == object);
        // One that has grown is another one.
        if let Some(at) = found.filter(|at| self.held[*at].bytes < bytes) {
            if self.policy == "hyperbolic" {
                self.held.swap_remove(at);
            } else {
                self.held.remove(at);
            }
            self.hand -= usize::from(at < self.hand);
            self.history.remove(&object);
            found = None;
        }
        if found.is_none() && bytes > self.limit {
            return false;
        }
        self.now += 1;
        if let Some(held) = found.map(|at| &mut self.held[at]) {
            (held.before, held.last) = (held.last, self.now);
            held.accesses += 1;
            held.age = self.age;
            held.marked = true;
            return true;
        }
        let new = Held {
            object,
            bytes,
            came: self.now,
            last: self.now,
            before: self.history.get(&object).copied().unwrap_or(0),
            accesses: 1,
            age: self.age,
            marked: false,
        };
        // Those that would go if it were among them: if it is, it stays out and none goes.
        if self.policy == "gdsf" {
            let mut all = self.held.clone();
            all.push(new.clone());
            all.sort_by(|a, b| (a.worth(), a.last).partial_cmp(&(b.worth(), b.last)).expect("numbers"));
            let mut used: u64 = all.iter().map(|held| held.bytes).sum();
            for held in all {
                if used <= self.limit {
                    break;
                }
                if held.last == self.now {
                    return false;
                }
                used -= held.bytes;
            }
        }
        while self.held.iter().map(|held| held.bytes).sum::<u64>() + bytes > self.limit {
            let at = self.victim();
            // The order that draws are made in.
            let gone = if self.policy == "hyperbolic" { self.held.swap_remove(at) } else { self.held.remove(at) };
            if self.hand >= self.held.len() {
                self.hand = 0;
            }
            self.history.insert(gone.object, gone.last);
            self.age = match self.policy {
                "gdsf" => gone.worth(),
                "lfuda" => gone.age + gone.accesses as f64,
                _ => 0.0,
            };
        }
        self.held.push(Held { age: self.age, ..new });
        false
    }
}

fn replay(policy: &str, limit: u64) -> ObjectReplay {
    let spec = PolicySpec::parse(policy).expect("a policy");
    ObjectReplay::new(&spec, OBJECTS as usize, limit).expect("it holds objects")
}

/// Policies that hold objects, but for the one that draws at random whatever is held.
fn modelled() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().filter(|entry| entry.is(Fact::Objects) && entry.name != "lhd").map(|entry| entry.name)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Sizes change from access to access too, as they do in traces.
    #[test]
    fn each_policy_is_its_slow_model(
        steps in prop::collection::vec((0..OBJECTS, 0..MAX_BYTES), 1..600),
        limit in 1..100_000u64
    ) {
        for policy in modelled() {
            let mut fast = replay(policy, limit);
            let mut slow =
                Slow { policy, limit, held: Vec::new(), history: Default::default(), now: 0, age: 0.0, hand: 0 };
            let (mut misses, mut missed, mut all) = (0, 0, 0);
            for (at, (object, bytes)) in steps.iter().enumerate() {
                let hit = slow.access(*object, *bytes);
                prop_assert_eq!(fast.access(*object, *bytes), hit, "{} at {}", policy, at);
                all += bytes;
                misses += u64::from(!hit);
                missed += if hit { 0 } else { *bytes };
                let held = slow.held.iter().map(|held| held.bytes).sum::<u64>();
                prop_assert_eq!(fast.bytes_held(), held, "{} at {}", policy, at);
                prop_assert!(fast.bytes_held() <= limit);
            }
            let outcome = fast.outcome();
            prop_assert_eq!((outcome.misses, fast.bytes_missed(), fast.bytes()), (misses, missed, all));
            prop_assert_eq!(outcome.resident, slow.held.len());
        }
    }

    /// LHD draws whatever is held: the model of its choices is that of pages, beside the core's.
    #[test]
    fn lhd_holds_its_limit(steps in prop::collection::vec((0..OBJECTS, 0..MAX_BYTES), 1..600), limit in 1..100_000u64) {
        let mut fast = replay("lhd{period=20,ages=50}", limit);
        for (object, bytes) in steps {
            fast.access(object, bytes);
            prop_assert!(fast.bytes_held() <= limit);
        }
    }
}

/// Of objects asked for alike, the policies that know sizes keep the small ones, and LRU does not.
#[test]
fn policies_that_know_sizes_miss_fewer_objects() {
    let misses = |policy: &str| {
        let mut replay = replay(policy, 64 << 10);
        let mut random = refault_core::monitor::Random::new(3);
        for _ in 0..200_000 {
            let object = random.within(0, u64::from(OBJECTS)) as u32;
            replay.access(object, if object < 4 { 20_000 } else { 2_000 });
        }
        replay.outcome().misses
    };
    let lru = misses("lru");
    for policy in ["gdsf", "hyperbolic", "lhd{period=5000}"] {
        assert!(misses(policy) * 10 < lru * 8, "{policy}: {} of LRU's {lru}", misses(policy));
    }
}
