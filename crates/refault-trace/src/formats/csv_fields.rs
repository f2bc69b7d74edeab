//! The fields of a line of CSV, and what single fields mean: operations, kinds, times.

use super::numbers::{decimal, number, words};
use crate::Kind;
use crate::error::quote;

/// What may part fields; a blank only where the line has none of the others.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// A blank, of which several are one separator.
pub(crate) const BLANK: u8 = b' ';

/// All separators, for people.
pub(crate) const SEPARATOR_NAMES: &str = "comma, semicolon, tab, bar or blank";

/// A separator's name.
pub(crate) fn separator_name(separator: u8) -> &'static str {
    match separator {
        b',' => "comma",
        b';' => "semicolon",
        b'\t' => "tab",
        b'|' => "bar",
        _ => "blank",
    }
}

/// The separator with a name, or that is written itself.
pub(crate) fn separator_named(name: &str) -> Option<u8> {
    let known = SEPARATORS.into_iter().chain([BLANK]);
    known.into_iter().find(|separator| separator_name(*separator) == name || name.as_bytes() == [*separator])
}

/// How many of a separator a line has outside quotes.
fn count_of(line: &[u8], separator: u8) -> usize {
    fields(line, separator).map_or(0, |fields| fields.len() - 1)
}

/// The separator of a line: the most frequent one.
pub(crate) fn separator_of(line: &[u8]) -> u8 {
    let most = SEPARATORS.into_iter().rev().max_by_key(|separator| count_of(line, *separator)).unwrap_or(b',');
    match count_of(line, most) {
        0 if words(line).nth(1).is_some() => BLANK,
        0 => SEPARATORS[0],
        _ => most,
    }
}

/// The separators that may be those of the first lines, in order of preference: each line has one as often as the others
/// have it. If there is none, the most frequent one of the first line.
pub(crate) fn separators_of_lines(lines: &[&[u8]]) -> Vec<u8> {
    let Some(first) = lines.first() else { return vec![SEPARATORS[0]] };
    let is_even = |separator: &u8| {
        let count = count_of(first, *separator);
        count > 0 && lines.iter().all(|line| count_of(line, *separator) == count)
    };
    let even: Vec<u8> = SEPARATORS.into_iter().filter(is_even).collect();
    match even.is_empty() {
        false => even,
        true if is_even(&BLANK) => vec![BLANK],
        true => vec![separator_of(first)],
    }
}

pub(crate) type Field<'a> = std::borrow::Cow<'a, [u8]>;

/// Splits a line at separators outside quotes; a doubled quote inside quotes is one.
pub(crate) fn fields(line: &[u8], separator: u8) -> Result<Vec<Field<'_>>, String> {
    if separator == BLANK {
        return Ok(words(line).map(Field::Borrowed).collect());
    }
    if !line.contains(&b'"') {
        return Ok(line.split(|byte| *byte == separator).map(Field::Borrowed).collect());
    }
    let (mut fields, mut field, mut quoted, mut was_quoted) = (Vec::new(), Vec::new(), false, false);
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' if quoted => quoted = false,
            // Within a field a quote is a letter.
            b'"' if !was_quoted && field.trim_ascii().is_empty() => {
                field.clear();
                (quoted, was_quoted) = (true, true);
            }
            byte if byte == separator && !quoted => {
                fields.push(Field::Owned(std::mem::take(&mut field)));
                was_quoted = false;
            }
            byte => field.push(byte),
        }
    }
    if quoted {
        return Err("a quote is not closed on its line".to_owned());
    }
    fields.push(Field::Owned(field));
    Ok(fields)
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    /// A deletion or discard, which is no access.
    Delete,
    /// Neither moves nor deletes data.
    Other,
}

/// The operation that a field names, and whether it does so by a number.
pub(crate) fn operation_of(field: &[u8]) -> Result<(Operation, bool), String> {
    let word = field.trim_ascii().to_ascii_lowercase();
    // REST.GET.OBJECT
    let word = word
        .strip_prefix(b"rest.")
        .map_or(word.as_slice(), |rest| rest.split(|byte| *byte == b'.').next().unwrap_or(rest));
    let operation = match word {
        b"0" | b"false" => return Ok((Operation::Read, true)),
        b"1" | b"true" => return Ok((Operation::Write, true)),
        b"r" | b"read" | b"load" | b"get" | b"gets" | b"rs" | b"head" | b"gat" | b"gats" | b"get_lease"
        | b"lease_get" => Operation::Read,
        b"w" | b"write" | b"store" | b"modify" | b"set" | b"put" | b"ws" | b"add" | b"replace" | b"cas" | b"append"
        | b"prepend" | b"incr" | b"decr" | b"set_lease" | b"lease_set" | b"copy" | b"post" | b"patch" => {
            Operation::Write
        }
        b"delete" | b"del" | b"discard" | b"trim" | b"d" | b"unmap" | b"purge" => Operation::Delete,
        b"flush" | b"sync" | b"f" | b"touch" | b"options" | b"trace" | b"connect" | b"list" => Operation::Other,
        _ => {
            let quoted = quote(field);
            return Err(format!(
                "operation {quoted} is neither a read (r, read, 0) nor a write (w, write, 1): --columns operation= takes \
                 all for reads"
            ));
        }
    };
    Ok((operation, false))
}

pub(crate) fn kind_of(field: &[u8]) -> Result<Kind, String> {
    match field.trim_ascii() {
        b"anon" | b"0" => Ok(Kind::Anon),
        b"fd" | b"1" => Ok(Kind::Fd),
        b"mapped" | b"2" => Ok(Kind::Mapped),
        _ => Err(format!("kind {} is not anon, fd or mapped", quote(field))),
    }
}

/// The unit in which a column counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// 100 ns, as Windows counts from 1601.
    FileTime,
}

impl TimeUnit {
    const fn nanoseconds(self) -> u64 {
        match self {
            TimeUnit::Seconds => 1_000_000_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Nanoseconds => 1,
            TimeUnit::FileTime => 100,
        }
    }

    /// The unit in words, and the name of a column of it on the command line.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            TimeUnit::Seconds => ("seconds", "time_s"),
            TimeUnit::Milliseconds => ("milliseconds", "time_ms"),
            TimeUnit::Microseconds => ("microseconds", "time_us"),
            TimeUnit::Nanoseconds => ("nanoseconds", "time_ns"),
            TimeUnit::FileTime => ("units of 100 ns", "filetime"),
        }
    }

    /// The unit in which this would be a time of the last or the next decades, if it cannot be in seconds.
    pub(crate) fn of_magnitude(time: f64) -> TimeUnit {
        match time {
            time if time < 1e11 => TimeUnit::Seconds,
            time if time < 1e14 => TimeUnit::Milliseconds,
            time if time < 1e17 => TimeUnit::Microseconds,
            // The years 1917 to 3185 from 1601, against 1973 and more from 1970.
            time if time < 5e17 => TimeUnit::FileTime,
            _ => TimeUnit::Nanoseconds,
        }
    }
}

/// The number in a field of times, as it stands there.
pub(crate) fn time_number(field: &[u8]) -> Result<f64, String> {
    let value = std::str::from_utf8(field).ok().and_then(|text| text.trim().parse::<f64>().ok());
    match value {
        Some(value) if value >= 0.0 && value.is_finite() => Ok(value),
        Some(_) => Err(format!("time {} is negative or not finite", quote(field))),
        None => Err(format!(
            "time {} is not a number: write seconds since some point, or leave times out by --columns time=",
            quote(field)
        )),
    }
}

/// Nanoseconds of a time with a point, exactly; `None` if it is written otherwise or too long.
fn decimal_time(field: &[u8], nanoseconds: u64) -> Option<u64> {
    let point = memchr::memchr(b'.', field)?;
    let (whole, part) = (decimal(&field[..point])?, &field[point + 1..]);
    let scale = 10u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part = u128::from(decimal(part)?) * u128::from(nanoseconds) / u128::from(scale);
    whole.checked_mul(nanoseconds)?.checked_add(u64::try_from(part).ok()?)
}

/// Nanoseconds of a time.
pub(crate) fn time_of(field: &[u8], unit: TimeUnit) -> Result<u64, String> {
    let nanoseconds = unit.nanoseconds();
    let time = match number(field, "time") {
        Ok(whole) => whole.checked_mul(nanoseconds),
        Err(_) => {
            let rounded = time_number(field)? * nanoseconds as f64;
            let rounded = Some(rounded).filter(|time| *time < u64::MAX as f64).map(|time| time as u64);
            decimal_time(field.trim_ascii(), nanoseconds).or(rounded)
        }
    };
    time.ok_or_else(|| {
        let (words, _) = unit.words();
        format!("time {} is more than 584 years in {words}: name its unit, such as --columns time_us=…", quote(field))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_our_days_are_told_by_their_magnitude() {
        for (text, unit) in [
            ("1577808000", TimeUnit::Seconds),
            ("1577808000000", TimeUnit::Milliseconds),
            ("1577808000000046", TimeUnit::Microseconds),
            ("128166372003061629", TimeUnit::FileTime),
            ("1577808000000046000", TimeUnit::Nanoseconds),
            ("0.5", TimeUnit::Seconds),
        ] {
            let time = time_number(text.as_bytes()).expect("a number");
            assert_eq!(TimeUnit::of_magnitude(time), unit, "{text}");
            assert!(time_of(text.as_bytes(), unit).is_ok(), "{text}");
        }
        let why = time_of(b"1577808000000046", TimeUnit::Seconds).expect_err("absurd");
        assert!(why.contains("more than 584 years") && why.contains("time_us="), "{why}");
        assert!(time_of(b"1e300", TimeUnit::Nanoseconds).is_err());
        let exact = time_of(b"1577808000.123456001", TimeUnit::Seconds);
        assert_eq!(exact, Ok(1_577_808_000_123_456_001), "more digits than a floating-point number has");
    }

    #[test]
    fn a_separator_is_one_that_each_line_has_as_often() {
        let keys: [&[u8]; 2] = [b"1,a;b;c;d,300", b"2,a;b,300"];
        assert_eq!(separators_of_lines(&keys), [b',']);
        let either: [&[u8]; 2] = [b"1,a;b,300", b"2,a;c,300"];
        assert_eq!(separators_of_lines(&either), [b',', b';']);
        let header: [&[u8]; 2] = [b"time;key", b"0,5;7"];
        assert_eq!(separators_of_lines(&header), [b';']);
        let quotes = fields(b"1,a\"b,c\"d, \"e,\"\"f\" ,\"\"", b',').expect("closed");
        let quotes: Vec<&[u8]> = quotes.iter().map(AsRef::as_ref).collect();
        assert_eq!(quotes, [&b"1"[..], b"a\"b", b"c\"d", b"e,\"f ", b""]);
        assert_eq!(["tab", ";", "blank", "x"].map(separator_named), [Some(b'\t'), Some(b';'), Some(BLANK), None]);
    }

    #[test]
    fn blanks_part_fields_only_where_nothing_else_does() {
        assert_eq!(separator_of(b"1 7 10"), BLANK);
        assert_eq!(separator_of(b"1 7,10"), b',');
        let lines: [&[u8]; 2] = [b"1 a,b 10", b"2 c 10"];
        assert_eq!(separators_of_lines(&lines), [BLANK]);
        assert_eq!(separator_of(b"17"), b',');
        assert_eq!(fields(b" 1  7 10", BLANK).map(|fields| fields.len()), Ok(3));
    }
}
