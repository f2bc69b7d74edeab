//! The value of `LD_PRELOAD` that a program can start with.
//!
//! The agent's library comes first. Before it are the runtimes of sanitizers: AddressSanitizer ends a program in which another
//! library comes first. One that was put there for one program, and not by its user, has an empty name behind it, which
//! loaders pass over: so it is taken away again for the next.

use crate::text::{Text, base};

/// What a program is to be started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The agent, and this library before it.
    With(Option<Text>),
    /// Not the agent.
    Without,
}

/// Whether a library is the runtime of a sanitizer that has to come first, by its name or path.
pub(crate) fn is_runtime(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 3] = [b"libasan.so", b"libclang_rt.asan", b"libhwasan.so"];
    NAMES.iter().any(|front| base(name).starts_with(front))
}

fn items(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    value.split(|byte| matches!(byte, b':' | b' ')).filter(|item| !item.is_empty())
}

/// Whether a value names the agent's library.
pub fn names(value: &[u8], agent: &[u8]) -> bool {
    items(value).any(|item| item == agent)
}

/// Hands over the parts of the value that a program is to have which would have had `value`. Nothing is handed over if no
/// library is left: the variable is to be left out then.
pub fn compose(value: &[u8], agent: &[u8], wish: Wish, mut part: impl FnMut(&[u8])) {
    let ours = ours(value, agent);
    let own = items(value).skip(usize::from(ours)).filter(|item| *item != agent);
    let mut is_first = true;
    let mut item = |text: &[u8]| {
        if !core::mem::replace(&mut is_first, false) {
            part(b":");
        }
        part(text);
    };
    let Wish::With(first) = wish else { return own.for_each(item) };
    let runtimes = own.clone().take_while(|item| is_runtime(item));
    let is_there = |library: &Text| runtimes.clone().any(|item| base(item) == base(library.as_bytes()));
    if let Some(first) = first.filter(|first| !is_there(first)) {
        item(first.as_bytes());
        item(b"");
    }
    runtimes.clone().for_each(&mut item);
    item(agent);
    own.skip(runtimes.count()).for_each(item);
}

/// Whether the first library of a value was put there by [`compose`].
fn ours(value: &[u8], agent: &[u8]) -> bool {
    let Some(end) = value.windows(2).position(|two| two == b"::") else { return false };
    let behind = &value[end + 2..];
    !value[..end].iter().any(|byte| matches!(byte, b':' | b' ')) && items(behind).next() == Some(agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &[u8] = b"/x/agent.so";

    fn composed(value: &str, wish: Wish) -> String {
        let mut text = Vec::new();
        compose(value.as_bytes(), AGENT, wish, |part| text.extend_from_slice(part));
        String::from_utf8(text).expect("it is text")
    }

    #[test]
    fn the_agent_comes_before_all_but_runtimes() {
        let with = Wish::With(None);
        assert_eq!(composed("", with), "/x/agent.so");
        assert_eq!(composed("b.so c.so", with), "/x/agent.so:b.so:c.so");
        assert_eq!(composed("b.so:/x/agent.so", with), "/x/agent.so:b.so");
        assert_eq!(composed("/lib/libasan.so.8:b.so", with), "/lib/libasan.so.8:/x/agent.so:b.so");
    }

    #[test]
    fn what_was_put_before_it_for_one_program_is_taken_away_for_the_next() {
        let with = Wish::With(Some(Text::new(b"libasan.so.8")));
        let value = composed("/x/agent.so:b.so", with);
        assert_eq!(value, "libasan.so.8::/x/agent.so:b.so");
        assert_eq!(composed(&value, with), value);
        assert_eq!(composed(&value, Wish::With(None)), "/x/agent.so:b.so");
        assert_eq!(composed(&value, Wish::Without), "b.so");
        // The user's own stays.
        assert_eq!(composed("/y/libasan.so.8:/x/agent.so", with), "/y/libasan.so.8:/x/agent.so");
    }

    #[test]
    fn nothing_is_left_of_the_agent() {
        assert_eq!(composed("/x/agent.so", Wish::Without), "");
        assert_eq!(composed("b.so:/x/agent.so:c.so", Wish::Without), "b.so:c.so");
        assert!(names(b"b.so /x/agent.so", AGENT) && !names(b"/x/agent.so.1", AGENT) && !names(b"", AGENT));
    }
}
