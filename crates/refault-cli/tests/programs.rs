//! Programs under `refault run`, each judged by what it prints and how it ends. Linked once, a module per file.

mod boundary;
#[path = "common/c_program.rs"]
mod c_program;
mod checkers;
mod children;
mod common;
mod descriptors;
mod faults;
mod first_hour;
mod forks;
mod hostile;
mod installed;
mod patched;
mod run;
mod semantics;
mod what_if;
