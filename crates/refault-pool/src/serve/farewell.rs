//! The end of connections whose answer is written, while more may be coming.
//!
//! Closing such a one at once makes the kernel reset it, and who still sends never reads the answer. So one thread for
//! all reads and drops what comes, until the other side has closed or [`WITHIN`] has passed (RFC 9112 §9.6).
//!
//! Invariant: at most [`MAX_HELD`] are held; of more the oldest goes. Cost: while there are any, a look at each every
//! [`LOOK_EVERY`].
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//!
//! use refault_pool::serve::farewell::Farewell;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let mut client = TcpStream::connect(listener.local_addr()?)?;
//! let (mut stream, _) = listener.accept()?;
//! stream.write_all(b"no")?;
//! Farewell::new()?.end(stream);
//! client.write_all(&[0; 100_000])?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert_eq!(answer, "no");
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How long what comes is read.
pub const WITHIN: Duration = Duration::from_secs(2);
/// Connections that are held at once.
pub const MAX_HELD: usize = 128;
/// Between two looks.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes that are read of one at a look.
const PIECE: usize = 64 << 10;

/// See the module.
pub struct Farewell {
    to: SyncSender<TcpStream>,
}

impl Farewell {
    /// Starts the thread; it ends with the last that is held after this is dropped.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn new() -> io::Result<Farewell> {
        let (to, from) = sync_channel(MAX_HELD);
        std::thread::Builder::new().name("farewell".into()).stack_size(256 << 10).spawn(move || hold(&from))?;
        Ok(Farewell { to })
    }

    /// Ends a connection to which all has been written.
    pub fn end(&self, stream: TcpStream) {
        let is_shut = stream.shutdown(Shutdown::Write).and_then(|()| stream.set_nonblocking(true)).is_ok();
        if is_shut {
            // Where more come than can be held, this one is reset.
            let _ = self.to.try_send(stream);
        }
    }
}

fn hold(from: &Receiver<TcpStream>) {
    let mut held: VecDeque<(TcpStream, Instant)> = VecDeque::new();
    let mut piece = vec![0; PIECE];
    loop {
        let next = if held.is_empty() {
            from.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            from.recv_timeout(LOOK_EVERY)
        };
        match next {
            Ok(stream) => held.push_back((stream, Instant::now() + WITHIN)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if held.is_empty() => return,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
        }
        if held.len() > MAX_HELD {
            held.pop_front();
        }
        held.retain_mut(|(stream, until)| Instant::now() < *until && is_sending(stream, &mut piece));
    }
}

/// Reads what has come; whether more may come.
fn is_sending(stream: &mut TcpStream, piece: &mut [u8]) -> bool {
    match stream.read(piece) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}
