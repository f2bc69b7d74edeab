//! Named parameters of policies: `name{key=value,…}` and what it may say.
//!
//! A [`Call`] is what was written; the policy's own parameter struct knows its keys, their defaults and what is wrong
//! with a value.
//!
//! ```
//! use refault_core::parameter::{Call, parse_share, split_list};
//!
//! let call = Call::parse("mglru{tiers=1}")?;
//! assert_eq!((call.name.as_str(), call.arguments.len()), ("mglru", 1));
//! assert_eq!(split_list("mglru{tiers=1,swappiness=10},lru"), ["mglru{tiers=1,swappiness=10}", "lru"]);
//! assert_eq!(parse_share("25%"), Some(0.25));
//! # Ok::<(), String>(())
//! ```

use std::fmt;

/// One parameter, for the list that people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// The default, as it would be written.
    pub default: &'static str,
    /// Which values are allowed.
    pub values: &'static str,
    /// What it does, in one sentence.
    pub meaning: &'static str,
}

/// A set of parameters with defaults, filled from text one key at a time.
pub trait Parameters: Default {
    /// Every key that [`Parameters::set`] knows.
    const LIST: &'static [Parameter];

    /// Sets one parameter from its text. Fails if there is no such key or the value is not allowed; nothing has
    /// changed then.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError>;
}

/// Why a parameter was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// There is no such key.
    Unknown {
        /// The key that was asked for.
        name: String,
        /// The keys that there are.
        known: &'static [Parameter],
    },
    /// The value is not allowed.
    Invalid {
        /// The key.
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The values that are allowed.
        allowed: &'static str,
    },
}

impl std::fmt::Display for ParameterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ParameterError::Unknown { name, known: [] } => write!(f, "no parameter '{name}': there are none"),
            ParameterError::Unknown { name, known } => {
                write!(f, "no parameter '{name}'; known: ")?;
                for (index, parameter) in known.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { ", " }, parameter.name)?;
                }
                Ok(())
            }
            ParameterError::Invalid { name, value, allowed } => write!(f, "{name}={value} is not allowed: {allowed}"),
        }
    }
}

impl std::error::Error for ParameterError {}

impl ParameterError {
    /// The key is not in `known`.
    pub fn unknown(name: &str, known: &'static [Parameter]) -> ParameterError {
        ParameterError::Unknown { name: name.to_owned(), known }
    }

    /// The value of a listed parameter is not allowed.
    pub fn invalid(name: &str, value: &str, list: &'static [Parameter]) -> ParameterError {
        match list.iter().find(|parameter| parameter.name == name) {
            Some(parameter) => {
                ParameterError::Invalid { name: parameter.name, value: value.to_owned(), allowed: parameter.values }
            }
            None => ParameterError::unknown(name, list),
        }
    }
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
    ///
    /// # Errors
    /// Says what is wrong with it, and how it is written.
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

/// Splits a list of calls at commas that are not inside braces: `mglru{tiers=1,swappiness=10},lru` is two.
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

/// A policy's defaults with the arguments of a call in their place.
///
/// # Errors
/// The first argument that is not allowed, by itself or beside the others.
pub fn fill<P: Parameters>(mut parameters: P, call: &Call) -> Result<P, ParameterError> {
    // Once more with all of them known: what comes later may forbid what came before.
    for (key, value) in call.arguments.iter().chain(&call.arguments) {
        parameters.set(key, value)?;
    }
    Ok(parameters)
}

/// A share of something, 0 to 1, from `25%` or `0.25`.
pub fn parse_share(text: &str) -> Option<f64> {
    let (number, divisor) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().ok()? / divisor;
    (0.0..=1.0).contains(&share).then_some(share)
}

/// A whole number from `low` to `high`.
pub fn parse_whole(text: &str, low: u64, high: u64) -> Option<u64> {
    text.parse().ok().filter(|value| (low..=high).contains(value))
}

/// `yes` or `no`.
pub fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// The parameters of a policy that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoParameters;

impl Parameters for NoParameters {
    const LIST: &'static [Parameter] = &[];

    fn set(&mut self, name: &str, _value: &str) -> Result<(), ParameterError> {
        Err(ParameterError::unknown(name, Self::LIST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!(parse_share("25%"), Some(0.25));
        assert_eq!(parse_share("0.01"), Some(0.01));
        assert_eq!(parse_share("1"), Some(1.0));
        for wrong in ["", "%", "-1%", "101%", "1.5", "NaN", "inf", "x"] {
            assert_eq!(parse_share(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn whole_numbers_and_switches() {
        assert_eq!((parse_whole("7", 0, 9), parse_whole("10", 0, 9), parse_whole("-1", 0, 9)), (Some(7), None, None));
        assert_eq!((parse_switch("yes"), parse_switch("no"), parse_switch("true")), (Some(true), Some(false), None));
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
    fn commas_in_braces_do_not_split() {
        assert_eq!(split_list("a{x=1,y=2},b,c{z=3}"), ["a{x=1,y=2}", "b", "c{z=3}"]);
        assert_eq!(split_list(" a , ,b,"), [" a ", "b"]);
        assert_eq!(split_list("a}b,c"), ["a}b", "c"]);
        assert!(split_list("").is_empty());
    }

    #[test]
    fn errors_name_what_is_known() {
        let error = NoParameters.set("window", "1").unwrap_err();
        assert_eq!(error.to_string(), "no parameter 'window': there are none");
    }
}
