//! Where anonymous pages can go: the swap of this host.
//!
//! ```
//! use refault_pool::reclaim::swap::Swap;
//!
//! let swap = Swap::of_host()?;
//! assert!(swap.free_bytes() <= swap.total_bytes);
//! assert!(!swap.words().is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;

/// The swap of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swap {
    /// Devices and files.
    pub places: Vec<String>,
    /// Bytes of all.
    pub total_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
}

impl Swap {
    /// What is set up now.
    ///
    /// # Errors
    /// `/proc/swaps` is there and cannot be read. A kernel without it has no swap.
    pub fn of_host() -> io::Result<Swap> {
        match std::fs::read_to_string("/proc/swaps") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Swap::default()),
            text => text.map(|text| Swap::parse(&text)),
        }
    }

    fn parse(text: &str) -> Swap {
        let mut swap = Swap::default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let kib = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
            if let Some(place) = fields.first() {
                swap.places.push((*place).to_owned());
                swap.total_bytes += kib(2) * 1024;
                swap.used_bytes += kib(3) * 1024;
            }
        }
        swap
    }

    /// Bytes that more pages can take.
    pub fn free_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.used_bytes)
    }

    /// In words: where anonymous pages can go, or that they cannot.
    pub fn words(&self) -> String {
        if self.places.is_empty() {
            return "none: only pages of files can go; set up zram or a swap file".to_owned();
        }
        let compressed = self.places.iter().any(|place| place.contains("zram"));
        let note = if compressed { " (compressed memory: less is saved than goes)" } else { "" };
        format!("{}{note}", self.places.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_added_up_and_none_is_said() {
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert!(Swap::parse(head).words().starts_with("none: only pages of files"));
        let swap = Swap::parse(&format!("{head}/dev/zram0 partition 1024 24 100\n/swap file 1000 0 -2\n"));
        assert_eq!((swap.total_bytes, swap.free_bytes()), (2024 * 1024, 2000 * 1024));
        assert!(swap.words().contains("/dev/zram0, /swap (compressed memory"));
    }
}
