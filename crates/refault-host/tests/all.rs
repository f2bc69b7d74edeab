//! Integration tests, linked once: a module per file.

mod churn;
mod history;
mod park;
