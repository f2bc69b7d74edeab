//! Orders of pages, for policies. Convention everywhere: **head = newest, tail = next victim**.
//!
//! | what | links | for |
//! |---|---|---|
//! | [`linked::List`] | two per page, in the policy's records | pages that move one by one, on every hit |
//! | [`ring::Deque`] | a position per page, in its record; a ring of page ids | lists worked through in batches from the tail |
//! | [`queue::PageQueue`] | the same with positions of its own | policies that keep nothing else per page |

pub mod linked;
pub mod queue;
pub mod ring;
