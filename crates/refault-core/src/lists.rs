//! Orders of pages, for policies. Convention everywhere: **head = newest, tail = next victim**.
//!
//! | what | links | for |
//! |---|---|---|
//! | [`linked::List`] | two per page, in the policy's records | pages that move one by one, on every hit |
//! | [`ring::Deque`] | a position per page, in the policy's records; page ids side by side in a ring | lists that are worked through from the tail in batches: their records can be fetched ahead |
//! | [`queue::PageQueue`] | the same with positions of its own | policies that keep nothing else per page |

pub mod linked;
pub mod queue;
pub mod ring;
