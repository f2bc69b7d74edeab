//! What is mapped in this process: by the program, and by the agent.
//!
//! Cost: the kernel writes a line of text per mapping.

use std::sync::atomic::{AtomicPtr, Ordering};

use refault_paging::sys;
use refault_store::noted;

use crate::memory_calls::make;

/// Start and end of some addresses.
pub(crate) type Span = (usize, usize);

/// What the agent has mapped until the program began and keeps for good: its library, the segment. In order. What is
/// [`noted`] is not in it: that may be given up, and the program may have its addresses then.
static OWN: AtomicPtr<Vec<Span>> = AtomicPtr::new(std::ptr::null_mut());

/// The mappings of a text as `/proc/self/maps` has it, with what stands behind the addresses.
pub(crate) fn parse(text: &str) -> impl Iterator<Item = (Span, &str)> {
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

/// Notes what is the agent's: what was not mapped when it was loaded, and its library, which has code at `code`.
/// `before`: the mappings then.
pub(crate) fn remember(before: &str, code: usize) {
    let path = |rest: &str| rest.find('/').map(|at| rest[at..].to_owned());
    let library =
        parse(before).find(|((start, end), _)| (*start..*end).contains(&code)).and_then(|(_, rest)| path(rest));
    let mut others: Vec<Span> =
        parse(before).filter(|(_, rest)| library.is_none() || path(rest) != library).map(|(span, _)| span).collect();
    let Some(now) = text() else { return };
    others.extend(noted::all());
    others.sort_unstable();
    // What the agent's start took of the program's heap is in the program's heap.
    let fresh = parse(&now).filter(|(_, rest)| !rest.ends_with("[heap]") && !rest.ends_with("[stack]"));
    let own = fresh.flat_map(|(span, _)| without(span, &others)).collect();
    OWN.store(Box::leak(Box::new(own)), Ordering::Relaxed);
}

/// What the program has mapped; `None` if the kernel does not say.
pub(crate) fn of_the_program() -> Option<Vec<Span>> {
    // SAFETY: set once, before the program began, and never freed.
    let mut own = unsafe { OWN.load(Ordering::Relaxed).as_ref() }?.clone();
    let text = text()?;
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

/// `/proc/self/maps`, read without libc.
fn text() -> Option<String> {
    const PIECE: usize = 32 << 10;
    let descriptor = make(2, [c"/proc/self/maps".as_ptr() as usize, 0o2_000_000, 0, 0, 0, 0]);
    if descriptor < 0 {
        return None;
    }
    let mut text = Vec::new();
    let whole = loop {
        let length = text.len();
        text.resize(length + PIECE, 0);
        let read = make(sys::nr::READ, [descriptor as usize, text.as_mut_ptr() as usize + length, PIECE, 0, 0, 0]);
        text.truncate(length + read.max(0) as usize);
        if read <= 0 {
            break read == 0;
        }
    };
    make(sys::nr::CLOSE, [descriptor as usize, 0, 0, 0, 0, 0]);
    if whole { String::from_utf8(text).ok() } else { None }
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
        assert!(super::text().is_some_and(|text| parse(&text).count() > 3));
    }
}
