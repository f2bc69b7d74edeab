//! What is mapped in this process: by the program, and by the agent.
//!
//! Cost: the kernel writes a line of text per mapping.

use std::sync::atomic::{AtomicPtr, Ordering};

use refault_linux::proc::{self, Span};
use refault_store::noted;

/// A mapping: its addresses, and what stands behind them in a line of `/proc/self/maps`.
pub(crate) type Mapping<'a> = (Span, &'a str);

/// Where the agent's library lies. What the agent maps is [`noted`].
static LIBRARY: AtomicPtr<Vec<Span>> = AtomicPtr::new(std::ptr::null_mut());

/// Remembers where the agent's library is, which has code at `code`.
pub(crate) fn remember(all: &[Mapping<'_>], code: usize) {
    let path = |(_, rest): &Mapping<'_>| rest.find('/').map(|at| rest[at..].to_owned());
    let library = all.iter().find(|((start, end), _)| (*start..*end).contains(&code)).and_then(path);
    let own =
        all.iter().filter(|mapping| library.is_some() && path(mapping) == library).map(|(span, _)| *span).collect();
    LIBRARY.store(Box::leak(Box::new(own)), Ordering::Relaxed);
}

/// What the program has mapped; `None` if the kernel does not say.
pub(crate) fn of_the_program() -> Option<Vec<Span>> {
    // SAFETY: set once, before the program began, and never freed.
    let mut own = unsafe { LIBRARY.load(Ordering::Relaxed).as_ref() }?.clone();
    let text = proc::read(proc::MAPS)?;
    own.extend(noted::all());
    own.sort_unstable();
    Some(proc::mappings(&text).flat_map(|(span, _)| without(span, &own)).collect())
}

/// What of a span is in none of the others, which are in order of their starts.
fn without((mut start, end): Span, others: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    for &(from, to) in others {
        if to <= start || end <= from {
            continue;
        }
        if start < from {
            left.push((start, from));
        }
        start = start.max(to);
    }
    if start < end {
        left.push((start, end));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_span() {
        let others = [(10, 20), (30, 40)];
        assert_eq!(without((0, 50), &others), [(0, 10), (20, 30), (40, 50)]);
        assert_eq!(without((10, 20), &others), []);
        assert_eq!(without((15, 35), &others), [(20, 30)]);
        assert_eq!(without((20, 30), &others), [(20, 30)]);
        assert_eq!(without((50, 60), &others), [(50, 60)]);
        assert_eq!(without((0, 50), &[(0, 0), (5, 30), (10, 12), (20, 40)]), [(0, 5), (40, 50)]);
    }
}
