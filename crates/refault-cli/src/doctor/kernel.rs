//! The kernel backend: whether this user may have it, and what killed runs left.

use refault_console::{Failure, with_output};
use refault_kernel::{Places, journal};

use super::{Finding, Status};

const TITLE: &str = "kernel backend";

/// What `refault run --backend kernel` would have.
pub(super) fn finding() -> Finding {
    of(&Places::default())
}

fn of(places: &Places) -> Finding {
    let left = journal::leftovers(places);
    if !left.is_empty() {
        let names: Vec<String> = left.iter().map(journal::Leftover::name).collect();
        let detail = format!("killed runs left {}", names.join(", "));
        return Finding::new(TITLE, Status::Limited, detail).improve("refault doctor --clean");
    }
    match refault_kernel::examine(places) {
        Ok(words) => Finding::new(TITLE, Status::Works, words),
        Err(refusal) => {
            let detail = format!("{refusal}: {}", refusal.place());
            Finding::new(TITLE, Status::Limited, detail).improve(refusal.remedy())
        }
    }
}

/// `--clean`.
pub(super) fn clean() -> Result<(), Failure> {
    let (removed, failed) = journal::clean(&Places::default());
    with_output(None, |out| {
        removed.iter().try_for_each(|name| writeln!(out, "removed: {name}"))?;
        if removed.is_empty() && failed.is_empty() { writeln!(out, "nothing was left") } else { Ok(()) }
    })?;
    match failed.into_iter().next() {
        Some((name, error)) => Err(Failure::failed("cannot remove", name, error)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_groups_is_limited_and_says_so() {
        let bare = tempfile::tempdir().expect("a directory");
        let found = of(&Places::below(bare.path()));
        assert_eq!((found.status, found.detail.as_str()), (Status::Limited, "no memory cgroup: /proc/self/cgroup"));
        assert!(found.improve.is_some_and(|remedy| remedy.contains("CONFIG_MEMCG")));
    }
}
