//! Amounts of memory as people write them: `25%`, `4096p`, `64M`.
//!
//! ```
//! use refault_lab::size::{Size, bytes_text};
//!
//! assert_eq!("25%".parse::<Size>()?.pages(1000), 250);
//! assert_eq!("64M".parse::<Size>()?.pages(1000), 16_384);
//! assert_eq!(bytes_text(1536 << 20), "1.50 GiB");
//! # Ok::<(), String>(())
//! ```

use std::fmt;
use std::str::FromStr;

use refault_config::units;
pub use refault_config::units::bytes_text;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// The parts a percentage is kept in: ten-thousandths of a percent.
const PERCENT_PARTS: u64 = 10_000;

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A share of a trace's distinct pages, in 1/10,000 of a percent.
    Share(u64),
    /// Pages of 4 KiB.
    Pages(u64),
    /// Bytes.
    Bytes(u64),
}

/// What to write instead of an unreadable size.
const SIZE_GRAMMAR: &str =
    "write 25% (of the trace's distinct pages), 4096p (pages of 4 KiB) or bytes such as 64M (K, M, G, T: KiB, MiB, …)";
/// The same where a share is of a program's memory.
const PEAK_GRAMMAR: &str = "write 75% (of the most that the program has alone), 4096p (pages of 4 KiB) or bytes such as 64M (K, M, G, T: KiB, MiB, …)";
/// The same where there is nothing to take a share of.
const BYTES_GRAMMAR: &str = "write bytes such as 512M (K, M, G, T: KiB, MiB, …) or 4096p (pages of 4 KiB)";

impl Size {
    /// Pages of 4 KiB, for a trace of `distinct` pages: rounded down, at least 1.
    pub fn pages(self, distinct: u64) -> u64 {
        let pages = match self {
            Size::Share(parts) => (u128::from(distinct) * u128::from(parts) / u128::from(100 * PERCENT_PARTS))
                .min(u128::from(u64::MAX)) as u64,
            Size::Pages(pages) => pages,
            Size::Bytes(bytes) => bytes / PAGE_BYTES,
        };
        pages.max(1)
    }

    /// An amount of which a share is of the most that a program has.
    ///
    /// # Errors
    /// Says what to write instead.
    pub fn of_peak(text: &str) -> Result<Size, String> {
        Size::parse(text, PEAK_GRAMMAR)
    }

    fn parse(text: &str, grammar: &str) -> Result<Size, String> {
        let bad = || format!("'{text}' is not a size: {grammar}");
        // No "max" and "min" here.
        if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(bad());
        }
        let size = if text.ends_with('%') {
            Size::Share(units::share(text, 100 * u128::from(PERCENT_PARTS)).map_err(|_| bad())?)
        } else if let Some(pages) = text.strip_suffix(['p', 'P']) {
            Size::Pages(pages.trim_end().parse().map_err(|_| bad())?)
        } else {
            Size::Bytes(units::size(text).map_err(|_| bad())?)
        };
        match size {
            Size::Share(0) | Size::Pages(0) | Size::Bytes(0) => {
                Err(format!("'{text}' is not a size above zero: {grammar}"))
            }
            Size::Bytes(bytes) if bytes < PAGE_BYTES => {
                Err(format!("'{text}' is less than one page of 4096 bytes: {grammar}"))
            }
            size => Ok(size),
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        Size::parse(text, SIZE_GRAMMAR)
    }
}

/// An amount of memory in whole pages, written like a [`Size`] that is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        match Size::parse(text, BYTES_GRAMMAR)? {
            Size::Share(_) => Err(format!("'{text}' is a share of nothing: {BYTES_GRAMMAR}")),
            size => Ok(Bytes(size.pages(1).saturating_mul(PAGE_BYTES))),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Share(parts) if parts % PERCENT_PARTS == 0 => write!(f, "{}%", parts / PERCENT_PARTS),
            Size::Share(parts) => write!(f, "{}%", *parts as f64 / PERCENT_PARTS as f64),
            Size::Pages(pages) => write!(f, "{pages}p"),
            Size::Bytes(bytes) => f.write_str(&bytes_text(*bytes)),
        }
    }
}

/// Pages of 4 KiB as bytes in a readable unit.
pub fn pages_text(pages: u64) -> String {
    bytes_text(pages.saturating_mul(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(text: &str, distinct: u64) -> u64 {
        text.parse::<Size>().expect(text).pages(distinct)
    }

    #[test]
    fn shares_round_down_and_are_at_least_one_page() {
        assert_eq!(pages("25%", 1000), 250);
        assert_eq!(pages("25%", 1003), 250);
        assert_eq!(pages("0.1%", 1000), 1);
        assert_eq!(pages("0.1%", 10), 1);
        assert_eq!(pages("12.5%", 8), 1);
        assert_eq!(pages("33.3333%", 3_000_000), 999_999);
        assert_eq!(pages("150%", 10), 15);
    }

    #[test]
    fn pages_and_bytes() {
        assert_eq!(pages("4096p", 1), 4096);
        assert_eq!(pages("4096", 1), 1);
        assert_eq!(pages("64M", 1), 16384);
        assert_eq!(pages("1.5G", 1), 393_216);
        assert_eq!(pages("8KiB", 1), 2);
        assert_eq!(pages("5K", 1), 1);
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in [
            "",
            "%",
            "-1%",
            "0%",
            "0p",
            "0",
            "1023",
            "x",
            "12q",
            "1.5p",
            "1e3p",
            "99999999999999999999p",
            ".",
            "NaN%",
            "20000000T",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_no_number_of_bytes() {
        assert_eq!("1.5M".parse(), Ok(Bytes(3 << 19)));
        assert_eq!("5000".parse(), Ok(Bytes(4096)));
        assert_eq!("3p".parse(), Ok(Bytes(12288)));
        for text in ["25%", "10x", "0", ""] {
            let why = text.parse::<Bytes>().expect_err(text);
            assert!(!why.contains("25% (of"), "{why}");
        }
    }

    #[test]
    fn bytes_are_readable() {
        assert_eq!(bytes_text(4096), "4 KiB");
        assert_eq!(bytes_text(1536 << 20), "1.50 GiB");
        assert_eq!(pages_text(1), "4 KiB");
        assert_eq!(bytes_text(u64::MAX), "16 EiB");
    }

    #[test]
    fn display_reads_back() {
        for text in ["25%", "0.5%", "4096p"] {
            assert_eq!(text.parse::<Size>().expect(text).to_string(), text);
        }
    }
}
