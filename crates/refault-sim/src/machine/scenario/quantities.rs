//! Sizes and times in scenario files.
//!
//! A time needs its unit, and sizes are whole pages; neither may be absurd. [`units`] reads the rest.

use refault_config::units;
use serde::{Deserialize, Deserializer, de};

use crate::machine::group::UNLIMITED;

/// Pages, from text with a unit.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

/// Nanoseconds, from text with a unit.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_size(&text).map(Size).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_time(&text).map(Time).map_err(de::Error::custom)
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: expected bytes as 512M or 4G, pages as 4096p, or max");
    if text == "max" {
        return Ok(UNLIMITED);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(wrong());
    }
    if let Some(pages) = text.strip_suffix('p') {
        return pages.trim_end().parse::<u32>().map(u64::from).map_err(|_| wrong());
    }
    let bytes = units::size(text).map_err(|_| wrong())?;
    if bytes > 16 << 50 {
        return Err(format!("'{text}' is more than 16 PiB"));
    }
    Ok(bytes / 4096)
}

fn parse_time(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a time: expected a number with ns, us, ms, s, m, h or d");
    // A time needs its unit here.
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') || text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(wrong());
    }
    let ns = units::time(text, 1).map_err(|_| wrong())?;
    if ns > 1_000_000_000_000_000_000 {
        return Err(format!("'{text}' is more than 30 years"));
    }
    Ok(ns)
}
