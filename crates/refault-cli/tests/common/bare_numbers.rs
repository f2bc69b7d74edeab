//! Numbers of the kernel that stand in code without their names: calls, flags, errors, options and modes.
//!
//! What `refault_linux` names is to be called by its name. A scan of the text finds what looks like such a number: octal
//! and hexadecimal literals outside of constants, negative ones, literals among a call's arguments, and constants that have
//! a kernel's name and its value. Machine code is made of bytes, so files of it are left out.

use std::collections::BTreeMap;

use refault_linux::{advice, calls, clone, errno, files, flags, options, requests, signals, sockets};

/// Functions that make calls. The first argument is the call's number, the rest go to the kernel.
const MAKERS: [&str; 6] = ["call(", "plain(", "make(", "native(", "serve_call(", "refault_clone("];

/// The kernel's constants by name, as code outside of `refault_linux` may not define them.
pub struct Known(BTreeMap<String, Vec<i64>>);

impl Known {
    pub fn new() -> Known {
        let mut known: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let mut add = |name: &str, number: i64| known.entry(name.to_uppercase()).or_default().push(number);
        calls::ALL.iter().for_each(|(number, name)| add(name, *number as i64));
        clone::FLAGS.iter().for_each(|flag| add(flag.name, flag.bit as i64));
        let lists = [advice::ALL, errno::ALL, files::ALL, flags::ALL, options::ALL, requests::ALL];
        for (name, number) in lists.into_iter().chain([signals::ALL, sockets::ALL]).flatten() {
            add(name, *number);
            // `FIXED` for `MAP_FIXED`, and for `MREMAP_FIXED`.
            if let Some((_, rest)) = name.split_once('_') {
                add(rest, *number);
            }
        }
        Known(known)
    }

    /// What of a source is such a number, as lines.
    pub fn found(&self, text: &str) -> Vec<String> {
        let text = without_comments(text);
        let mut found: Vec<String> =
            text.lines().filter(|line| self.is_wrong(line)).map(|line| line.trim().to_owned()).collect();
        for maker in MAKERS {
            for (at, _) in text.match_indices(maker) {
                let before = &text[..at];
                let is_call = before.ends_with("sys::") || before.ends_with("frame::") || !before.ends_with(is_of_name);
                if is_call && !before.ends_with("fn ") {
                    let arguments = arguments(&text[at + maker.len()..]);
                    if literals(arguments).any(|literal| literal.is_argument() && !literal.is_small()) {
                        found.push(format!("{maker}{arguments}"));
                    }
                }
            }
        }
        found
    }

    fn is_wrong(&self, line: &str) -> bool {
        if let Some((name, value)) = constant(line) {
            let is_known = self.0.get(name).is_some_and(|numbers| value.is_some_and(|value| numbers.contains(&value)));
            return is_known || literals(line).any(|literal| literal.text.starts_with("0o"));
        }
        let is_assembly = line.trim_start().starts_with('"') && line.contains(['%', '$']);
        if is_assembly {
            // A number that is loaded for the kernel, or compared with its answer.
            return ["$-", "mov $"].iter().any(|start| {
                let behind = line.split_once(start).map(|(_, rest)| rest);
                behind.is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit() && next != '1'))
                    || behind.is_some_and(|rest| {
                        rest.starts_with("1") && rest[1..].starts_with(|c: char| c.is_ascii_digit())
                    })
            });
        }
        literals(line).any(|literal| literal.is_octal_or_of_bits() || literal.is_error())
    }
}

/// Name and value of a constant that is a literal.
fn constant(line: &str) -> Option<(&str, Option<i64>)> {
    let (_, rest) = line.split_once("const ")?;
    let (name, rest) = rest.split_once(':')?;
    let (_, value) = rest.split_once(" = ")?;
    Some((name.trim(), number(value.trim_end_matches(';').trim())))
}

fn number(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let digits = digits.replace('_', "");
    let parsed = match digits.get(..2) {
        Some("0x") => i64::from_str_radix(&digits[2..], 16),
        Some("0o") => i64::from_str_radix(&digits[2..], 8),
        _ => digits.parse(),
    };
    parsed.ok().map(|number| sign * number)
}

/// The text without comments and tests.
fn without_comments(text: &str) -> String {
    let code = text.split("\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().map(|line| {
        let is_said = line.trim_start().starts_with('"') && line.trim_end().ends_with(',') && line.contains('{');
        if is_said && !line.contains('%') {
            return "";
        }
        let comment = line.match_indices("//").find(|(at, _)| line[..*at].matches('"').count().is_multiple_of(2));
        comment.map_or(line, |(at, _)| &line[..at])
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '.' | ':')
}

/// A call's arguments, up to its closing bracket.
fn arguments(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth < 0
    });
    &text[..end.unwrap_or(text.len())]
}

struct Literal<'a> {
    before: &'a str,
    text: &'a str,
}

impl Literal<'_> {
    /// Whether it is a mode or a flag. Longer numbers mix bits.
    fn is_octal_or_of_bits(&self) -> bool {
        let digits = self.text.strip_prefix("0x").map(|digits| digits.replace('_', "").len());
        self.text.starts_with("0o") || digits.is_some_and(|digits| digits <= 8)
    }

    /// Whether it is negative, but for a -1 that no function returns.
    fn is_error(&self) -> bool {
        let Some(before) = self.before.strip_suffix('-') else { return false };
        let before = before.trim_end();
        let returns = before.ends_with("return") || before.ends_with("Err(");
        let is_negative = returns || before.is_empty() || before.ends_with(['(', ',', '=', '>', '{', '[', '|', '&']);
        is_negative && (returns || self.text != "1")
    }

    /// Whether it goes to a call: it is neither an index nor a length of an array.
    fn is_argument(&self) -> bool {
        let before = self.before.trim_end();
        let is_index =
            before.strip_suffix('[').is_some_and(|before| before.ends_with(|c: char| is_of_name(c) || c == ']'));
        let is_first = before.is_empty();
        is_first || !is_index && !before.ends_with(';')
    }

    /// Nothing, or one thing.
    fn is_small(&self) -> bool {
        matches!(self.text, "0" | "1") && !self.before.trim_end().is_empty()
    }
}

/// The numbers of a text, in order.
fn literals(text: &str) -> impl Iterator<Item = Literal<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + text[at..].find(|letter: char| letter.is_ascii_digit())?;
            let length = text[start..].find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let end = length.map_or(text.len(), |length| start + length);
            at = end;
            if !text[..start].ends_with(is_of_name) || text[..start].ends_with("..") {
                return Some(Literal { before: &text[..start], text: &text[start..end] });
            }
        }
    })
}

#[test]
fn numbers_without_names_are_found() {
    let known = Known::new();
    let wrong = [
        "const FSTAT: usize = 5;",
        "    const GETFD: usize = 1;",
        "const EINVAL: isize = -22;",
        "const CLONE_VM: u64 = 0x100;",
        "const MAYMOVE: usize = 1;",
        "const MODE: u32 = 0o100_600;",
        "return -22;",
        "return -1;",
        "let Some(action) = wanted else { return -14 };",
        "_ => -22,",
        "let before = make(12, [0; 6]) as usize;",
        "sys::call(SYS_getrlimit, [7, limit.as_mut_ptr() as usize, 0, 0, 0, 0]);",
        "sys::call(SYS_rt_sigprocmask, [\n    how, 0, 0, 8, 0, 0]);",
        "frame::refault_clone(56, flags, top, 0, 0, 0, 0)",
        "sys::call(SYS_mprotect, [stubs, bytes, 5, 0, 0, 0])",
        "match status & 0o170_000 {",
        "registers[FLAGS] &= !(0x400 | 0x1_0000);",
        "    \"  mov $15, %eax\",",
        "    \"  cmp $-14, %rax\",",
    ];
    let right = [
        "const FREE: u32 = 0;",
        "const TIME: usize = 16;",
        "let before = make(SYS_brk, [0; 6]) as usize;",
        "plain(SYS_ptrace, [request, arguments[3], 0, 1, 0, 0]);",
        "OWN.store(-1, Ordering::Relaxed); // 0o170_000",
        "let behind = after - 2;",
        "    \"  mov $1, %eax\",",
        "pub(crate) fn make(number: usize, arguments: [usize; 6]) -> isize {",
    ];
    wrong.iter().for_each(|line| assert!(!known.found(line).is_empty(), "{line}"));
    right.iter().for_each(|line| assert_eq!(known.found(line), Vec::<String>::new()));
}
