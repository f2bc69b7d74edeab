//! Integration tests, linked once: a module per file.

mod ledger;
mod plan;
mod protections;
