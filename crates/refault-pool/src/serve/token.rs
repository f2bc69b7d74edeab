//! The token by which a client shows that it may do what the pools' own user may.
//!
//! It stands in a file that its user alone can read, beside the pools' sockets unless told otherwise. So the users who
//! may reach a pool by its socket may also reach it through the window, and no others. The file stays: a scraper or a
//! page that knows the token goes on when the window is started again.
//!
//! Invariants: a file is made whole and with its rights, or not at all. A file that others may read or write, or that
//! another user owns, is refused. A comparison takes a time that says nothing of where two tokens differ.
//!
//! ```
//! use refault_pool::serve::token::Token;
//!
//! let directory = tempfile::tempdir()?;
//! let made = Token::in_file(&directory.path().join("token"))?;
//! let read = Token::in_file(&directory.path().join("token"))?;
//! assert!(made.admits(read.text()) && !made.admits("another"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use subtle::ConstantTimeEq;

/// Characters of a token that is drawn: 16 random bytes in hexadecimal.
const DRAWN_BYTES: usize = 16;
/// Characters that a token has at least: fewer could be guessed.
pub const MIN_LENGTH: usize = 16;
/// Characters that a token has at most.
pub const MAX_LENGTH: usize = 512;
/// What the owner's group and others may not do: the group may read a file that was given to it, and no more.
const FORBIDDEN_MODE: u32 = 0o037;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or made.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It is a directory, a device or another thing.
    #[error("it is no plain file")]
    NoFile,
    /// It belongs to this user number, who is neither this one nor root.
    #[error("it belongs to user {0}; it has to be yours or root's")]
    Foreign(u32),
    /// Others may read or write it, by this mode.
    #[error("others may read or write it (mode {:04o}): chmod 600, or 640 for a group that may", .0 & 0o7777)]
    Open(u32),
    /// What it holds is no token.
    #[error(
        "it holds no token: give it one line of {MIN_LENGTH} to {MAX_LENGTH} letters, digits and -._~+/=, or remove it \
         and one is drawn"
    )]
    Unfit,
}

/// A token.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The token that a file holds. If there is no such file, it is made with a token that is drawn.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn in_file(path: &Path) -> Result<Token, TokenError> {
        match Token::read(path) {
            Err(TokenError::File(error)) if error.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        let token = Token::draw()?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Such a file can be read and written by its owner alone.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        writeln!(file, "{}", token.0)?;
        match file.persist_noclobber(path) {
            Ok(_) => Ok(token),
            // Another window was faster: its token is theirs and ours.
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Token::read(path),
            Err(error) => Err(error.error.into()),
        }
    }

    /// A token that cannot be guessed.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn draw() -> io::Result<Token> {
        let mut bytes = [0u8; DRAWN_BYTES];
        if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())? < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut text = String::new();
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Token(text))
    }

    /// Whether this is the token.
    pub fn admits(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// The token itself.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn read(path: &Path) -> Result<Token, TokenError> {
        // A pipe of that name keeps nothing waiting.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        check(&file)?;
        let mut text = String::new();
        let read = file.take(MAX_LENGTH as u64 + 2).read_to_string(&mut text);
        if let Err(error) = read {
            return Err(if error.kind() == io::ErrorKind::InvalidData { TokenError::Unfit } else { error.into() });
        }
        let text = text.trim();
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
        if !(MIN_LENGTH..=MAX_LENGTH).contains(&text.len()) || !text.chars().all(fits) {
            return Err(TokenError::Unfit);
        }
        Ok(Token(text.to_owned()))
    }
}

/// Whether a file can hold what others must not know.
fn check(file: &File) -> Result<(), TokenError> {
    let metadata = file.metadata()?;
    let me = rustix::process::geteuid();
    if !metadata.is_file() {
        return Err(TokenError::NoFile);
    }
    if metadata.uid() != me.as_raw() && metadata.uid() != rustix::process::Uid::ROOT.as_raw() {
        return Err(TokenError::Foreign(metadata.uid()));
    }
    if metadata.mode() & FORBIDDEN_MODE != 0 {
        return Err(TokenError::Open(metadata.mode()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_made_for_its_user_alone_and_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        // Windows that are started at once agree.
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Token::in_file(&path).expect("it is made").text().to_owned())).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0] && token.len() == 32), "{tokens:?}");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1, "nothing else is left");
        assert_ne!(Token::draw().expect("random").text(), tokens[0]);
    }

    #[test]
    fn files_that_others_may_read_or_that_hold_no_token_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let secret = "0123456789abcdef";
        let with = |text: &str, mode: u32| {
            fs::write(&path, text).expect("writes");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            Token::in_file(&path)
        };
        assert!(with(&format!("{secret}\n"), 0o400).expect("a token").admits(secret));
        assert!(with(secret, 0o640).expect("a group may read").admits(secret));
        for mode in [0o604, 0o602, 0o660, 0o620, 0o601] {
            assert!(matches!(with(secret, mode), Err(TokenError::Open(_))), "{mode:o}");
        }
        for text in [
            "",
            "short",
            "with a space in it",
            "line\nand another line",
            &"x".repeat(MAX_LENGTH + 1),
            "é".repeat(16).as_str(),
        ] {
            assert!(matches!(with(text, 0o600), Err(TokenError::Unfit)), "{text:?}");
        }
        assert!(matches!(Token::in_file(directory.path()), Err(TokenError::NoFile)));
        assert!(matches!(Token::in_file(&directory.path().join("no/token")), Err(TokenError::File(_))));
    }

    #[test]
    fn a_token_admits_itself_alone() {
        let token = Token("0123456789abcdef".to_owned());
        assert!(token.admits("0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF", "1123456789abcdef"] {
            assert!(!token.admits(other), "{other}");
        }
    }
}
