//! Memory of `bpf`, by its command: keys and values of maps, one or many, programs and what is said of them.
//!
//! Several commands write into their own argument before they copy what was asked for, so none is made twice: all of
//! their memory is named here. How large a map's keys and values are is read from what the kernel says of its
//! descriptor.
//! Source: the kernel's user header of bpf.

use std::ffi::CString;

use refault_linux::requests::*;
use refault_linux::{PAGE, proc};

use super::requests::led_to;
use super::{Span, TEXT};

use crate::frame;

/// Bytes of the argument at most.
const MAX_ARGUMENT: usize = PAGE;
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
        BPF_MAP_LOOKUP_ELEM
        | BPF_MAP_UPDATE_ELEM
        | BPF_MAP_DELETE_ELEM
        | BPF_MAP_GET_NEXT_KEY
        | BPF_MAP_LOOKUP_AND_DELETE_ELEM => {
            let map = Sizes::of(half(BPF_MAP));
            buffer(word(BPF_KEY), map.key, false);
            // The next key lies where a value would.
            buffer(word(BPF_VALUE), map.value.max(map.key), true);
        }
        BPF_MAP_LOOKUP_BATCH..=BPF_MAP_DELETE_BATCH => {
            let (map, count) = (Sizes::of(half(BPF_BATCH_MAP)), half(BPF_BATCH_COUNT));
            [word(BPF_BATCH_FIRST), word(BPF_BATCH_NEXT)].into_iter().for_each(|at| buffer(at, map.key, true));
            buffer(word(BPF_BATCH_KEYS), count.saturating_mul(map.key), true);
            buffer(word(BPF_BATCH_VALUES), count.saturating_mul(map.value), true);
        }
        BPF_PROG_LOAD => {
            let many = |count: usize, bytes: usize| half(count).saturating_mul(half(bytes));
            buffer(word(BPF_INSTRUCTIONS), half(BPF_INSTRUCTION_COUNT).saturating_mul(INSTRUCTION), false);
            buffer(word(BPF_LICENSE), TEXT, false);
            buffer(word(BPF_LOG), half(BPF_LOG_BYTES), true);
            buffer(word(BPF_FUNCTIONS), many(BPF_FUNCTION_COUNT, BPF_FUNCTION_BYTES), false);
            buffer(word(BPF_LINES), many(BPF_LINE_COUNT, BPF_LINE_BYTES), false);
            buffer(word(BPF_DESCRIPTORS), TEXT, false);
            buffer(word(BPF_CORE), many(BPF_CORE_COUNT, BPF_CORE_BYTES), false);
        }
        BPF_OBJ_PIN | BPF_OBJ_GET => buffer(word(BPF_PATH), TEXT, false),
        BPF_RAW_TRACEPOINT_OPEN => buffer(word(BPF_POINT_NAME), TEXT, false),
        BPF_PROG_TEST_RUN => {
            buffer(word(BPF_TEST_IN), half(BPF_TEST_IN_BYTES), false);
            buffer(word(BPF_TEST_OUT), half(BPF_TEST_OUT_BYTES), true);
            buffer(word(BPF_TEST_CONTEXT_IN), half(BPF_TEST_CONTEXT_IN_BYTES), false);
            buffer(word(BPF_TEST_CONTEXT_OUT), half(BPF_TEST_CONTEXT_OUT_BYTES), true);
        }
        BPF_OBJ_GET_INFO_BY_FD => {
            buffer(word(BPF_INFO), half(BPF_INFO_BYTES), true);
            led_to(word(BPF_INFO), half(BPF_INFO_BYTES), visit);
        }
        BPF_PROG_QUERY => {
            let count = half(BPF_QUERY_COUNT).saturating_mul(size_of::<u32>());
            for place in [BPF_QUERY_PROGRAMS, BPF_QUERY_FLAGS, BPF_QUERY_LINKS, BPF_QUERY_LINK_FLAGS] {
                buffer(word(place), count, true);
            }
        }
        BPF_BTF_LOAD => {
            buffer(word(BPF_TYPES), half(BPF_TYPES_BYTES), false);
            buffer(word(BPF_TYPES_LOG), half(BPF_TYPES_LOG_BYTES), true);
        }
        BPF_TASK_FD_QUERY => buffer(word(BPF_TASK_NAME), half(BPF_TASK_NAME_BYTES), true),
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
    const UNKNOWN: Sizes = Sizes { key: PAGE, value: 64 << 10 };

    fn of(descriptor: usize) -> Sizes {
        let path = CString::new(format!("/proc/self/fdinfo/{}", descriptor as i32));
        path.ok().and_then(|path| proc::read(&path)).map_or(Sizes::UNKNOWN, |text| Sizes::said(&text, processors))
    }

    /// What `/proc/self/fdinfo` says. A map with values for each processor gives all of them, each a multiple of 8
    /// bytes.
    fn said(text: &str, processors: impl Fn() -> usize) -> Sizes {
        const PER_PROCESSOR: [usize; 4] = [
            BPF_MAP_TYPE_PERCPU_HASH,
            BPF_MAP_TYPE_PERCPU_ARRAY,
            BPF_MAP_TYPE_LRU_PERCPU_HASH,
            BPF_MAP_TYPE_PERCPU_CGROUP_STORAGE,
        ];
        let number = |name: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            lines.filter_map(|rest| rest.strip_prefix(':')).find_map(|rest| rest.trim().parse::<usize>().ok())
        };
        let (Some(key), Some(value)) = (number("key_size"), number("value_size")) else { return Sizes::UNKNOWN };
        let is_per_processor = number("map_type").is_some_and(|kind| PER_PROCESSOR.contains(&kind));
        let value = if is_per_processor {
            value.next_multiple_of(size_of::<u64>()).saturating_mul(processors())
        } else {
            value
        };
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
