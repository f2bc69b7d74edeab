//! When a group is idle, what is taken from it then, and when it has woken. This decides only; [`Control`](super::Control)
//! acts.
//!
//! A group is idle for as long as each window showed at most a share of its charge accessed. It is left as it is until that has
//! lasted, then the kernel takes at once what is above the share. Parking sets no limit and lifts the one that steps
//! had set, so nothing holds up a group that wakes.
//!
//! Invariants: a group keeps what its last two windows asked for. A group is parked only at the end of a window that was idle.
//! Of memory that can go, as much as was accessed stays: which pages those are is not known. After it has woken, steps wait
//! for the end of two windows, of which the first may have begun before.

use std::time::Duration;

use crate::host::{Room, Row};

/// Less than this is not worth an eviction: the kernel charges pages in batches for each processor.
const MIN_GIVEN_BYTES: u64 = 4 << 20;
/// A group that has taken back this share of what it gave has woken.
const TAKEN_BACK: f64 = 0.25;
/// Windows that end before a group that has woken is treated as others are.
const AFTER_WAKING: u32 = 2;

/// Which groups are parked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// For how long a group is idle before.
    pub idle: Duration,
    /// The share of its charge, 0 to 1, that an idle group accesses at most, and that it keeps.
    pub share: f64,
}

/// What is known of a group at a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub usage_bytes: u64,
    /// In the latest window, its error included.
    pub accessed_bytes: u64,
    pub window_seconds: f64,
    pub is_new_window: bool,
    /// What the last two windows ask for, and what is charged anyway.
    pub floor_bytes: u64,
    /// What the kernel can evict.
    pub movable_bytes: u64,
    /// What swap has no room for; the floor holds it.
    pub no_place_bytes: u64,
    /// It waits for memory, or brings back pages.
    pub wants_more: bool,
}

/// What is to be done with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// What is done with groups that are not idle.
    Step,
    Leave,
    /// Take this away, which may be nothing; `stays_bytes` above the share cannot go.
    Park {
        bytes: u64,
        stays_bytes: u64,
    },
    Wake,
}

/// A group, as parking sees it.
#[derive(Debug, Default)]
pub(super) struct Parking {
    idle_seconds: f64,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Awake,
    /// This many windows end before steps go on.
    Woken(u32),
    Parked {
        from_bytes: u64,
        to_bytes: u64,
    },
}

impl Seen {
    /// Where anonymous and shared memory can go is asked of the host and of the group.
    pub(super) fn of(row: &Row, window_seconds: f64, is_new_window: bool, floor_bytes: u64, wants_more: bool) -> Seen {
        let sets = row.working_sets.iter().flatten();
        let stat = &row.figures.stat;
        let room = Room::of_host().of_group(&row.directory);
        let to_swap = stat.swap_backed_bytes().min(room);
        Seen {
            usage_bytes: row.figures.usage_bytes,
            accessed_bytes: sets.map(|set| set.bytes.saturating_add(set.error_bytes)).max().unwrap_or(u64::MAX),
            window_seconds,
            is_new_window,
            floor_bytes,
            movable_bytes: stat.file_bytes.saturating_sub(stat.unevictable_bytes).saturating_add(to_swap),
            no_place_bytes: stat.swap_backed_bytes() - to_swap,
            wants_more,
        }
    }
}

impl Parking {
    /// For how long the group has been idle, in seconds, up to the end of its last window.
    pub(super) fn idle_seconds(&self) -> f64 {
        self.idle_seconds
    }

    /// Whether it is parked or has just woken, and has no limit of ours.
    pub(super) fn is_lifted(&self) -> bool {
        self.state != State::Awake
    }

    /// It was parked: what was charged to it before, and is now.
    pub(super) fn parked(&mut self, from_bytes: u64, to_bytes: u64) {
        self.state = State::Parked { from_bytes, to_bytes };
    }

    pub(super) fn decide(&mut self, rule: &Rule, seen: &Seen) -> Decision {
        let whole = match self.state {
            State::Parked { from_bytes, .. } => from_bytes,
            _ => seen.usage_bytes,
        };
        let share = |bytes: u64| (bytes as f64 * rule.share) as u64;
        let is_idle = seen.accessed_bytes <= share(whole);
        if seen.wants_more || !is_idle {
            self.idle_seconds = 0.0;
        } else if seen.is_new_window {
            self.idle_seconds += seen.window_seconds;
        }
        match &mut self.state {
            State::Parked { from_bytes, to_bytes } => {
                let given = from_bytes.saturating_sub(*to_bytes) as f64 * TAKEN_BACK;
                let taken = seen.usage_bytes.saturating_sub(*to_bytes);
                if seen.wants_more || !is_idle || taken > (given as u64).max(MIN_GIVEN_BYTES) {
                    (self.state, self.idle_seconds) = (State::Woken(AFTER_WAKING), 0.0);
                    return Decision::Wake;
                }
                return Decision::Leave;
            }
            State::Woken(windows) => {
                *windows -= u32::from(seen.is_new_window);
                if *windows > 0 {
                    return Decision::Leave;
                }
                self.state = State::Awake;
            }
            State::Awake => {}
        }
        if self.idle_seconds == 0.0 {
            return Decision::Step;
        }
        if !seen.is_new_window || self.idle_seconds < rule.idle.as_secs_f64() {
            return Decision::Leave;
        }
        let kept = share(seen.usage_bytes);
        let wanted = seen.usage_bytes.saturating_sub(kept.max(seen.floor_bytes));
        let has_no_place = seen.floor_bytes.saturating_sub(kept).min(seen.no_place_bytes);
        if wanted.saturating_add(has_no_place) < MIN_GIVEN_BYTES {
            return Decision::Leave;
        }
        let most = wanted.min(seen.movable_bytes.saturating_sub(seen.accessed_bytes));
        let bytes = if most < MIN_GIVEN_BYTES { 0 } else { most };
        Decision::Park { bytes, stays_bytes: (wanted - bytes).saturating_add(has_no_place) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const RULE: Rule = Rule { idle: Duration::from_secs(1200), share: 0.1 };

    /// The end of a window of ten minutes: MiB that are charged, and accessed.
    fn window(usage: u64, accessed: u64) -> Seen {
        let (usage_bytes, accessed_bytes) = (usage * MIB, accessed * MIB);
        Seen {
            usage_bytes,
            accessed_bytes,
            window_seconds: 600.0,
            is_new_window: true,
            floor_bytes: accessed_bytes + 4 * MIB,
            movable_bytes: usage_bytes,
            no_place_bytes: 0,
            wants_more: false,
        }
    }

    /// A second within one.
    fn within(usage: u64, accessed: u64) -> Seen {
        Seen { is_new_window: false, ..window(usage, accessed) }
    }

    fn park(bytes: u64, stays: u64) -> Decision {
        Decision::Park { bytes: bytes * MIB, stays_bytes: stays * MIB }
    }

    #[test]
    fn groups_are_parked_once_they_were_idle_for_long_and_wake_at_once() {
        use Decision::{Leave, Step, Wake};
        let waits = Seen { wants_more: true, ..within(1000, 50) };
        let no_swap = |movable: u64| Seen { movable_bytes: movable * MIB, ..window(1000, 50) };
        let kernel_memory = Seen { floor_bytes: 700 * MIB, ..window(1000, 50) };
        // 600 MiB are no file's, there is no swap, and so the floor holds them.
        let has_no_place = Seen { floor_bytes: 604 << 20, no_place_bytes: 600 << 20, ..no_swap(400) };
        let only = Seen { floor_bytes: 1004 << 20, no_place_bytes: 1000 << 20, ..no_swap(0) };
        let idle = window(1000, 50);
        let cases: &[(&str, &[(Seen, Decision)])] = &[
            ("busy", &[(window(1000, 101), Step), (within(1000, 101), Step), (window(1000, 900), Step)]),
            ("two windows last for 20 minutes", &[(idle, Leave), (within(1000, 50), Leave), (idle, park(900, 0))]),
            ("never within a window", &[(idle, Leave), (within(1000, 0), Leave), (within(1000, 0), Leave)]),
            ("a busy window between", &[(idle, Leave), (window(1000, 300), Step), (idle, Leave), (idle, park(900, 0))]),
            ("an idle one that waits has its limit raised", &[(idle, Leave), (waits, Step), (idle, Leave)]),
            ("not below what windows ask for", &[(idle, Leave), (kernel_memory, park(300, 0))]),
            ("it is at its share already", &[(window(30, 2), Leave), (window(7, 0), Leave), (window(7, 0), Leave)]),
            ("what was accessed may be what can go", &[(idle, Leave), (no_swap(200), park(150, 750))]),
            ("what has no place is told", &[(idle, Leave), (has_no_place, park(350, 550))]),
            ("it is told also if nothing else is there", &[(idle, Leave), (only, park(0, 904)), (only, Leave)]),
            ("nothing can go", &[(idle, Leave), (no_swap(53), park(0, 900)), (no_swap(53), Leave)]),
            ("woken by a wait", &[(idle, Leave), (idle, park(900, 0)), (within(100, 50), Leave), (waits, Wake)]),
            ("woken by a window", &[(idle, Leave), (idle, park(900, 0)), (window(110, 101), Wake)]),
            (
                "woken by its charge",
                &[(idle, Leave), (idle, park(900, 0)), (within(325, 50), Leave), (within(326, 50), Wake)],
            ),
            (
                "steps wait for two windows after that, and parking for its time",
                &[
                    (idle, Leave),
                    (idle, park(900, 0)),
                    (waits, Wake),
                    (within(1000, 50), Leave),
                    (window(1000, 900), Leave),
                    (within(1000, 900), Leave),
                    (window(1000, 900), Step),
                    (idle, Leave),
                    (idle, park(900, 0)),
                ],
            ),
        ];
        for (name, steps) in cases {
            let mut group = Parking::default();
            for (at, (seen, expected)) in steps.iter().enumerate() {
                let decision = group.decide(&RULE, seen);
                assert_eq!(decision, *expected, "{name}: step {at}");
                if let Decision::Park { bytes, .. } = decision {
                    group.parked(seen.usage_bytes, seen.usage_bytes - bytes);
                }
            }
        }
    }

    #[test]
    fn no_group_is_brought_below_what_it_accessed() {
        for usage in (0..2000).step_by(37) {
            for accessed in (0..usage / 5 + 1).step_by(3) {
                for movable in [0, usage / 3, usage] {
                    let seen = Seen { movable_bytes: movable * MIB, ..window(usage, accessed) };
                    let rule = Rule { idle: Duration::from_secs(600), share: 0.1 };
                    if let Decision::Park { bytes, .. } = Parking::default().decide(&rule, &seen) {
                        assert!(seen.usage_bytes - bytes >= seen.floor_bytes, "{seen:?}");
                        assert!(seen.movable_bytes - bytes >= seen.accessed_bytes.min(seen.movable_bytes), "{seen:?}");
                    }
                }
            }
        }
    }
}
