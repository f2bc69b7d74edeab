//! What can be done to memory, and where it has a meaning (spec: damos §3).
//!
//! Kernel: `enum damos_action` in `include/linux/damon.h`; `damon_pa_apply_scheme` in `mm/damon/paddr.c`;
//! `damon_va_apply_scheme` in `mm/damon/vaddr.c`.

use crate::monitor::{Profile, View};

/// What a scheme does to the regions it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bring the contents in.
    Willneed,
    /// Take the memory for unused: it is evicted earlier.
    Cold,
    /// Evict now.
    Pageout,
    /// Back with huge pages.
    Hugepage,
    /// Stop backing with huge pages.
    Nohugepage,
    /// Move away from the eviction end of the LRU lists.
    LruPrio,
    /// Move towards the eviction end.
    LruDeprio,
    /// Move to another node, hottest first.
    MigrateHot {
        /// Destination.
        node: u32,
    },
    /// Move to another node, coldest first.
    MigrateCold {
        /// Destination.
        node: u32,
    },
    /// Nothing but count.
    Stat,
}

impl Action {
    /// Why an action that moves pages within lists has no effect under some policies; stands after its name.
    pub const NEEDS_LISTS: &'static str = "needs a policy with lists to sort; use classic or mglru";

    /// All names, in the order of the documentation.
    pub const NAMES: [&'static str; 10] = [
        "willneed",
        "cold",
        "pageout",
        "hugepage",
        "nohugepage",
        "lru_prio",
        "lru_deprio",
        "migrate_hot",
        "migrate_cold",
        "stat",
    ];

    /// The name used in configurations and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Action::Willneed => "willneed",
            Action::Cold => "cold",
            Action::Pageout => "pageout",
            Action::Hugepage => "hugepage",
            Action::Nohugepage => "nohugepage",
            Action::LruPrio => "lru_prio",
            Action::LruDeprio => "lru_deprio",
            Action::MigrateHot { .. } => "migrate_hot",
            Action::MigrateCold { .. } => "migrate_cold",
            Action::Stat => "stat",
        }
    }

    /// The action of a name; `node` is the destination of the migrating ones.
    pub fn from_name(name: &str, node: u32) -> Option<Action> {
        Some(match name {
            "willneed" => Action::Willneed,
            "cold" => Action::Cold,
            "pageout" => Action::Pageout,
            "hugepage" => Action::Hugepage,
            "nohugepage" => Action::Nohugepage,
            "lru_prio" => Action::LruPrio,
            "lru_deprio" => Action::LruDeprio,
            "migrate_hot" => Action::MigrateHot { node },
            "migrate_cold" => Action::MigrateCold { node },
            "stat" => Action::Stat,
            _ => return None,
        })
    }

    /// Why the action has no effect in a view under a profile; `None` if it has one.
    pub fn refusal(&self, view: View, profile: Profile) -> Option<&'static str> {
        let physical = view == View::Physical;
        match self {
            Action::Pageout | Action::Stat => None,
            Action::LruPrio | Action::LruDeprio if physical => None,
            Action::LruPrio | Action::LruDeprio => Some("sorts the lists of physical memory; use paddr"),
            Action::MigrateHot { .. } | Action::MigrateCold { .. } => match (physical, profile) {
                (_, Profile::K518 | Profile::K60) => Some("came with a later kernel; use profile k612 (paddr) or k72"),
                (false, Profile::K612) => Some("moves virtual ranges only from profile k72 on; use paddr or k72"),
                _ => None,
            },
            _ if physical => Some("is advice on a range of a process; use vaddr or fvaddr"),
            _ => None,
        }
    }

    /// Whether it is one call on a range rather than a walk over pages.
    pub(crate) fn is_advice(&self, view: View) -> bool {
        view != View::Physical && !matches!(self, Action::MigrateHot { .. } | Action::MigrateCold { .. } | Action::Stat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_each_view_refuses_what_it_cannot_do() {
        for name in Action::NAMES {
            assert_eq!(Action::from_name(name, 1).unwrap().name(), name);
        }
        assert_eq!(Action::from_name("reclaim", 0), None);
        let works = |view, profile| {
            let all = Action::NAMES.into_iter();
            all.filter(|name| Action::from_name(name, 0).unwrap().refusal(view, profile).is_none()).collect::<Vec<_>>()
        };
        assert_eq!(
            works(View::Physical, Profile::K72),
            ["pageout", "lru_prio", "lru_deprio", "migrate_hot", "migrate_cold", "stat"]
        );
        assert_eq!(works(View::Physical, Profile::K60), ["pageout", "lru_prio", "lru_deprio", "stat"]);
        assert_eq!(
            works(View::Virtual, Profile::K72),
            ["willneed", "cold", "pageout", "hugepage", "nohugepage", "migrate_hot", "migrate_cold", "stat"]
        );
        assert_eq!(works(View::FixedVirtual, Profile::K612).len(), 6);
    }
}
