//! Before a program is executed: whether it can start with the agent's library, and what it starts with.
//!
//! A loader that cannot load the library would end the program, or complain: another libc's, an older glibc's, one of
//! 32 bits. So the agent looks at the file first ([`refault_image`]). Where the library would be in the way, the
//! program gets a copy of its environment whose `LD_PRELOAD` does not name it. A sanitizer's runtime that has to come
//! first is named before it. What runs without being managed is noted in the tree's segment, which `refault run` reads
//! at its end.
//!
//! Invariants: the program's own memory is not written to; a child that borrows memory leaves nothing behind in it but
//! the vectors of its block, which end with it. Cost: some 20 µs per execution, and the copy where there is one.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use refault_image::preload::{self, Wish};
use refault_image::{Image, Obstacle, Place};

use crate::engine_lock::paging;
use crate::frame;
use crate::process::environment::Environment;
use crate::thread::Thread;
use refault_linux::PAGE;
use refault_linux::calls::SYS_execve;
use refault_linux::flags::AT_FDCWD;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const SETTINGS: &[u8] = b"REFAULT_AGENT=";
/// Bytes of the longest path, the zero included.
const MAX_PATH: usize = PAGE;
/// Bytes of a text of the environment that are read at most: the kernel takes no longer ones.
const MAX_TEXT: usize = 128 << 10;
const WORD: usize = size_of::<usize>();

/// Where this library's file is, as programs are told.
static LIBRARY: OnceLock<CString> = OnceLock::new();

/// Sets the path by which programs find this library.
pub(crate) fn set_library(path: &OsStr) {
    if let Ok(path) = CString::new(path.as_bytes()) {
        let _ = LIBRARY.set(path);
    }
}

/// Takes this library out of the environment of this process, which is not managed. The agent does not look at what the
/// process executes, and that may be a program that cannot load the library. Called before the program has threads.
pub(crate) fn withdraw(library: &OsStr) {
    unsafe extern "C" {
        static environ: *const *mut u8;
    }
    // SAFETY: the loader has set it, to null or to a list of texts that ends with a null.
    let mut at = unsafe { environ };
    // SAFETY: as above; what is written are bytes within a text that no other thread reads yet.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let text = std::slice::from_raw_parts_mut(*at, CStr::from_ptr(*at as *const _).to_bytes().len());
            if text.starts_with(PRELOAD) {
                erase(&mut text[PRELOAD.len()..], library.as_bytes());
            }
            at = at.add(1);
        }
    }
}

/// Replaces a library by separators, which loaders pass over.
fn erase(value: &mut [u8], library: &[u8]) {
    for item in value.split_mut(|byte| matches!(byte, b':' | b' ')).filter(|item| *item == library) {
        item.fill(b':');
    }
}

/// What is noted of an execution that leaves a program unmanaged.
#[derive(Clone, Copy)]
pub(crate) struct Note {
    kind: u32,
    name: refault_image::Text,
}

/// Where `execve` and `execveat` have their arguments.
struct Call {
    directory: i32,
    path: usize,
    arguments: usize,
    /// Which of the call's arguments is the environment.
    environment: usize,
}

impl Call {
    fn of(number: usize, arguments: [usize; 6]) -> Call {
        let [a, b, c, ..] = arguments;
        match number {
            SYS_execve => Call { directory: AT_FDCWD as i32, path: a, arguments: b, environment: 2 },
            _ => Call { directory: a as i32, path: b, arguments: c, environment: 3 },
        }
    }
}

/// The call's arguments as they are to be made, and what was noted in the segment.
pub(crate) fn prepare(thread: &mut Thread, number: usize, mut arguments: [usize; 6]) -> ([usize; 6], Option<Note>) {
    let Some(library) = LIBRARY.get() else { return (arguments, None) };
    let call = Call::of(number, arguments);
    let mut path = [0; MAX_PATH];
    let Some(path) = copy_text(call.path, &mut path) else { return (arguments, None) };
    let place = Place { directory: call.directory, path };
    let argument = |at: usize, into: &mut [u8]| -> Option<usize> {
        let text = frame::read::<usize>(call.arguments.checked_add(at * WORD)?).filter(|text| *text != 0)?;
        copy_start(text, into)
    };
    let found = refault_image::look_at(place, &argument, Some(library));
    let given = Given::read(arguments[call.environment], library);
    if let Some(wish) = given.wish(&found)
        && let Some(environment) = given.with(wish, library)
    {
        // The vectors of a block are written, not dropped, when it begins: none is left here.
        thread.environment = environment;
        arguments[call.environment] = thread.environment.texts.as_ptr() as usize;
    }
    (arguments, given.note(&found, place))
}

/// The program was not executed.
pub(crate) fn failed(thread: &mut Thread, note: Option<Note>) {
    thread.environment = Environment::default();
    if let Some(note) = note {
        paging().account().shared().unmanaged.take_back(note.kind, note.name.as_bytes());
    }
}

/// The environment that a program was given.
struct Given {
    start: usize,
    /// Its texts, without the zero behind them.
    count: usize,
    /// Which of them is `LD_PRELOAD`, and its value. The last counts, as for the loader.
    preload: Option<(usize, Vec<u8>)>,
    /// It names this library and its settings.
    names_agent: bool,
}

impl Given {
    fn read(start: usize, library: &CStr) -> Given {
        let mut given = Given { start, count: 0, preload: None, names_agent: false };
        let mut has_settings = false;
        if start == 0 {
            return given;
        }
        while let Some(text) = given.text(given.count).filter(|text| *text != 0) {
            let mut front = [0; SETTINGS.len()];
            let read = copy_start(text, &mut front).unwrap_or(0);
            has_settings |= &front[..read] == SETTINGS;
            if front[..read].starts_with(PRELOAD)
                && let Some(value) = whole_text(text + PRELOAD.len())
            {
                given.preload = Some((given.count, value));
            }
            given.count += 1;
        }
        let names = |(_, value): &(usize, Vec<u8>)| preload::names(value, library.to_bytes());
        given.names_agent = has_settings && given.preload.as_ref().is_some_and(names);
        given
    }

    fn text(&self, index: usize) -> Option<usize> {
        frame::read::<usize>(self.start.checked_add(index * WORD)?)
    }

    /// What the program is to be started with, if that may be something else than it was given.
    fn wish(&self, found: &Result<Image, Obstacle>) -> Option<Wish> {
        match found {
            // Without the settings the library does nothing, but it would be loaded.
            _ if self.preload.is_none() => None,
            Ok(image) if self.names_agent => Some(Wish::With(image.first)),
            Ok(_) => None,
            Err(obstacle) if obstacle.ignores_preloading() => None,
            Err(_) => Some(Wish::Without),
        }
    }

    /// The same environment with another `LD_PRELOAD`; `None` if it is the one that it has.
    fn with(&self, wish: Wish, library: &CStr) -> Option<Environment> {
        let (place, value) = self.preload.as_ref()?;
        let mut own = PRELOAD.to_vec();
        preload::compose(value, library.to_bytes(), wish, |part| own.extend_from_slice(part));
        if own[PRELOAD.len()..] == value[..] || !preload::names(value, library.to_bytes()) {
            return None;
        }
        let is_empty = own.len() == PRELOAD.len();
        own.push(0);
        let mut texts = Vec::with_capacity(self.count + 1);
        for index in 0..self.count {
            match index == *place {
                true if is_empty => {}
                true => texts.push(own.as_ptr() as usize),
                false => texts.push(self.text(index)?),
            }
        }
        texts.push(0);
        Some(Environment { texts, _own: own })
    }

    /// Notes a program that will run and not be managed.
    fn note(&self, found: &Result<Image, Obstacle>, place: Place<'_>) -> Option<Note> {
        let obstacle = match found {
            Ok(_) if self.names_agent => return None,
            Ok(_) => Obstacle::OtherEnvironment,
            Err(obstacle) => *obstacle,
        };
        if !obstacle.is_executable() || !refault_image::is_executable(place) {
            return None;
        }
        let note = Note { kind: obstacle.code(), name: refault_image::name_of(place) };
        paging().account().shared().unmanaged.note(note.kind, note.name.as_bytes());
        Some(note)
    }
}

/// Copies a text of the program's up to its end or the buffer's; how many bytes it has there, the zero left out.
fn copy_start(text: usize, into: &mut [u8]) -> Option<usize> {
    let mut done = 0;
    while done < into.len() {
        let from = text.checked_add(done)?;
        let bytes = (PAGE - from % PAGE).min(into.len() - done);
        if !frame::copy(into[done..].as_mut_ptr() as usize, from, bytes) {
            return None;
        }
        if let Some(end) = into[done..done + bytes].iter().position(|byte| *byte == 0) {
            return Some(done + end);
        }
        done += bytes;
    }
    Some(done)
}

/// Copies a path of the program's, if it ends within the buffer.
fn copy_text(text: usize, into: &mut [u8; MAX_PATH]) -> Option<&CStr> {
    copy_start(text, into)?;
    CStr::from_bytes_until_nul(into).ok()
}

fn whole_text(text: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 256];
    loop {
        let read = copy_start(text, &mut bytes)?;
        if read < bytes.len() || read >= MAX_TEXT {
            bytes.truncate(read);
            return Some(bytes);
        }
        bytes.resize(read * 4, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(texts: &[&CStr]) -> (Vec<usize>, Given) {
        let pointers: Vec<usize> = texts.iter().map(|text| text.as_ptr() as usize).chain([0]).collect();
        let given = Given::read(pointers.as_ptr() as usize, c"/x/agent.so");
        (pointers, given)
    }

    fn shown(environment: &Environment) -> Vec<String> {
        let texts = environment.texts.iter().take_while(|text| **text != 0);
        // SAFETY: texts of this test's, which end.
        texts.map(|text| unsafe { CStr::from_ptr(*text as *const _) }.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn another_libcs_program_gets_its_environment_without_the_library() {
        let (_pointers, given) = given(&[c"A=1", c"LD_PRELOAD=/x/agent.so", c"REFAULT_AGENT=x", c"B=2"]);
        assert!(given.names_agent);
        let other = Err(Obstacle::OtherLibc(refault_image::Text::new(b"/lib/ld-musl-x86_64.so.1")));
        let wish = given.wish(&other).expect("one");
        let environment = given.with(wish, c"/x/agent.so").expect("another one");
        assert_eq!(shown(&environment), ["A=1", "REFAULT_AGENT=x", "B=2"]);
        assert_eq!(given.wish(&Err(Obstacle::Static)), None);
    }

    #[test]
    fn the_rest_of_the_list_stays_and_runtimes_come_first() {
        let (_pointers, given) = given(&[c"LD_PRELOAD=/b.so:/x/agent.so", c"REFAULT_AGENT=x"]);
        let without = given.with(Wish::Without, c"/x/agent.so").expect("another one");
        assert_eq!(shown(&without)[0], "LD_PRELOAD=/b.so");
        let first = Wish::With(Some(refault_image::Text::new(b"libasan.so.8")));
        let with = given.with(first, c"/x/agent.so").expect("another one");
        assert_eq!(shown(&with)[0], "LD_PRELOAD=libasan.so.8::/x/agent.so:/b.so");
    }

    #[test]
    fn an_environment_without_the_library_stays_as_it_is() {
        for texts in [&[c"LD_PRELOAD=/b.so", c"REFAULT_AGENT=x"][..], &[c"A=1"], &[]] {
            let (_pointers, given) = given(texts);
            assert!(!given.names_agent);
            let wish = given.wish(&Err(Obstacle::Bits32));
            assert!(wish.is_none_or(|wish| given.with(wish, c"/x/agent.so").is_none()), "{texts:?}");
        }
        assert_eq!(Given::read(0, c"/x/agent.so").count, 0);
    }

    #[test]
    fn a_library_is_replaced_by_separators() {
        let mut value = *b"/a.so:/x/agent.so /x/agent.so.1";
        erase(&mut value, b"/x/agent.so");
        assert_eq!(&value, b"/a.so:::::::::::: /x/agent.so.1");
    }

    #[test]
    fn long_lists_are_read_to_their_ends() {
        let long = CString::new(format!("LD_PRELOAD={}/x/agent.so", "/b.so:".repeat(400))).expect("no zeros");
        let (_pointers, given) = given(&[&long]);
        assert_eq!(given.preload.map(|(_, value)| value.len()), Some(long.as_bytes().len() - PRELOAD.len()));
    }
}
