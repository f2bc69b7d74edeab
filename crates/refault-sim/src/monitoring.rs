//! Monitoring in the simulator: configurations, memories to sample, and how much of the truth is found.

pub mod accuracy;
/// Configurations are a crate of their own, because the live front-ends read them too.
pub use refault_config as config;
pub mod costs;
pub mod heat_map;
pub mod pattern;
pub mod watched;
