//! The two programs that benchmarks start: `refault`, whose runs are measured, and this one, whose hidden subcommands
//! are the loads.

use std::env;
use std::path::PathBuf;

use refault_console::Failure;

/// The program `refault`: beside this one, as cargo builds and installs them, or else on the path.
///
/// # Errors
/// There is none.
pub fn refault() -> Result<PathBuf, Failure> {
    let own = me()?;
    let path = env::var_os("PATH").unwrap_or_default();
    let beside = own.parent().map(PathBuf::from);
    let mut places = beside.into_iter().chain(env::split_paths(&path)).map(|folder| folder.join("refault"));
    places.find(|place| place.is_file()).ok_or_else(|| {
        Failure::failed(
            "cannot find the program refault",
            format_args!("beside {} or on the path", own.display()),
            "build it with 'cargo build --release', or install it with 'cargo install --path crates/refault-cli'",
        )
    })
}

/// This program.
///
/// # Errors
/// The system does not say where it lies.
pub fn me() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|error| Failure::failed("cannot find this program", "/proc/self/exe", error))
}
