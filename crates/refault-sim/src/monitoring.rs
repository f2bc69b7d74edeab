//! Monitoring in the simulator: configurations, memories to sample, and how much of the truth is found.
//!
//! ```
//! use refault_sim::monitoring::config::Config;
//!
//! let config = Config::parse("nr_regions = { min = 10, max = 100 }\n[[schemes]]\naction = \"stat\"\n", "example")?;
//! assert_eq!(config.schemes.len(), 1);
//! # Ok::<(), refault_sim::monitoring::config::ConfigError>(())
//! ```

pub mod accuracy;
/// Configurations are a crate of their own, because the live front-ends read them too.
pub use refault_config as config;
pub mod costs;
pub mod heat_map;
pub mod monitored;
pub mod pattern;
