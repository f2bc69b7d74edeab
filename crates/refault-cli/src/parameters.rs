//! `name{key=value,…}`: how policies with parameters are written.
//!
//! A list is separated by commas outside braces, so `mglru{tiers=1,swappiness=10},lru` is two policies. Which keys there
//! are and what they take is the policies' own business ([`refault_core::parameter`]).

use std::fmt;

use refault_core::parameter::{ParameterError, Parameters};

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

/// A policy's defaults with the arguments of a call in their place.
pub fn fill<P: Parameters>(mut parameters: P, call: &Call) -> Result<P, ParameterError> {
    for (key, value) in &call.arguments {
        parameters.set(key, value)?;
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
