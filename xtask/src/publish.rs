//! The crates that would be given to the registry, one by one in the order of their dependencies, as `cargo publish`
//! does it. That also looks each version up there. Publishing itself is for people: `cargo publish --workspace`.

use crate::steps::{Failure, step};

/// Runs the task. With `verify` each crate is also built from its package alone.
///
/// # Errors
/// A crate could not be published.
pub fn dry_run(verify: bool) -> Result<(), Failure> {
    let command = ["cargo", "publish", "--workspace", "--dry-run"];
    step(&[&command[..], if verify { &[] } else { &["--no-verify"] }].concat())
}
