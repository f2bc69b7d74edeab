//! What is mapped in this process: by the program, and by the agent.
//!
//! Cost: the kernel writes a line of text per mapping.

use std::sync::atomic::{AtomicPtr, Ordering};

use refault_store::noted;

use crate::process_files;

/// Start and end of some addresses.
pub(crate) type Span = (usize, usize);

/// A mapping: its addresses, and what stands behind them in a line of `/proc/self/maps`.
pub(crate) type Mapping<'a> = (Span, &'a str);

/// Where the agent's library lies. What the agent maps is [`noted`].
static LIBRARY: AtomicPtr<Vec<Span>> = AtomicPtr::new(std::ptr::null_mut());

/// The mappings of a text as `/proc/self/maps` has it, with what stands behind the addresses.
pub(crate) fn parse(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    text.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        Some(((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?), rest))
    })
}

/// The mappings, as [`parse`] has them, that have no page in memory or in the kernel's swap, by the text of
/// `/proc/self/smaps`.
pub(crate) fn empty(smaps: &str) -> impl Iterator<Item = (Span, &str)> {
    let mut mapping = None;
    smaps.lines().filter_map(move |line| {
        if let Some(size) = line.strip_prefix("Rss:") {
            mapping = mapping.filter(|_| size.trim() == "0 kB");
        } else if let Some(size) = line.strip_prefix("Swap:") {
            return mapping.take().filter(|_| size.trim() == "0 kB");
        } else if let Some(head) = parse(line).next() {
            mapping = Some(head);
        }
        None
    })
}

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
    let text = process_files::read(process_files::MAPS)?;
    own.extend(noted::all());
    own.sort_unstable();
    Some(parse(&text).flat_map(|(span, _)| without(span, &own)).collect())
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

    #[test]
    fn empty_is_what_has_no_page_anywhere() {
        let mapping = |head: &str, rss: u32, swap: u32| {
            format!(
                "{head} ---p 0 00:00 0 \nSize:  8 kB\nRss:   {rss} kB\nPss:   0 kB\nSwap:  {swap} kB\nVmFlags: mr\n"
            )
        };
        let text = mapping("1000-3000", 0, 0) + &mapping("3000-5000", 4, 0) + &mapping("5000-7000", 0, 4);
        let text = text + &mapping("7000-9000", 0, 0);
        let found: Vec<_> = empty(&text).map(|((start, _), rest)| (start, rest.trim_end())).collect();
        assert_eq!(found, [(0x1000, "---p 0 00:00 0"), (0x7000, "---p 0 00:00 0")]);
    }

    #[test]
    fn a_line_has_addresses_and_more() {
        let text = "1000-3000 r-xp 00000000 08:01 17   /a b\nffffffffff600000-ffffffffff601000 --xp 0 0 0 [vsyscall]\n";
        let all: Vec<_> = parse(text).collect();
        assert_eq!(all[0], ((0x1000, 0x3000), "r-xp 00000000 08:01 17   /a b"));
        assert_eq!(all[1].0, (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000));
        let text = process_files::read(process_files::MAPS).expect("it is there");
        assert!(parse(&text).count() > 3);
    }
}
