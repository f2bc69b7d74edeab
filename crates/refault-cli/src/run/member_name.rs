//! What a member of a pool is called where it gives no name: the program that does the work, not one that starts it.
//!
//! `env A=1 nice -n 5 redis-server` is redis-server, `sh my.sh` is my.sh, `python3 -m http.server` is http.server. Where
//! that cannot be told from the words alone, it is the first program.

use std::ffi::OsString;
use std::path::Path;

use refault_pool::shared::daemon::MAX_NAME;

/// Programs that start another one: their options that take the next word, and their words before the other program.
const STARTERS: [(&str, &[&str], usize); 11] = [
    ("env", &["-u", "-C", "-S"], 0),
    ("nice", &["-n"], 0),
    ("nohup", &[], 0),
    ("setsid", &[], 0),
    ("exec", &["-a"], 0),
    ("stdbuf", &["-i", "-o", "-e"], 0),
    ("ionice", &["-c", "-n"], 0),
    ("timeout", &["-k", "-s"], 1),
    ("taskset", &[], 1),
    ("chrt", &[], 1),
    ("setpriv", &[], 0),
];
/// Programs that run a file of commands.
const INTERPRETERS: [&str; 10] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "python", "node", "ruby", "perl"];

/// The name of a command's member.
pub(super) fn of(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let first = words.first().map_or("", |word| base(word));
    worker(&words).filter(|name| !name.is_empty()).unwrap_or(first).to_owned()
}

/// A name that was given.
///
/// # Errors
/// It is none that fits on a line of a table.
pub(super) fn given(text: &str) -> Result<String, String> {
    let is_name = !text.trim().is_empty() && text.chars().count() <= MAX_NAME && !text.chars().any(char::is_control);
    if is_name { Ok(text.to_owned()) } else { Err(format!("give 1 to {MAX_NAME} characters that can be printed")) }
}

fn worker<'a>(words: &[&'a str]) -> Option<&'a str> {
    let (first, rest) = words.split_first()?;
    let name = base(first);
    if let Some((_, with_value, skipped)) = STARTERS.iter().find(|(starter, ..)| *starter == name) {
        let mut rest = rest.iter();
        let mut left = *skipped;
        while let Some(word) = rest.clone().next() {
            let is_option = word.starts_with('-') && word.len() > 1;
            let is_setting = name == "env" && word.contains('=');
            if !is_option && !is_setting {
                if left == 0 {
                    return worker(rest.as_slice());
                }
                left -= 1;
            }
            rest.next();
            if with_value.contains(word) {
                rest.next();
            }
        }
        return Some(name);
    }
    // Versions are a part of the name: python3.11.
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match rest {
        ["-m", module, ..] if plain == "python" => Some(module),
        [file, ..] if INTERPRETERS.contains(&plain) && !file.starts_with('-') => Some(base(file)),
        _ => Some(name),
    }
}

fn base(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_member_is_called_by_what_works() {
        for (command, name) in [
            ("redis-server --save x", "redis-server"),
            ("/usr/bin/redis-server", "redis-server"),
            ("env A=1 B= /usr/bin/redis-server", "redis-server"),
            ("env -i -u HOME nice -n 5 nohup memcached -u x", "memcached"),
            ("timeout -s KILL 5 ./server", "server"),
            ("taskset 0x1 sh /srv/my.sh a", "my.sh"),
            ("sh my.sh", "my.sh"),
            ("sh -c true", "sh"),
            ("python3.11 app.py --port 1", "app.py"),
            ("python3 -m http.server", "http.server"),
            ("python3 -c pass", "python3"),
            ("node", "node"),
            ("nodemon x.js", "nodemon"),
            ("env", "env"),
            ("timeout 5", "timeout"),
            ("env A=1", "env"),
        ] {
            let words: Vec<_> = command.split(' ').map(Into::into).collect();
            assert_eq!(of(&words), name, "{command}");
        }
        assert_eq!(of(&[]), "");
    }
}
