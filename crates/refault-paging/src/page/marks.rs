//! What the kernel notes of a mapping by the program's advice, without any effect on memory that is no file's.
//!
//! The kernel joins neighbouring mappings only if they are marked alike. So a mapping that must not be joined with
//! another is marked as no other is. Invariant: none. Cost: none.

/// What the program has said of the order of its accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// `MADV_NORMAL`.
    #[default]
    Normal,
    /// `MADV_RANDOM`.
    Random,
    /// `MADV_SEQUENTIAL`.
    Sequential,
}

/// All of it. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The order of accesses.
    pub order: Order,
    /// `MADV_DONTDUMP`: cores are without it.
    pub not_in_cores: bool,
}

impl Marks {
    /// Every one that there is, those first that take one call to set on a mapping that has none.
    pub const ALL: [Marks; 6] = [
        Marks { order: Order::Random, not_in_cores: false },
        Marks { order: Order::Sequential, not_in_cores: false },
        Marks { order: Order::Normal, not_in_cores: true },
        Marks { order: Order::Random, not_in_cores: true },
        Marks { order: Order::Sequential, not_in_cores: true },
        Marks { order: Order::Normal, not_in_cores: false },
    ];

    /// Its place in [`Marks::ALL`].
    pub fn index(self) -> usize {
        Marks::ALL.iter().position(|marks| *marks == self).expect("invariant: all are listed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_listed_once() {
        for order in [Order::Normal, Order::Random, Order::Sequential] {
            for not_in_cores in [false, true] {
                let marks = Marks { order, not_in_cores };
                assert_eq!(Marks::ALL.iter().filter(|other| **other == marks).count(), 1);
                assert_eq!(Marks::ALL[marks.index()], marks);
            }
        }
    }
}
