//! Parameters of [`super::Adaptive`]: switches for each part, so that its worth can be measured.

use crate::parameter::{Parameter, ParameterError, Parameters, parse_share, parse_switch};

/// Which parts are on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveParams {
    /// Whether recency may lead. Without another leader it does.
    pub recency: bool,
    /// Whether reuse distance may lead.
    pub reuse: bool,
    /// Whether frequency may lead.
    pub frequency: bool,
    /// Whether the loss to LRU is bounded.
    pub guard: bool,
    /// Share of memory's pages that the bound allows to be lost beside, once, from 0 to 1: what may be staked before
    /// anything was won. Without meaning where no hits are seen.
    pub head_start: f64,
    /// Share of memory that is evicted between two looks at a page's accessed bit, above 0 and at most 1. Without
    /// meaning where each access is reported.
    pub interval: f64,
}

impl Default for AdaptiveParams {
    fn default() -> AdaptiveParams {
        AdaptiveParams { recency: true, reuse: true, frequency: true, guard: true, head_start: 0.0, interval: 0.15 }
    }
}

impl Parameters for AdaptiveParams {
    const LIST: &'static [Parameter] = &[
        Parameter { name: "recency", default: "yes", values: "yes or no", meaning: "whether recency (LRU) may lead" },
        Parameter {
            name: "reuse",
            default: "yes",
            values: "yes or no",
            meaning: "whether reuse distance (LIRS) may lead",
        },
        Parameter {
            name: "frequency",
            default: "yes",
            values: "yes or no",
            meaning: "whether frequency (LFU) may lead",
        },
        Parameter {
            name: "guard",
            default: "yes",
            values: "yes or no",
            meaning: "whether the loss to LRU is bounded at the price of slower gains",
        },
        Parameter {
            name: "head_start",
            default: "0%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "share of memory's pages that may be lost to LRU beside, once: what may be staked before anything was won",
        },
        Parameter {
            name: "interval",
            default: "15%",
            values: "a share above 0, up to 100% or 1",
            meaning: "share of memory that is evicted between two looks at a page's accessed bit (adaptive-mapped)",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let invalid = || ParameterError::invalid(name, value, Self::LIST);
        let switch = || parse_switch(value).ok_or_else(invalid);
        match name {
            "recency" => self.recency = switch()?,
            "reuse" => self.reuse = switch()?,
            "frequency" => self.frequency = switch()?,
            "guard" => self.guard = switch()?,
            "head_start" => self.head_start = parse_share(value).ok_or_else(invalid)?,
            "interval" => self.interval = parse_share(value).filter(|share| *share > 0.0).ok_or_else(invalid)?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}
