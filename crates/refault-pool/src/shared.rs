//! A memory that programs share: a daemon that hands out grants, and members that keep to them.
//!
//! [`ledger`] decides which member gets and which gives. [`protocol`] is what daemon and members say to each other over
//! the socket at [`place`]. [`daemon`] and [`member`] are the two ends.
//!
//! Invariant: what members may use together never exceeds the pool. A grant is raised only by what is free. What was
//! lowered is free only once its member has confirmed to be below it, or has ended with all of its processes. A member
//! that does not answer keeps what it has; so do all while the daemon is away.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! use refault_pool::shared::daemon::{Daemon, PoolOptions};
//! use refault_pool::shared::member::Member;
//! use refault_pool::shared::place::Place;
//! use refault_pool::shared::protocol::Wishes;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path().join("pools");
//! static ENDS: AtomicBool = AtomicBool::new(false);
//!
//! let place = Place::within(&directory, "example")?;
//! let options =
//!     PoolOptions { memory: 256 << 20, min_ttl: Duration::ZERO, proactive: None, members: Default::default() };
//! let daemon = Daemon::open(place.clone(), options)?;
//! std::thread::spawn(move || daemon.run(&ENDS, |line| eprintln!("{line}")));
//!
//! let wishes = Wishes { max: Some(64 << 20), ..Wishes::default() };
//! let member = Member::join(&place, "analysis", wishes, Duration::from_secs(5))?;
//! assert!(member.grant() > 0 && member.grant() <= 64 << 20);
//! # ENDS.store(true, std::sync::atomic::Ordering::Relaxed);
//! # Ok(())
//! # }
//! ```

pub mod daemon;
mod entry;
pub mod history;
pub mod ledger;
pub mod member;
pub mod place;
pub mod processes;
pub mod protocol;
