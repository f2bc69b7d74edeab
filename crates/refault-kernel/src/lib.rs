//! A program and its children under a budget by the kernel's own paging.
//!
//! A [`Keeper`] makes a memory cgroup and a zram device, and moves the border between what may be resident and what may
//! be compressed ([`border`]). Both sides are bounded by the kernel itself, by the group's limit and the device's
//! `mem_limit`. Their sum never exceeds the budget by more than a 64th, whenever the keeper runs. What was made stands
//! in a [`journal`] before it is used, so that another process can remove it.
//!
//! The crate has no policy of its own: which page leaves is the kernel's choice. All files are found through [`Places`],
//! so that tests can give others.
//!
//! Cost: between 50 and 500 looks per second of some 20 µs each, and what swap costs.
#![deny(unsafe_code)]

pub mod border;
mod device;
mod group;
mod hierarchy;
pub mod journal;
mod keeper;
mod places;
mod refusal;
mod sample;
mod served;
mod service;
mod swap;

pub use device::Device;
pub use group::Group;
pub use hierarchy::{Hierarchy, Version};
pub use journal::clean;
pub use keeper::{Keeper, Plan, examine};
pub use places::Places;
pub use refusal::Refusal;
pub use sample::Sample;
pub use served::{Ended, Served};
pub use service::{Report, serve};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
