//! Files below the cache: what is read and written through, how, and by which thread.

pub(crate) mod background;
pub(crate) mod backing;
pub(crate) mod caught;
pub(crate) mod changes;
pub(crate) mod direct;
pub(crate) mod forks;
pub(crate) mod key;
pub(crate) mod opened;
pub(crate) mod pieces;
pub(crate) mod refusal;
pub(crate) mod run;
pub(crate) mod runs;
