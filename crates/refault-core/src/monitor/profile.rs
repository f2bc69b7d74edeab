//! Whose rules: the behaviour of the kernels changed over time (spec: damon §0).

/// A kernel generation whose rules the monitor and the schemes follow. Each method is one difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Profile {
    /// 5.18-rc, the tree in which the schemes for sorting LRU lists were measured: K60 without its later fixes.
    K518,
    /// 6.1 with its stable fixes.
    K60,
    /// 6.12.
    K612,
    /// 7.2.
    #[default]
    K72,
}

impl Profile {
    /// All of them, oldest first.
    pub const ALL: [Profile; 4] = [Profile::K518, Profile::K60, Profile::K612, Profile::K72];

    /// The name used in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::K518 => "k518",
            Profile::K60 => "k60",
            Profile::K612 => "k612",
            Profile::K72 => "k72",
        }
    }

    /// The profile of a name. `k518` was called `seed` once, and is still read so.
    pub fn from_name(name: &str) -> Option<Profile> {
        let name = if name == "seed" { "k518" } else { name };
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Deadlines are kept in elapsed time rather than in sampling intervals passed.
    pub const fn keeps_elapsed_time(self) -> bool {
        matches!(self, Profile::K518 | Profile::K60)
    }

    /// Schemes have their own interval; otherwise they run once per aggregation.
    pub const fn has_apply_interval(self) -> bool {
        !self.keeps_elapsed_time()
    }

    /// Patterns look at the moving sum rather than at the count of the running aggregation.
    pub const fn has_moving_sum(self) -> bool {
        !self.keeps_elapsed_time()
    }

    /// A change between no access and some access resets the age.
    pub const fn resets_age_on_zero_change(self) -> bool {
        matches!(self, Profile::K72)
    }

    /// Ages advance in every pass of a repeated merge rather than in the first only.
    pub const fn ages_in_every_pass(self) -> bool {
        matches!(self, Profile::K612)
    }

    /// Merging is repeated until the bound on regions is met.
    pub const fn repeats_merge(self) -> bool {
        !matches!(self, Profile::K518)
    }

    /// The size limit is renewed at each aggregation and enforced by cutting.
    pub const fn enforces_size_limit(self) -> bool {
        matches!(self, Profile::K72)
    }

    /// Intervals can be tuned towards a goal.
    pub const fn tunes_intervals(self) -> bool {
        matches!(self, Profile::K72)
    }

    /// Offsets are drawn from the low 32 bits of a region's size only (spec: damon §3).
    pub const fn truncates_offsets(self) -> bool {
        !matches!(self, Profile::K72)
    }

    /// The right part of a split starts with a zero count.
    pub const fn split_forgets_count(self) -> bool {
        self.keeps_elapsed_time()
    }

    /// Results are converted when the intervals change.
    pub const fn converts_results(self) -> bool {
        !self.keeps_elapsed_time()
    }

    /// The part cut off by a quota or filter waits for the next pass (spec: damos §4).
    pub const fn defers_remainders(self) -> bool {
        matches!(self, Profile::K518 | Profile::K612)
    }

    /// Quota marks, filters and windows work as in 7.2 (spec: damos §6.1, §8, §4 merge-back).
    pub const fn is_current(self) -> bool {
        matches!(self, Profile::K72)
    }
}
