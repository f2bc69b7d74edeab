//! A memory that programs share: a daemon that hands out grants, and members that keep to them.
//!
//! [`ledger`] decides who gets and who gives, [`protocol`] is what daemon and members say to each other over the socket
//! at [`place`], [`daemon`] and [`member`] are the two ends.
//!
//! Invariant: what members may use together never exceeds the pool. A grant is raised only by what is free, and what
//! was lowered is free only once its member has confirmed to be below it, or has ended with all of its processes. A
//! member that does not answer keeps what it has; so do all while the daemon is away.

pub mod daemon;
pub mod ledger;
pub mod member;
pub mod place;
pub mod processes;
pub mod protocol;
