//! Pages on their way: out of reach, back, and aside.

pub(crate) mod aside;
pub(crate) mod staging;
pub(crate) mod way_back;
