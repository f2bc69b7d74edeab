//! Page reclaim, decided in one place.
//!
//! This crate holds the policies that decide which pages of memory stay and which go, and nothing else: no I/O,
//! no clock, no threads, no randomness of its own and no `unsafe`. A front-end (a simulator, a file page cache, a
//! pager) owns the memory and implements [`Memory`]; the policy implements [`Policy`]; both count in [`Counters`].
//!
//! ```text
//!            admissions, fd accesses, frees            victims
//! front-end ─────────────────────────────────▶ Policy ─────────▶ front-end
//!     │ owns                                     │
//!     ▼                                          ▼
//!  Memory  ◀── accessed bits, page-table walks ──┘
//! ```
//!
//! A policy never sees a hit on mapped memory: like the hardware, the front-end only sets a bit.
//! Pages are dense `u32` indices chosen by the front-end, lists are linked through arrays by index.
//!
//! ```
//! use refault_core::policy::registry::build;
//! use refault_core::policy::{Admission, FrontEnd, ReclaimRequest};
//! use refault_core::memory::{Eviction, Memory, References};
//! use refault_core::{DynPolicy, PageId, PageType, Shadow};
//!
//! /// Memory whose pages are never accessed again.
//! struct Pages(Vec<bool>);
//!
//! impl Memory for Pages {
//!     fn take_references(&mut self, _page: PageId) -> References {
//!         References::default()
//!     }
//!     fn evict(&mut self, page: PageId, _shadow: Shadow) -> Eviction {
//!         self.0[page as usize] = false;
//!         Eviction::Freed { pages_written: 0 }
//!     }
//!     fn is_resident(&self, page: PageId) -> bool {
//!         self.0[page as usize]
//!     }
//! }
//!
//! let mut policy = build::<Pages>("clock", FrontEnd::PageCache)?;
//! let mut memory = Pages(vec![true; 3]);
//! policy.grow(3);
//! policy.set_capacity(3);
//! for page in 0..3 {
//!     policy.admit(page, &Admission::fault(PageType::Anon), &mut memory);
//! }
//! assert_eq!(policy.reclaim(&ReclaimRequest { target: 0, goal: 1, incoming: None }, &mut memory), 1);
//! assert_eq!(memory.0, [false, true, true]); // the oldest went
//! # Ok::<(), refault_core::policy::PolicyError>(())
//! ```
#![forbid(unsafe_code)]

pub mod adaptive;
pub mod classic;
pub mod counters;
pub mod estimate;
pub mod frames;
pub mod freebsd;
mod lists;
pub mod memory;
pub mod mglru;
pub mod miniature;
pub mod monitor;
pub mod page;
pub mod parameter;
pub mod policy;
pub mod pressure;
mod ranks;
mod reclaim;
pub mod schemes;
pub mod statistics;
pub mod switching;
pub mod textbook;
pub mod workingset;

pub use adaptive::{Adaptive, AdaptiveMapped, AdaptiveParams};
pub use classic::{Classic, ClassicParams};
pub use counters::Counters;
pub use freebsd::{Freebsd, FreebsdParams};
pub use memory::Memory;
pub use mglru::{Mglru, MglruParams};
pub use page::{LruvecId, PageId, PageType, Shadow};
pub use parameter::{Parameter, ParameterError, Parameters};
pub use policy::{Admission, DynPolicy, Policy};
