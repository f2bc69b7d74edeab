//! What the table holds, and what it refuses.

use super::*;
use crate::memory::{Eviction, References};
use crate::{PageId, Shadow};

#[test]
fn every_policy_is_built_and_costs_something_per_page() {
    for entry in POLICIES.iter().filter(|entry| !entry.is(NeedsFuture)) {
        let bytes = entry.metadata_bytes_per_page().expect("runs without the future");
        assert!((4.0..200.0).contains(&bytes), "{}: {bytes}", entry.name);
    }
    let next_use = NextUse::new(vec![0, 1, 0]).expect("short");
    let context = BuildContext { next_use: Some(Arc::new(next_use)), ..BuildContext::default() };
    struct Bytes;
    impl Visitor for Bytes {
        type Output = usize;
        fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> usize {
            policy.grow(64);
            policy.metadata_bytes()
        }
    }
    assert!(visit(&PolicySpec::parse("opt").expect("known"), &context, Bytes) > 0);
}

struct Empty;

impl Memory for Empty {
    fn take_references(&mut self, _page: PageId) -> References {
        References::default()
    }
    fn evict(&mut self, _page: PageId, _shadow: Shadow) -> Eviction {
        Eviction::Kept
    }
    fn is_resident(&self, _page: PageId) -> bool {
        false
    }
}

#[test]
fn what_a_front_end_sets_itself_or_cannot_know_is_refused() {
    let refused = |text: &str| PolicySpec::parse_for(text, FrontEnd::FreePool).is_err();
    assert!(["freebsd{cache_pool=no}", "freebsd{version=12}", "freebsd-nocache"].into_iter().all(refused));
    assert!(!["freebsd", "freebsd{version=10}", "mglru"].into_iter().any(refused));
    PolicySpec::parse_for("freebsd{version=12}", FrontEnd::Machine).expect("it is the experiment that sets this");
    let built = build::<Empty>("opt", FrontEnd::Replay).err();
    assert!(matches!(built, Some(PolicyError::Refused { reason: NEEDS_FUTURE, .. })), "{built:?}");
}

#[test]
fn names_and_aliases_are_unique() {
    let all = POLICIES.iter().flat_map(|entry| std::iter::once(entry.name).chain(entry.aliases.iter().copied()));
    let mut names: Vec<_> = all.collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn defaults_are_what_the_lists_of_parameters_say() {
    for entry in POLICIES {
        // A default that depends on the policy or on another parameter is written in words.
        for parameter in entry.all_parameters().filter(|parameter| !parameter.default.contains(' ')) {
            let text = format!("{}{{{}={}}}", entry.name, parameter.name, parameter.default);
            assert!(PolicySpec::parse(&text).is_ok(), "{text}");
        }
    }
}

#[test]
fn errors_name_what_is_known_and_why_a_front_end_refuses() {
    let error = PolicySpec::parse("nope").unwrap_err().to_string();
    assert!(error.contains("'nope'") && error.contains("fifo"), "{error}");
    let error = PolicySpec::parse_for("arc", FrontEnd::Pager).unwrap_err().to_string();
    assert!(error.contains("each access") && error.contains("mglru") && !error.contains("lirs"), "{error}");
    for front_end in FrontEnd::ALL {
        assert_eq!(PolicySpec::parse_for("opt", front_end).is_ok(), front_end == FrontEnd::Replay);
    }
}

#[test]
fn decorators_are_parameters_of_every_policy_that_can_have_them() {
    for entry in POLICIES {
        let spec = PolicySpec::parse(&format!("{}{{cyclic=yes}}", entry.name));
        assert_eq!(spec.is_ok(), !entry.is(NeedsFuture), "{}", entry.name);
    }
    let refused = |text, front_end| PolicySpec::parse_for(text, front_end).is_err();
    assert!(refused("mglru{cyclic=maybe}", FrontEnd::Replay) && refused("mglru{cyclic=yes}", FrontEnd::Machine));
    assert!(refused("lrfu{bypass=yes}", FrontEnd::PageCache) && refused("lrfu{bypass=yes}", FrontEnd::Pager));
    assert!(!refused("lrfu{bypass=yes}", FrontEnd::Replay));
}

#[test]
fn an_alias_is_written_back_as_the_name() {
    assert_eq!(PolicySpec::parse("lru_gen{tiers=1}").expect("known").label, "mglru{tiers=1}");
}
