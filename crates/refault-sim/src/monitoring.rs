//! Monitoring in the simulator: configurations, memories to sample, and how much of the truth is found.

pub mod accuracy;
pub mod config;
pub mod heat_map;
pub mod pattern;
pub mod watched;
