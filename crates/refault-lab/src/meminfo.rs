//! What `/proc/meminfo` says of a machine's memory (proc_meminfo(5)).
//!
//! ```
//! use refault_lab::meminfo;
//!
//! let text = "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n";
//! assert_eq!(meminfo::bytes(text, "MemAvailable"), Some(8 << 20));
//! ```

/// A field of the machine that this runs on, such as `MemTotal` or `MemAvailable`, in bytes; `None` where the system
/// does not say. One read of the file.
pub fn of_this_machine(field: &str) -> Option<u64> {
    bytes(&std::fs::read_to_string("/proc/meminfo").ok()?, field)
}

/// A field of the file's text, in bytes; `None` if it is missing or no amount.
pub fn bytes(text: &str, field: &str) -> Option<u64> {
    let amount = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = amount.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart_by_their_whole_names() {
        let text = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nHugePages_Total:       3\nBroken: x kB\n";
        assert_eq!(bytes(text, "MemTotal"), Some(16 << 30));
        assert_eq!(bytes(text, "MemFree"), Some(1 << 30));
        for missing in ["Mem", "Total", "HugePages_Total", "Broken", ""] {
            assert_eq!(bytes(text, missing), None, "{missing}");
        }
    }

    #[test]
    fn this_machine_has_memory() {
        let (total, available) = (of_this_machine("MemTotal"), of_this_machine("MemAvailable"));
        assert!(available > Some(0) && available <= total, "{available:?} of {total:?}");
    }
}
