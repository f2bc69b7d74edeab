//! Why a program cannot be managed.

use core::fmt;

use crate::text::Text;

/// Why a program cannot be managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Its file cannot be opened or read, with the kernel's error number.
    Unreadable(i32),
    /// It asks for no loader.
    Static,
    /// Its loader is not glibc's.
    OtherLibc(Text),
    /// Its loader is not there.
    NoLoader(Text),
    /// Its glibc lacks what the agent's library asks for.
    OldGlibc(Text),
    /// It runs with other rights than its caller, so that its loader ignores `LD_PRELOAD`.
    Privileged,
    /// It is a program of 32 bits, or for x32.
    Bits32,
    /// It is for another processor, by the number that ELF gives that.
    OtherMachine(u16),
    /// Neither an ELF file nor a script.
    NotElf,
    /// A text without a line that names its interpreter.
    NoInterpreter,
    /// Scripts that interpret scripts, more than the kernel follows.
    TooManyInterpreters,
    /// The agent's library cannot be read where the program runs: in another root, or as another user.
    NoAgent,
    /// It was given an environment that does not name the agent.
    OtherEnvironment,
}

impl Obstacle {
    /// All kinds, in the order of [`Obstacle::code`].
    const KINDS: [Obstacle; 13] = [
        Obstacle::Unreadable(13),
        Obstacle::Static,
        Obstacle::OtherLibc(Text::EMPTY),
        Obstacle::NoLoader(Text::EMPTY),
        Obstacle::OldGlibc(Text::EMPTY),
        Obstacle::Privileged,
        Obstacle::Bits32,
        Obstacle::OtherMachine(0),
        Obstacle::NotElf,
        Obstacle::NoInterpreter,
        Obstacle::TooManyInterpreters,
        Obstacle::NoAgent,
        Obstacle::OtherEnvironment,
    ];

    /// Whether the program starts as alone with `LD_PRELOAD` as it is: its loader does not look at it, or there is none.
    /// What a static program executes is managed again for that reason.
    pub fn ignores_preloading(self) -> bool {
        match self {
            Obstacle::Static | Obstacle::Privileged | Obstacle::OtherEnvironment => true,
            // The kernel refuses it, or asks an interpreter of the machine's that is not known here.
            Obstacle::NotElf | Obstacle::NoInterpreter | Obstacle::TooManyInterpreters => true,
            Obstacle::NoLoader(_) => true,
            // It is not there: the kernel says so.
            Obstacle::Unreadable(error) => error != EACCES && error != EPERM,
            _ => false,
        }
    }

    /// Whether the kernel would execute the file.
    pub fn is_executable(self) -> bool {
        match self {
            Obstacle::Unreadable(error) => error == EACCES || error == EPERM,
            Obstacle::NotElf | Obstacle::NoInterpreter | Obstacle::TooManyInterpreters => false,
            Obstacle::NoLoader(_) => false,
            _ => true,
        }
    }

    /// A number of its kind, from 1 on.
    pub fn code(self) -> u32 {
        let kind = core::mem::discriminant(&self);
        let place = Obstacle::KINDS.iter().position(|known| core::mem::discriminant(known) == kind);
        place.map_or(0, |place| place as u32 + 1)
    }

    /// What is said of programs of the kind with this number; `None` for a number of no kind.
    pub fn kind_of(code: u32) -> Option<&'static str> {
        let kind = Obstacle::KINDS.get((code as usize).checked_sub(1)?)?;
        Some(match kind {
            Obstacle::Unreadable(_) => "its file cannot be read",
            Obstacle::Static => "statically linked",
            Obstacle::OtherLibc(_) => "another libc",
            Obstacle::NoLoader(_) => "a loader that is not there",
            Obstacle::OldGlibc(_) => "an older glibc",
            Obstacle::Privileged => "set-uid or file capabilities",
            Obstacle::Bits32 => "32 bits",
            Obstacle::OtherMachine(_) => "another processor",
            Obstacle::NotElf => "neither ELF nor a script",
            Obstacle::NoInterpreter => "a text without an interpreter",
            Obstacle::TooManyInterpreters => "too many interpreters",
            Obstacle::NoAgent => "another root or user, without the agent's library",
            Obstacle::OtherEnvironment => "another environment",
        })
    }
}

const EPERM: i32 = 1;
pub(crate) const EACCES: i32 = 13;
pub(crate) const ENFILE: i32 = 23;
pub(crate) const EMFILE: i32 = 24;

impl fmt::Display for Obstacle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Static => to.write_str("it is statically linked, so nothing can be preloaded"),
            Obstacle::OtherLibc(loader) => {
                write!(to, "its loader is {loader}, which is another libc's than the agent's (glibc)")
            }
            Obstacle::NoLoader(loader) => write!(to, "its loader, {loader}, is not there"),
            Obstacle::OldGlibc(libc) => {
                write!(to, "its libc, {libc}, is older than the agent needs ({})", crate::NEEDED_GLIBC)
            }
            Obstacle::Privileged => {
                to.write_str("it is set-uid or has file capabilities, so its loader ignores preloading")
            }
            Obstacle::Bits32 => to.write_str("it is a program of 32 bits, and the agent has 64"),
            Obstacle::OtherMachine(number) => {
                write!(
                    to,
                    "it is a program for another processor (number {number} in ELF), and the agent is for x86-64"
                )
            }
            Obstacle::NotElf => to.write_str("it is neither a script nor a program of this machine"),
            Obstacle::NoInterpreter => to.write_str(
                "it is a text without a first line such as #!/usr/bin/env python3, so nothing says who runs it",
            ),
            Obstacle::TooManyInterpreters => {
                to.write_str("its interpreter is a script, and so on: more than the kernel follows")
            }
            Obstacle::NoAgent => to.write_str("the agent's library cannot be read where it runs"),
            Obstacle::OtherEnvironment => to.write_str("its environment does not name the agent"),
            Obstacle::Unreadable(EMFILE | ENFILE) => to.write_str("no descriptor is left to read its file"),
            Obstacle::Unreadable(error) => write!(to, "its file cannot be read (error {error})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_number_and_words() {
        for (place, kind) in Obstacle::KINDS.into_iter().enumerate() {
            assert_eq!(kind.code() as usize, place + 1);
            assert!(Obstacle::kind_of(kind.code()).is_some_and(|words| !words.is_empty()), "{kind:?}");
        }
        assert_eq!((Obstacle::kind_of(0), Obstacle::kind_of(14)), (None, None));
    }
}
