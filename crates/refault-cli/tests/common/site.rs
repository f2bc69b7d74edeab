//! A pool with members, and the window on it.
#![allow(dead_code)] // Each test file uses a part of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A pool with members, and the window on it.
pub struct Site {
    pub directory: TempDir,
    pub children: Vec<Child>,
    pub address: String,
    /// What `refault serve` printed behind the address.
    pub token: String,
}

impl Site {
    pub fn new(members: usize) -> Site {
        let directory = TempDir::new().expect("a directory");
        let mut site = Site { directory, children: Vec::new(), address: String::new(), token: String::new() };
        site.start(&["pool", "--memory", "256M", "--name", "web"]);
        let socket = site.directory.path().join("refault/web.sock");
        wait_for("the pool", || socket.exists());
        for _ in 0..members {
            site.start(&["run", "--quiet", "--pool", "web", "--", "sleep", "300"]);
        }
        site.serve(&["--listen", "127.0.0.1:0"]);
        site
    }

    /// Starts the window.
    pub fn serve(&mut self, arguments: &[&str]) {
        let mut command = self.command(&[&["serve"], arguments].concat());
        let mut serve = command.stderr(Stdio::piped()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(serve.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let (_, printed) = line.trim().split_once("http://").expect("an address");
        let (address, token) = printed.split_once("/#token=").expect("a token");
        (self.address, self.token) = (address.replace("0.0.0.0", "127.0.0.1"), token.to_owned());
        self.children.push(serve);
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("refault"));
        command.env("XDG_RUNTIME_DIR", self.directory.path()).args(arguments).stdout(Stdio::null());
        command
    }

    pub fn start(&mut self, arguments: &[&str]) {
        let child = self.command(arguments).stderr(Stdio::null()).spawn().expect("it starts");
        self.children.push(child);
    }

    /// What is answered to these bytes.
    pub fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        // It may be cut off while it sends.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn get(&self, path: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\n{}\r\n", self.known()).as_bytes())
    }

    /// Headers of who knows the token.
    pub fn known(&self) -> String {
        format!("Host: {}\r\nAuthorization: Bearer {}\r\n", self.address, self.token)
    }

    /// The only pool, as scripts read it.
    pub fn pool(&self) -> Value {
        let answer = self.get("/api/pools");
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
        serde_json::from_str::<Value>(body).expect("JSON")["pools"][0].take()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
