//! Programs of the tree that ran without being managed, as those said that executed them.

use refault_image::Obstacle;
use refault_paging::Shared;
use serde::{Deserialize, Serialize};

/// A program that ran without being managed.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct UnmanagedProgram {
    /// Its file's name, without directories.
    pub name: String,
    /// Why: the kind, such as `statically linked`.
    pub reason: String,
    /// How often it was executed.
    pub times: u32,
}

/// All that were noted, in the order in which they were met, and how many executions found no place to be noted.
pub(super) fn all(shared: &Shared) -> (Vec<UnmanagedProgram>, u32) {
    let mut programs: Vec<UnmanagedProgram> = Vec::new();
    shared.unmanaged.each(|kind, name, times| {
        let name = String::from_utf8_lossy(name).into_owned();
        let reason = Obstacle::kind_of(kind).unwrap_or("another reason").to_owned();
        // Two processes that execute one at once may have noted it twice.
        match programs.iter_mut().find(|known| known.name == name && known.reason == reason) {
            Some(known) => known.times += times,
            None => programs.push(UnmanagedProgram { name, reason, times }),
        }
    });
    (programs, shared.unmanaged.others())
}

/// The line that names them; none without any.
pub(super) fn line(programs: &[UnmanagedProgram], others: u32) -> Option<String> {
    let named = programs.iter().map(|program| match program.times {
        1 => format!("{} ({})", program.name, program.reason),
        times => format!("{} ({}, {times} times)", program.name, program.reason),
    });
    let more = (others > 0).then(|| format!("{others} more"));
    let all: Vec<String> = named.chain(more).collect();
    (!all.is_empty()).then(|| format!("not managed: {}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_with_their_reasons() {
        let program = |name: &str, times| UnmanagedProgram { name: name.into(), reason: "32 bits".into(), times };
        assert_eq!(line(&[], 0), None);
        assert_eq!(
            line(&[program("a", 1), program("b", 3)], 2).as_deref(),
            Some("not managed: a (32 bits), b (32 bits, 3 times), 2 more")
        );
    }
}
