//! The kernel's numbers by name: of system calls, their flags, their structures, and errors.

pub mod advice;
pub mod calls;
pub mod clone;
pub mod errno;
pub mod files;
pub mod flags;
pub mod i386;
pub mod options;
pub(crate) mod own;
pub mod requests;
pub mod signals;
pub mod sockets;

/// Constants, each with what it says, and all of them by name, for the test against the machine's headers.
macro_rules! constants {
    ($kind:ty; $($name:ident = $number:expr, $text:literal;)*) => {
        crate::numbers::constants! { $($name: $kind = $number, $text;)* }
    };
    ($($name:ident: $kind:ty = $number:expr, $text:literal;)*) => {
        $(#[doc = $text] pub const $name: $kind = $number;)*

        /// All of them, by the kernel's names.
        pub const ALL: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}
pub(crate) use constants;

/// Places of fields in a structure, in bytes, and all of them by the structure and the field, for the same test.
macro_rules! places {
    ($($structure:literal: { $($name:ident = $place:literal $field:literal;)* })*) => {
        $($(#[doc = concat!("Of `", $structure, "`: where `", $field, "` lies, in bytes.")]
        pub const $name: usize = $place;)*)*

        /// All of them: structure, field and place.
        pub const PLACES: &[(&str, &str, usize)] = &[$($(($structure, $field, $place)),*),*];
    };
}
pub(crate) use places;

/// Names and numbers of calls: a constant of each, all of them in order, and the name of a number.
macro_rules! names {
    ($($name:ident = $number:literal,)*) => {
        /// A number and the kernel's name for it, by number.
        pub const ALL: &[(usize, &str)] = &[$(($number, crate::numbers::without_prefix(stringify!($name)))),*];

        /// The highest number.
        pub const MAX: usize = ALL[ALL.len() - 1].0;

        $(#[doc = concat!("Number of the call: ", stringify!($name), ".")]
        #[allow(non_upper_case_globals)]
        pub const $name: usize = $number;)*

        /// The kernel's name of a call; `None`: there is none of that number.
        pub fn name(number: usize) -> Option<&'static str> {
            ALL.binary_search_by_key(&number, |(number, _)| *number).ok().map(|at| ALL[at].1)
        }
    };
}
pub(crate) use names;

/// A name as the kernel has it, without the `SYS_` of the constant.
const fn without_prefix(name: &'static str) -> &'static str {
    name.split_at("SYS_".len()).1
}
