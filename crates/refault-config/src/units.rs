//! Numbers as people write them (spec: tools §1.3): thousands commas, `min` and `max`, binary size units, times,
//! percentages.
//!
//! The one parser of such numbers: configurations, scenarios and the command line read theirs with it. Errors go on
//! after the name of what was read: "must start with a number".
//!
//! ```
//! use refault_config::units;
//!
//! assert_eq!(units::size("1.5G"), Ok(3 << 29));
//! assert_eq!(units::time("250 ms", 1), Ok(250_000_000)); // in nanoseconds
//! assert!(units::size("many").is_err());
//! ```

/// A number and the unit behind it. `max` is 2^64 - 1, `min` is 0, both without a unit.
fn split(text: &str) -> Result<(&str, &str), &'static str> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err("must not be negative");
    }
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ',' || c == '.')).unwrap_or(text.len());
    if end == 0 {
        return Err("must start with a number");
    }
    Ok((&text[..end], text[end..].trim()))
}

/// `number` times `factor`, exactly, rounded down.
fn scale(number: &str, factor: u128) -> Result<u128, &'static str> {
    let digits: String = number.chars().filter(|&c| c != ',').collect();
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err("is not a number");
    }
    // Below 10^15 times the largest factor nothing overflows.
    if fraction.len() > 15 {
        return Err("has more than 15 digits behind the point");
    }
    let parse = |digits: &str| match digits {
        "" => Ok(0),
        digits => digits.parse::<u128>().map_err(|_| "is not a number"),
    };
    let (whole, parts) = (parse(whole)?, parse(fraction)?);
    let rest = parts * factor / 10u128.pow(fraction.len() as u32);
    whole.checked_mul(factor).and_then(|product| product.checked_add(rest)).ok_or("is too large")
}

fn extreme(text: &str) -> Option<u64> {
    match text.trim() {
        "max" => Some(u64::MAX),
        "min" => Some(0),
        _ => None,
    }
}

fn narrow(value: u128) -> Result<u64, &'static str> {
    u64::try_from(value).map_err(|_| "is too large")
}

/// A bare whole number.
pub fn integer(text: &str) -> Result<u64, &'static str> {
    if let Some(value) = extreme(text) {
        return Ok(value);
    }
    match split(text)? {
        (number, "") if !number.contains('.') => narrow(scale(number, 1)?),
        (_, "") => Err("must be a whole number"),
        _ => Err("must be a number without a unit"),
    }
}

/// Bytes: `4096`, `4K`, `4 KiB`, `1.5G`; all units are binary.
pub fn size(text: &str) -> Result<u64, &'static str> {
    if let Some(value) = extreme(text) {
        return Ok(value);
    }
    if let Some(hex) = text.trim().strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map_err(|_| "is not a hexadecimal number");
    }
    let (number, unit) = split(text)?;
    let unit = unit.to_ascii_uppercase();
    let letter = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let power = match letter {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return Err("has an unknown unit; use B, K, M, G, T, P or E"),
    };
    narrow(scale(number, 1 << (10 * power))?)
}

/// Bytes in the largest binary unit that keeps at least one digit before the point: `1.5 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match value {
        v if unit == 0 || v >= 100.0 || v.fract() == 0.0 => format!("{v:.0} {}", UNITS[unit]),
        v if v >= 10.0 => format!("{v:.1} {}", UNITS[unit]),
        v => format!("{v:.2} {}", UNITS[unit]),
    }
}

/// Time; without a unit it is taken in the key's own, of `unit_ns` nanoseconds, which is also what is returned.
pub fn time(text: &str, unit_ns: u128) -> Result<u64, &'static str> {
    if let Some(value) = extreme(text) {
        return Ok(value);
    }
    let (number, unit) = split(text)?;
    let ns = match unit {
        "" => unit_ns,
        "ns" => 1,
        "us" | "µs" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err("has an unknown unit; use ns, us, ms, s, m, h or d"),
    };
    narrow(scale(number, ns)? / unit_ns)
}

/// A share of `whole` parts: a bare number counts parts, a percentage is converted.
pub fn share(text: &str, whole: u128) -> Result<u64, &'static str> {
    if let Some(value) = extreme(text) {
        return Ok(value);
    }
    match split(text)? {
        (number, "") => narrow(scale(number, 1)?),
        (number, "%") => narrow(scale(number, whole)? / 100),
        _ => Err("has an unknown unit; use %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_the_tool_takes_them() {
        assert_eq!(size("100MB"), Ok(104_857_600));
        assert_eq!(size("4 KiB"), Ok(4096));
        assert_eq!(size("1,024"), Ok(1024));
        assert_eq!(size("1.5K"), Ok(1536));
        assert_eq!(size("0x1000"), Ok(4096));
        assert_eq!(size("8kib"), Ok(8192));
        assert_eq!(size("9007199254740993.5"), Ok((1 << 53) + 1), "more digits than a float has");
        assert_eq!(size("0.1G"), Ok(107_374_182));
        assert_eq!(size("max"), Ok(u64::MAX));
        assert!(size("4 pages").is_err() && size("").is_err() && size("16E").is_err() && size("-1").is_err());
        assert!(size(".").is_err() && size("1.2.3").is_err() && size("1.0000000000000001").is_err());
        assert_eq!(time("5 ms", 1000), Ok(5000));
        assert_eq!(time("5000", 1000), Ok(5000));
        assert_eq!(time("2m", 1_000_000), Ok(120_000));
        assert_eq!(time("min", 1000), Ok(0));
        assert!(time("5 weeks", 1000).is_err());
        assert_eq!(share("50.1 %", 10_000), Ok(5010));
        assert_eq!(share("400", 10_000), Ok(400));
        assert_eq!(integer("1,000"), Ok(1000));
        assert!(integer("1.5").is_err() && integer("3 K").is_err());
    }
}
