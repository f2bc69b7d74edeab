//! Commands and options of a build without some of the features `manual`, `tui` and `web`: they say which one they need.
#![cfg_attr(all(feature = "manual", feature = "tui", feature = "web"), allow(dead_code))]

use std::ffi::OsString;

use clap::Args;
use refault_console::Failure;

/// Whatever a command that is not in this build is given.
#[derive(Args, Debug)]
/// Not in this build
#[command(disable_help_flag = true)]
pub struct AbsentArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

impl AbsentArgs {
    /// Refuses the command.
    pub fn refuse(&self, command: &str, feature: &str) -> Result<(), Failure> {
        Err(without(command, feature))
    }
}

/// The refusal of a command or an option that needs a feature.
pub fn without(what: &str, feature: &str) -> Failure {
    let remedy = format!("build it with 'cargo install --path crates/refault-cli --features {feature}'");
    Failure::usage("not in this build", format_args!("{what}, which needs the feature {feature}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feature_is_named() {
        let line = without("refault top", "tui").line().to_owned();
        assert!(line.starts_with("not in this build: refault top, which needs the feature tui: "), "{line}");
        assert!(line.ends_with("--features tui'"), "{line}");
    }
}
