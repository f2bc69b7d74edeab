//! Memory of `bpf`, by its command: keys and values of maps, one or many, programs and what is said of them.
//!
//! Several commands write into their own argument before they copy what was asked for, so none is made twice: all of their
//! memory is named here. How large a map's keys and values are is read from what the kernel says of its descriptor.
//! Source: the kernel's user header of bpf.

use std::ffi::CString;

use super::requests::led_to;
use super::{Span, TEXT};
use refault_linux::proc;

use crate::frame;

const MAP_LOOKUP_ELEM: usize = 1;
const MAP_UPDATE_ELEM: usize = 2;
const MAP_DELETE_ELEM: usize = 3;
const MAP_GET_NEXT_KEY: usize = 4;
const PROG_LOAD: usize = 5;
const OBJ_PIN: usize = 6;
const OBJ_GET: usize = 7;
const PROG_TEST_RUN: usize = 10;
const OBJ_GET_INFO_BY_FD: usize = 15;
const PROG_QUERY: usize = 16;
const RAW_TRACEPOINT_OPEN: usize = 17;
const BTF_LOAD: usize = 18;
const TASK_FD_QUERY: usize = 20;
const MAP_LOOKUP_AND_DELETE_ELEM: usize = 21;
const MAP_LOOKUP_BATCH: usize = 24;
const MAP_DELETE_BATCH: usize = 27;

/// Bytes of the argument at most.
const MAX_ARGUMENT: usize = 4096;
/// Bytes of a buffer that are looked at.
const MAX_BUFFER: usize = 1 << 30;

/// See the module.
pub(super) fn memory([command, argument, bytes, ..]: &[usize; 6], visit: &mut dyn FnMut(Span)) {
    let bytes = (*bytes as u32 as usize).min(MAX_ARGUMENT);
    visit((*argument, bytes, true));
    let word = |place: usize| {
        let is_there = place + size_of::<usize>() <= bytes;
        is_there.then(|| frame::read::<usize>(argument.wrapping_add(place))).flatten().unwrap_or(0)
    };
    let half = |place: usize| {
        let is_there = place + size_of::<u32>() <= bytes;
        is_there.then(|| frame::read::<u32>(argument.wrapping_add(place))).flatten().unwrap_or(0) as usize
    };
    let mut buffer = |at: usize, bytes: usize, write| visit((at, bytes.min(MAX_BUFFER), write));
    match *command {
        MAP_LOOKUP_ELEM | MAP_UPDATE_ELEM | MAP_DELETE_ELEM | MAP_GET_NEXT_KEY | MAP_LOOKUP_AND_DELETE_ELEM => {
            let map = Sizes::of(half(0));
            buffer(word(8), map.key, false);
            // The next key lies where a value would.
            buffer(word(16), map.value.max(map.key), true);
        }
        MAP_LOOKUP_BATCH..=MAP_DELETE_BATCH => {
            let (map, count) = (Sizes::of(half(36)), half(32));
            [word(0), word(8)].into_iter().for_each(|at| buffer(at, map.key, true));
            buffer(word(16), count.saturating_mul(map.key), true);
            buffer(word(24), count.saturating_mul(map.value), true);
        }
        PROG_LOAD => {
            const INSTRUCTION: usize = 8;
            buffer(word(8), half(4).saturating_mul(INSTRUCTION), false);
            buffer(word(16), TEXT, false);
            buffer(word(32), half(28), true);
            buffer(word(80), half(76).saturating_mul(half(88)), false);
            buffer(word(96), half(92).saturating_mul(half(104)), false);
            buffer(word(120), TEXT, false);
            buffer(word(128), half(116).saturating_mul(half(136)), false);
        }
        OBJ_PIN | OBJ_GET | RAW_TRACEPOINT_OPEN => buffer(word(0), TEXT, false),
        PROG_TEST_RUN => {
            buffer(word(16), half(8), false);
            buffer(word(24), half(12), true);
            buffer(word(48), half(40), false);
            buffer(word(56), half(44), true);
        }
        OBJ_GET_INFO_BY_FD => {
            buffer(word(8), half(4), true);
            led_to(word(8), half(4), visit);
        }
        PROG_QUERY => {
            let count = half(24).saturating_mul(size_of::<u32>());
            [word(16), word(32), word(40), word(48)].into_iter().for_each(|at| buffer(at, count, true));
        }
        BTF_LOAD => {
            buffer(word(0), half(16), false);
            buffer(word(8), half(20), true);
        }
        TASK_FD_QUERY => buffer(word(16), half(12), true),
        _ => led_to(*argument, bytes, visit),
    }
}

/// Bytes of a map's key, and of what a look at one of its keys gives.
struct Sizes {
    key: usize,
    value: usize,
}

impl Sizes {
    /// Of a map that the kernel says nothing of.
    const UNKNOWN: Sizes = Sizes { key: 4096, value: 64 << 10 };

    fn of(descriptor: usize) -> Sizes {
        let path = CString::new(format!("/proc/self/fdinfo/{}", descriptor as i32));
        path.ok().and_then(|path| proc::read(&path)).map_or(Sizes::UNKNOWN, |text| Sizes::said(&text, processors))
    }

    /// What `/proc/self/fdinfo` says. A map with values for each processor gives all of them, each a multiple of 8 bytes.
    fn said(text: &str, processors: impl Fn() -> usize) -> Sizes {
        /// Hash, array, hash with least recently used keys and local storage of control groups, each per processor.
        const PER_PROCESSOR: [usize; 4] = [5, 6, 10, 21];
        let number = |name: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            lines.filter_map(|rest| rest.strip_prefix(':')).find_map(|rest| rest.trim().parse::<usize>().ok())
        };
        let (Some(key), Some(value)) = (number("key_size"), number("value_size")) else { return Sizes::UNKNOWN };
        let is_per_processor = number("map_type").is_some_and(|kind| PER_PROCESSOR.contains(&kind));
        let value = if is_per_processor { value.next_multiple_of(8).saturating_mul(processors()) } else { value };
        // A place to go on from may be larger than a short key.
        Sizes { key: key.max(size_of::<usize>()), value }
    }
}

/// Processors that this machine may have.
fn processors() -> usize {
    /// More than any machine has: where nothing is said, more is held than is needed.
    const UNKNOWN: usize = 1024;
    let text = proc::read(c"/sys/devices/system/cpu/possible");
    let last = text.as_deref().and_then(|text| text.trim().rsplit(['-', ',']).next());
    last.and_then(|last| last.parse::<usize>().ok()).map_or(UNKNOWN, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::Sizes;

    #[test]
    fn sizes_are_what_the_kernel_says_of_a_map() {
        let sizes = Sizes::said("pos:\t0\nmap_type:\t1\nkey_size:\t4\nvalue_size:\t100\nmax_entries:\t10\n", || 4);
        assert_eq!((sizes.key, sizes.value), (8, 100));
        let sizes = Sizes::said("map_type:\t6\nkey_size:\t16\nvalue_size:\t4\n", || 4);
        assert_eq!((sizes.key, sizes.value), (16, 8 * 4));
        let sizes = Sizes::said("flags:\t02\n", || 4);
        assert_eq!((sizes.key, sizes.value), (Sizes::UNKNOWN.key, Sizes::UNKNOWN.value));
    }
}
