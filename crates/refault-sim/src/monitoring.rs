//! Monitoring in the simulator: configurations, memories to sample, and how much of the truth is found.

pub mod config;
