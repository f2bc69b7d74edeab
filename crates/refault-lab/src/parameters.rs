//! Lists of `name{key=value,…}`, as policies with parameters are written.
//!
//! A list is separated by commas outside braces, so `mglru{tiers=1,swappiness=10},lru` is two policies. Which keys there
//! are and what they take is the policies' own business ([`refault_core::parameter`]).

pub use refault_core::parameter::{Call, fill};

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
}
