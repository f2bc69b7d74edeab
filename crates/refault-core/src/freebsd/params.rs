//! What can be chosen about FreeBSD's page queues (spec: freebsd §0).

use crate::parameter::{Parameter, ParameterError, Parameters, parse_switch};

/// Whose behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Release 10.4: the idle pass and the active scan go by elapsed time, sequential faults cache pages behind them.
    V10,
    /// Development of May and June 2015: sequential faults deactivate the chunk behind them instead.
    V2015,
    /// Release 12: no cached pages, a queue for dirty pages, a controller for what is freed.
    V12,
}

/// Parameters of [`super::Freebsd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreebsdParams {
    /// Whose behaviour.
    pub version: Version,
    /// Evicted clean pages stay cached until their frame is reused.
    pub cached_pages: bool,
    /// Cached pages have free queues of their own: true before their retirement, false after.
    pub cache_pool: bool,
    /// The "don't need" treatment spares some pages by a running count, as the code of April 2015 did.
    pub sparing_dont_need: bool,
}

impl Default for FreebsdParams {
    fn default() -> FreebsdParams {
        FreebsdParams { version: Version::V2015, cached_pages: true, cache_pool: true, sparing_dont_need: true }
    }
}

impl FreebsdParams {
    /// Release 12.
    pub fn laundry() -> FreebsdParams {
        FreebsdParams { version: Version::V12, sparing_dont_need: false, ..FreebsdParams::no_cache() }
    }

    /// The defaults without cached pages: the daemon frees instead.
    pub fn no_cache() -> FreebsdParams {
        FreebsdParams { cached_pages: false, cache_pool: false, ..FreebsdParams::default() }
    }
}

impl Parameters for FreebsdParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "version",
            default: "2015",
            values: "10, 2015 or 12",
            meaning: "release 10.4, the development of May and June 2015, or release 12: laundry queue, no cached pages",
        },
        Parameter {
            name: "cache_pool",
            default: "yes (freebsd), no (freebsd-nocache, version=12)",
            values: "yes or no; no with version=12",
            meaning: "cached pages have free queues of their own (before the pool was retired) or not (after)",
        },
        Parameter {
            name: "sparing_dont_need",
            default: "yes",
            values: "yes or no",
            meaning: "treating pages as not needed spares some of them by a running count",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let invalid = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "version" => {
                self.version = match value {
                    "10" => Version::V10,
                    "2015" => Version::V2015,
                    "12" => {
                        (self.cached_pages, self.cache_pool) = (false, false);
                        Version::V12
                    }
                    _ => return Err(invalid()),
                }
            }
            "cache_pool" if self.version == Version::V12 && value != "no" => return Err(invalid()),
            "cache_pool" => self.cache_pool = parse_switch(value).ok_or_else(invalid)?,
            "sparing_dont_need" => self.sparing_dont_need = parse_switch(value).ok_or_else(invalid)?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::{Call, fill};

    #[test]
    fn release_12_has_no_cache_pool_in_whatever_order_they_are_named() {
        let set = |text: &str| fill(FreebsdParams::default(), &Call::parse(text).expect("readable"));
        for wrong in ["freebsd{version=12,cache_pool=yes}", "freebsd{cache_pool=yes,version=12}"] {
            assert!(set(wrong).is_err(), "{wrong}");
        }
        assert_eq!(set("freebsd{cache_pool=no,version=12}"), set("freebsd{version=12}"));
        assert!(set("freebsd{cache_pool=yes,version=10}").expect("it had one").cache_pool);
    }
}
