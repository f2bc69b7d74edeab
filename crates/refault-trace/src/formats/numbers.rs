//! Fields of text: words, numbers, and what is wrong with them.

use super::PAGE_BYTES;
use crate::Entry;
use crate::error::quote;

/// The fields between blanks.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A whole number that is not negative: decimal, or hexadecimal after `0x`.
pub(crate) fn number(field: &[u8], name: &str) -> Result<u64, String> {
    let field = field.trim_ascii();
    let parsed = match field {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits),
        digits => decimal(digits),
    };
    parsed.ok_or_else(|| {
        let problem = match field {
            [] => return format!("{name} is missing"),
            [b'-', rest @ ..] if decimal(rest).is_some() => "is negative",
            [b'0', b'x' | b'X', rest @ ..] if rest.iter().all(u8::is_ascii_hexdigit) && !rest.is_empty() => {
                "is too large"
            }
            digits if digits.iter().all(u8::is_ascii_digit) => "is too large",
            digits if hexadecimal(digits).is_some() => "is not a whole number; a hexadecimal one needs 0x before it",
            _ => "is not a whole number",
        };
        format!("{name} {} {problem}", quote(field))
    })
}

pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| Some(value << 4 | u64::from((*digit as char).to_digit(16)?)))
}

/// Checks a page number.
pub(crate) fn page(number: u64) -> Result<u64, String> {
    if number > Entry::MAX_PAGE {
        return Err(format!("page {number} is beyond the largest page number, 2^56 - 1"));
    }
    Ok(number)
}

/// The first page and the number of pages that `size` bytes from `offset` touch; none if there are no bytes.
pub(crate) fn pages_touched(offset: u64, size: u64, limit: u64) -> Result<(u64, u64), String> {
    if size > limit {
        return Err(format!("a request of {size} bytes is beyond the limit of {limit}"));
    }
    if size == 0 {
        return Ok((offset / PAGE_BYTES, 0));
    }
    let last = offset.checked_add(size - 1).ok_or_else(|| format!("{size} bytes from {offset} end beyond 2^64"))?;
    let first = offset / PAGE_BYTES;
    Ok((first, last / PAGE_BYTES - first + 1))
}
