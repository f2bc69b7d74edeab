//! Integration tests, linked once: a module per file.

mod buffered;
mod cache;
mod common;
mod crash;
mod cyclic;
mod each_call;
mod futures;
mod handles;
mod lengths;
mod mapped;
mod model;
mod neighbours;
mod numbers;
mod pins;
mod readahead;
mod refusals;
mod rights;
mod ring;
mod threads;
