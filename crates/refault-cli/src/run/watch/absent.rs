//! `refault run --watch` in a build without the feature `tui`: it is refused before the program starts, so that nothing
//! of it can exist.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use refault_console::Failure;

/// Pictures, of which there are none.
pub const REDRAW: Duration = Duration::MAX;

/// The statistics that a view would follow.
pub struct Statistics(Infallible);

impl Statistics {
    /// Refuses the view.
    ///
    /// # Errors
    /// Always: names the feature.
    pub fn new(_given: Option<&Path>) -> Result<Statistics, Failure> {
        Err(crate::mistyped::absent::without("refault run --watch", "tui"))
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        match self.0 {}
    }
}

/// The view.
pub struct Watch<'a>(Infallible, PhantomData<&'a str>);

impl<'a> Watch<'a> {
    /// Of statistics, which cannot exist.
    ///
    /// # Errors
    /// None.
    pub fn new(_name: &'a str, statistics: &Statistics) -> Result<Watch<'a>, Failure> {
        match statistics.0 {}
    }

    /// Holds back what the program writes to the terminal.
    pub fn hold(&self, _command: &mut Command) -> std::io::Result<()> {
        match self.0 {}
    }

    /// Draws.
    pub fn look(&mut self) {
        match self.0 {}
    }

    /// Closes it.
    pub fn close(&mut self) {
        match self.0 {}
    }

    /// Ends it.
    pub fn end(self) {
        match self.0 {}
    }
}
