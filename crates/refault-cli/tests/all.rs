//! What needs no managed program: files in, text out. Linked once, a module per file.

mod ask;
mod common;
mod compare;
mod docs;
mod host_files;
mod monitor;
mod mrc;
mod outputs;
mod pool_plan;
mod remarks;
mod reproduce;
mod scenario;
mod specification;
mod stability;
mod trace;
mod tutorial;
mod workspace;
