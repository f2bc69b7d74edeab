//! `name{key=value,…}`: how policies with parameters are written, declared and checked.
//!
//! A list is separated by commas outside braces, so `mglru{tiers=1,swappiness=10},lru` is two policies.

use std::fmt;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// A whole number, both ends included.
    Integer(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Range::Integer(low, u64::MAX) => write!(f, "{low}…"),
            Range::Integer(low, high) => write!(f, "{low}…{high}"),
            Range::Choice(words) => f.write_str(&words.join("|")),
        }
    }
}

/// A parameter as declared in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// The value taken when it is not given, written as a user would.
    pub default: &'static str,
    /// What is allowed.
    pub range: Range,
    /// What it does, with its unit.
    pub meaning: &'static str,
}

/// `name{key=value,…}` taken apart, not checked yet.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Call {
    /// The name before the brace.
    pub name: String,
    /// Keys and values in the order written.
    pub arguments: Vec<(String, String)>,
}

impl Call {
    /// Takes one call apart.
    pub fn parse(text: &str) -> Result<Call, String> {
        let text = text.trim();
        let (name, inside) = match text.split_once('{') {
            None => (text, ""),
            Some((name, rest)) => match rest.strip_suffix('}') {
                Some(inside) if !inside.contains(['{', '}']) => (name, inside),
                _ => return Err(format!("'{text}' has unbalanced braces: write name{{key=value,key=value}}")),
            },
        };
        if name.contains('}') {
            return Err(format!("'{text}' has unbalanced braces: write name{{key=value,key=value}}"));
        }
        let mut arguments: Vec<(String, String)> = Vec::new();
        for pair in inside.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("'{pair}' in '{text}' has no value: write key=value"));
            };
            let (key, value) = (key.trim().to_string(), value.trim().to_string());
            if arguments.iter().any(|(other, _)| *other == key) {
                return Err(format!("'{key}' is given twice in '{text}': keep one"));
            }
            arguments.push((key, value));
        }
        Ok(Call { name: name.trim().to_string(), arguments })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (i, (key, value)) in self.arguments.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { '{' } else { ',' })?;
        }
        if self.arguments.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

/// Splits at commas that are not inside braces.
pub fn split_list(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth <= 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Checked values of all parameters of one call.
#[derive(Clone, Debug)]
pub struct Values {
    values: Vec<(&'static str, String)>,
}

impl Values {
    /// Checks a call's arguments against the declaration and fills in the defaults.
    pub fn check(call: &Call, declared: &'static [Parameter]) -> Result<Values, String> {
        for (key, _) in &call.arguments {
            if !declared.iter().any(|parameter| parameter.name == key) {
                return Err(if declared.is_empty() {
                    format!("'{}' has no parameter '{key}': it has none", call.name)
                } else {
                    let names: Vec<&str> = declared.iter().map(|parameter| parameter.name).collect();
                    format!("'{}' has no parameter '{key}': it has {}", call.name, names.join(", "))
                });
            }
        }
        let mut values = Vec::with_capacity(declared.len());
        for parameter in declared {
            let given = call.arguments.iter().find(|(key, _)| key == parameter.name);
            let value = given.map_or(parameter.default, |(_, value)| value);
            let fits = match parameter.range {
                Range::Integer(low, high) => value.parse::<u64>().is_ok_and(|v| (low..=high).contains(&v)),
                Range::Choice(words) => words.contains(&value),
            };
            if !fits {
                let (name, range) = (parameter.name, parameter.range);
                return Err(format!("'{value}' does not do for '{name}' of '{}': it takes {range}", call.name));
            }
            values.push((parameter.name, value.to_string()));
        }
        Ok(Values { values })
    }

    /// A whole number declared as [`Range::Integer`].
    pub fn integer(&self, name: &str) -> u64 {
        self.text(name).parse().expect("invariant: checked against Range::Integer")
    }

    /// A word declared as [`Range::Choice`].
    pub fn text(&self, name: &str) -> &str {
        let found = self.values.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.as_str()).expect("invariant: only declared parameters are asked for")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Parameter] = &[
        Parameter { name: "tiers", default: "4", range: Range::Integer(1, 4), meaning: "" },
        Parameter { name: "variant", default: "a", range: Range::Choice(&["a", "b"]), meaning: "" },
    ];

    #[test]
    fn commas_in_braces_do_not_split() {
        assert_eq!(split_list("a{x=1,y=2},b,c{z=3}"), ["a{x=1,y=2}", "b", "c{z=3}"]);
        assert_eq!(split_list(" a , ,b,"), [" a ", "b"]);
        assert_eq!(split_list("a}b,c"), ["a}b", "c"]);
        assert!(split_list("").is_empty());
    }

    #[test]
    fn calls_are_taken_apart_and_written_back() {
        let call = Call::parse("mglru{ tiers = 1 , variant=b }").expect("well-formed");
        assert_eq!(call.to_string(), "mglru{tiers=1,variant=b}");
        assert_eq!(Call::parse("lru{}").expect("well-formed").to_string(), "lru");
        for bad in ["a{", "a}", "a{x=1", "a{{x=1}}", "a{x}", "a{x=1,x=2}", "a{x=1}b"] {
            assert!(Call::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_checked_and_defaulted() {
        let check = |text: &str| Values::check(&Call::parse(text).expect("well-formed"), DECLARED);
        let values = check("p{tiers=2}").expect("in range");
        assert_eq!((values.integer("tiers"), values.text("variant")), (2, "a"));
        assert_eq!(check("p{tiers=9}").unwrap_err(), "'9' does not do for 'tiers' of 'p': it takes 1…4");
        assert!(check("p{variant=c}").unwrap_err().contains("a|b"));
        assert!(check("p{nope=1}").unwrap_err().contains("it has tiers, variant"));
    }
}
