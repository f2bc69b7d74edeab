//! Which windows are measured when.
//!
//! A round has windows of ascending lengths. A length is in it once the host was looked at for that long, and then if
//! it was not measured within its own length: so windows of an hour do not keep those of a minute from being measured
//! for more than half of the time. After a round comes a rest, until all looks of the round, and the reports meanwhile,
//! have taken their share of a processor.

use std::time::{Duration, Instant};

/// Of a processor's time, what looks may take.
pub const MAX_SHARE: f64 = 0.01;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A round begins.
    Begin,
    /// The window of this age ends.
    End(usize),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rounds {
    ages: Vec<Duration>,
    at_once: bool,
    started: Instant,
    /// When each length was measured last.
    measured: Vec<Option<Instant>>,
    /// How many lengths this round has; 0: a rest.
    count: usize,
    at: usize,
    window: Instant,
    round: Instant,
    spent: Duration,
    rest: Instant,
    done: u64,
}

impl Rounds {
    pub(super) fn new(ages: Vec<Duration>) -> Rounds {
        let now = Instant::now();
        let measured = vec![None; ages.len()];
        Rounds {
            ages,
            at_once: false,
            started: now,
            measured,
            count: 0,
            at: 0,
            window: now,
            round: now,
            spent: Duration::ZERO,
            rest: now,
            done: 0,
        }
    }

    pub(super) fn all_at_once(&mut self) {
        self.at_once = true;
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn due(&self) -> Instant {
        if self.count == 0 { self.rest } else { self.window + self.ages[self.at] }
    }

    pub(super) fn next(&self) -> Next {
        if self.count == 0 { Next::Begin } else { Next::End(self.at) }
    }

    /// A window began: the first of a round, or the next one.
    pub(super) fn begun(&mut self, now: Instant) {
        self.window = now;
        if self.count == 0 {
            (self.count, self.at, self.round) = (self.windows(now), 0, now);
        }
    }

    /// How many lengths a round that begins now has.
    fn windows(&self, now: Instant) -> usize {
        if self.at_once {
            return self.ages.len();
        }
        let is_due = |(age, last): (&Duration, &Option<Instant>)| {
            now.duration_since(self.started) >= *age && last.is_none_or(|last| now.duration_since(last) >= *age)
        };
        let all = self.ages.iter().zip(&self.measured);
        all.enumerate().filter(|(at, pair)| *at == 0 || is_due(*pair)).map(|(at, _)| at + 1).max().unwrap_or(1)
    }

    /// For how long the window has been open.
    pub(super) fn window(&self) -> Duration {
        self.window.elapsed()
    }

    /// The window has ended; answers whether the next one of the round is to be begun first, as it is where they follow
    /// each other.
    pub(super) fn ended(&mut self, follows: bool) -> bool {
        let now = Instant::now();
        self.measured[self.at] = Some(now);
        self.at += 1;
        if self.at < self.count {
            return follows;
        }
        (self.count, self.done) = (0, self.done + 1);
        self.rest = now;
        false
    }

    /// A step took `time`.
    pub(super) fn spent(&mut self, time: Duration) {
        self.spent += time;
        if self.count == 0 {
            self.rest = self.rest.max(self.round + self.spent.div_f64(MAX_SHARE));
            self.spent = Duration::ZERO;
        }
    }

    /// Something else took `time`: the rest is longer for it.
    pub(super) fn spent_beside(&mut self, time: Duration) {
        match self.count {
            0 => self.rest += time.div_f64(MAX_SHARE),
            _ => self.spent += time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn long_windows_come_later_and_leave_half_of_the_time_to_short_ones() {
        let mut rounds = Rounds::new([1, 10, 60].map(SECONDS).to_vec());
        let start = rounds.started;
        assert_eq!(rounds.windows(start), 1);
        assert_eq!(rounds.windows(start + SECONDS(11)), 2);
        assert_eq!(rounds.windows(start + SECONDS(60)), 3);
        rounds.measured = vec![Some(start + SECONDS(120)); 3];
        assert_eq!(rounds.windows(start + SECONDS(125)), 1);
        assert_eq!(rounds.windows(start + SECONDS(131)), 2);
        assert_eq!(rounds.windows(start + SECONDS(180)), 3);
        rounds.all_at_once();
        assert_eq!(rounds.windows(start), 3);
    }

    #[test]
    fn a_round_rests_until_its_looks_took_their_share() {
        let mut rounds = Rounds::new([1, 10].map(SECONDS).to_vec());
        rounds.all_at_once();
        assert_eq!(rounds.next(), Next::Begin);
        let now = Instant::now();
        rounds.begun(now);
        rounds.spent(Duration::from_millis(100));
        assert_eq!((rounds.next(), rounds.due()), (Next::End(0), now + SECONDS(1)));
        assert!(!rounds.ended(false));
        rounds.spent(Duration::from_millis(100));
        assert_eq!((rounds.next(), rounds.due()), (Next::End(1), now + SECONDS(10)));
        assert!(!rounds.ended(true), "there is no next one");
        rounds.spent(Duration::from_millis(100));
        assert_eq!((rounds.next(), rounds.done()), (Next::Begin, 1));
        let due = rounds.due();
        assert!(due >= now + SECONDS(30), "a third of a second is 1 % of thirty");
        // Reports count as looks do, in a rest and in a round.
        rounds.spent_beside(Duration::from_millis(50));
        assert_eq!(rounds.due(), due + SECONDS(5));
        rounds.begun(now);
        rounds.spent_beside(Duration::from_millis(100));
        rounds.ended(false);
        rounds.ended(false);
        rounds.spent(Duration::ZERO);
        assert!(rounds.due() >= now + SECONDS(10), "a report of a round");
    }
}
