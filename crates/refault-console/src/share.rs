//! Shares as people write them: `5%` or `0.05`.

use std::str::FromStr;

use refault_core::parameter::parse_share;

/// A share above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        match parse_share(text) {
            Some(share) if share > 0.0 => Ok(Share(share)),
            _ => Err(format!("'{text}' is not a share: write 5% or 0.05, above 0 and at most 100%")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_parts() {
        assert_eq!("5%".parse(), Ok(Share(0.05)));
        assert_eq!("1".parse(), Ok(Share(1.0)));
        for bad in ["0", "0%", "101%", "-1%", "x", "NaN"] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
    }
}
