//! What to do with what a monitor finds: schemes name a pattern of access and an action, and bound what it may cost.
//!
//! A [`Kdamond`] runs a [`crate::monitor::Monitor`] and a list of [`Scheme`]s in the order of the kernels' loop. It
//! looks for regions whose size, frequency and age fit a scheme's [`Pattern`]. For each of them the kdamond asks the
//! front-end's [`SchemeActor`] to act. It asks within the scheme's [`Quota`], while its [`Watermarks`] let it run and
//! where its [`Filter`]s allow.
//!
//! Invariants: schemes act in the order given; what is charged in a window never exceeds the effective quota where one
//! is in force; filters are asked in order and the first that fires decides; an action other than `stat` sets the
//! region's age to zero; regions cut by quotas and filters keep covering the target.
//!
//! Cost: a pass is linear in regions plus, for actions on pages, in the pages of the regions acted upon.
//!
//! Kernel: `struct damos` in `include/linux/damon.h`; `kdamond_apply_schemes` in `mm/damon/core.c`.
//! Source: spec: damos, spec: lru_sort.
//!
//! ```
//! use refault_core::schemes::{Action, SchemeSettings};
//!
//! let mut scheme = SchemeSettings::new(Action::Pageout); // on everything, without limits
//! scheme.pattern.nr_accesses.max = 0; // on what is never accessed
//! assert_eq!(scheme.action.name(), "pageout");
//! ```

mod action;
mod actor;
mod apply;
mod filter;
mod goal;
mod kdamond;
pub mod modules;
mod pattern;
mod quota;
mod scheme;
mod score;
#[cfg(test)]
mod tests;
mod watermark;

pub use action::Action;
pub use actor::{Folio, SchemeActor};
pub use apply::TriedRegion;
pub use filter::{Filter, FilterKind};
pub use goal::{Goal, Metric, Tuner};
pub use kdamond::{Kdamond, Next, Observer};
pub use pattern::{Bounds, Pattern};
pub use quota::{Quota, QuotaState};
pub use scheme::{Scheme, SchemeError, SchemeSettings, SchemeStatistics};
pub use score::{Priority, Weights};
pub use watermark::{WatermarkMetric, Watermarks};
