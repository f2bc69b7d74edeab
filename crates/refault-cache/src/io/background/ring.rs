//! Reads through io_uring: one thread has all of them under way, and no thread waits for a single one.
//!
//! The thread alone submits and reaps, as `IORING_SETUP_SINGLE_ISSUER` wants it, so completions interrupt no other
//! thread; others put what they want into a queue and wake it if it sleeps. Frames are registered in chunks when they
//! are first read into: then the kernel does not look the memory up again. Reads of one page go to the registered
//! memory; runs go to frames that do not follow each other, by a vector. Where the kernel registers nothing
//! (`RLIMIT_MEMLOCK`), reads go without. Files are not registered: the kernel takes a ring down some time after its
//! program has ended. What is registered remains open until then, so its file system could not be unmounted.
//!
//! Invariants: at most [`FLIGHTS`] reads are under way, more wait in the queue; a read that was submitted keeps its
//! file, its vector and its frames until its completion was seen; the thread waits for nothing but the kernel: what
//! falls short or must be repeated goes to threads that may. Cost: per read a box, a lock, and a system call where the
//! thread was asleep. Source: `io_uring_enter(2)`, `io_uring_register(2)`.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use io_uring::{IoUring, opcode, types};
use refault_core::frames::Frame;
use refault_store::PAGE_SIZE;
use rustix::event::{EventfdFlags, eventfd};

use crate::engine::buffers::{Buffers, FRAMES_PER_HUGE_PAGE};
use crate::io::background::workers::{Job, Workers};
use crate::io::opened::Opened;
use crate::io::run::{Done, Fault, Run};
use crate::io::runs::read_run;

const PAGE: u64 = PAGE_SIZE as u64;
/// Requests that the ring has room for.
const ENTRIES: usize = 256;
/// Reads under way at most: one request is the queue's.
const FLIGHTS: usize = ENTRIES - 1;
/// Frames that are registered together.
const CHUNK: usize = FRAMES_PER_HUGE_PAGE;
/// The completion that says that something is in the queue.
const WOKEN: u64 = u64::MAX;
/// How long the thread waits before it asks a kernel again that could not take its requests.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// `IORING_ENTER_GETEVENTS`.
const GETEVENTS: u32 = 1;
/// How often the kernel may say one after the other that it lacks something for the moment.
const MAX_REFUSALS: u32 = 100;

const UNBROKEN: &str = "invariant: nothing panics under this lock";

enum Message {
    Read(Arc<Opened>, Run, Done),
    Run(Job),
    GiveBack(Vec<Frame>),
    Close,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// Until its thread takes it.
    ring: Option<IoUring>,
    /// Chunks that have lost frames before that.
    given_back: HashSet<usize>,
}

struct Common {
    queue: Mutex<Queue>,
    /// The thread waits for completions only.
    sleeping: AtomicBool,
    wake: OwnedFd,
    registered: AtomicU64,
    buffers: Arc<Buffers>,
    /// For what has to wait.
    threads: Workers,
}

pub(crate) struct Ring(Arc<Common>);

impl Ring {
    /// A ring, if the kernel gives one. Its thread starts with the first read.
    pub(crate) fn new(buffers: Arc<Buffers>, threads: Workers) -> io::Result<Ring> {
        // Valgrind lets no other thread run while one waits in the ring, so none could ever wake it.
        if std::env::var_os("LD_PRELOAD").is_some_and(|names| names.to_string_lossy().contains("vgpreload")) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "valgrind stops all threads while one waits for a ring",
            ));
        }
        let ring =
            IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_r_disabled().build(ENTRIES as u32)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Ring(Arc::new(Common {
            queue: Mutex::new(Queue { ring: Some(ring), ..Queue::default() }),
            sleeping: AtomicBool::new(false),
            wake,
            registered: AtomicU64::new(0),
            buffers,
            threads,
        })))
    }

    pub(crate) fn registered_bytes(&self) -> u64 {
        self.0.registered.load(Ordering::Relaxed) * PAGE
    }

    /// Reads a run of a file that has a descriptor.
    pub(crate) fn read(&self, file: Arc<Opened>, run: Run, done: Done) {
        self.send(Message::Read(file, run, done));
    }

    pub(crate) fn run(&self, job: Job) {
        self.send(Message::Run(job));
    }

    /// The system gets the memory of frames back that are not used again. Their chunks are registered no more.
    pub(crate) fn give_back(&self, frames: Vec<Frame>) {
        let mut queue = self.0.queue.lock().expect(UNBROKEN);
        if queue.ring.is_none() {
            queue.messages.push_back(Message::GiveBack(frames));
            drop(queue);
            self.0.wake();
        } else {
            // Nothing is registered yet, and their chunks will not be.
            queue.given_back.extend(frames.iter().map(|frame| *frame as usize / CHUNK));
            frames.into_iter().for_each(|frame| self.0.buffers.give_back(frame));
        }
    }

    pub(crate) fn close(&self) {
        let mut queue = self.0.queue.lock().expect(UNBROKEN);
        if queue.ring.take().is_none() {
            queue.messages.push_back(Message::Close);
            drop(queue);
            self.0.wake();
        }
    }

    fn send(&self, message: Message) {
        let mut queue = self.0.queue.lock().expect(UNBROKEN);
        queue.messages.push_back(message);
        if let Some(ring) = queue.ring.take() {
            let common = self.0.clone();
            let given = Arc::new(Mutex::new(Some(ring)));
            let taken = given.clone();
            let run = move || {
                let ring = taken.lock().expect(UNBROKEN).take().expect("invariant: taken once");
                Thread::new(common, ring).run();
            };
            if std::thread::Builder::new().name("refault-ring".into()).spawn(run).is_err() {
                // The next one tries again; this one is done here.
                queue.ring = given.lock().expect(UNBROKEN).take();
                let message = queue.messages.pop_back();
                drop(queue);
                message.into_iter().for_each(|message| self.0.do_here(message));
                return;
            }
        }
        drop(queue);
        self.0.wake();
    }
}

impl Common {
    fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // Fails only if the counter is full, and then the thread is awake.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    fn do_here(&self, message: Message) {
        match message {
            Message::Read(file, run, done) => {
                let outcome = read_run(&file, &self.buffers, &run);
                // Before who waits for the run may close the file.
                drop(file);
                done(run, outcome);
            }
            Message::Run(job) => job(),
            Message::GiveBack(frames) => frames.into_iter().for_each(|frame| self.buffers.give_back(frame)),
            Message::Close => {}
        }
    }

    /// By a thread that may wait.
    fn read_slowly(self: &Arc<Self>, file: Arc<Opened>, run: Run, done: Done) {
        let common = self.clone();
        self.threads.submit(Box::new(move || common.do_here(Message::Read(file, run, done))));
    }
}

/// A read that the kernel has.
struct Flight {
    file: Arc<Opened>,
    /// Open as long as the kernel reads it.
    descriptor: Arc<File>,
    run: Run,
    done: Done,
    /// Bytes that the file has from there on, at most the run's.
    wanted: usize,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the pointers in `vectors` are those of frames, which the run makes this flight's own.
unsafe impl Send for Flight {}

/// What is known of a chunk of frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chunk {
    New,
    Registered,
    /// Frames of it have no memory any more, and would get some.
    Barred,
}

/// What the ring's thread has.
struct Thread {
    common: Arc<Common>,
    ring: IoUring,
    todo: VecDeque<Message>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Chunks of frames. Empty: none can be registered.
    chunks: Vec<Chunk>,
    /// No registration of a chunk has failed.
    registers: bool,
    woken: Box<u64>,
    armed: bool,
    /// The kernel may not have taken that yet.
    arming: bool,
    /// The kernel gave a ring that it does not enable, or takes requests no more: threads read.
    broken: bool,
    /// How often the kernel has refused since it last took requests.
    refusals: u32,
    closed: bool,
}

impl Thread {
    fn new(common: Arc<Common>, ring: IoUring) -> Thread {
        let mut chunks = vec![Chunk::New; common.buffers.pins.len().div_ceil(CHUNK)];
        let given_back = std::mem::take(&mut common.queue.lock().expect(UNBROKEN).given_back);
        given_back.into_iter().for_each(|chunk| chunks[chunk] = Chunk::Barred);
        Thread {
            common,
            ring,
            todo: VecDeque::new(),
            flights: (0..FLIGHTS).map(|_| None).collect(),
            free: (0..FLIGHTS).rev().collect(),
            chunks,
            registers: true,
            woken: Box::new(0),
            armed: false,
            arming: false,
            broken: false,
            refusals: 0,
            closed: false,
        }
    }

    fn run(mut self) {
        self.broken = self.ring.submitter().register_enable_rings().is_err();
        if self.ring.submitter().register_buffers_sparse(self.chunks.len() as u32).is_err() {
            self.chunks.clear();
        }
        loop {
            self.todo.append(&mut self.common.queue.lock().expect(UNBROKEN).messages);
            self.work();
            let idle = self.free.len() == FLIGHTS && self.todo.is_empty();
            if self.closed && idle {
                return;
            }
            self.arm();
            // A sender from here on wakes; what was sent before is seen.
            self.common.sleeping.store(true, Ordering::SeqCst);
            if !self.common.queue.lock().expect(UNBROKEN).messages.is_empty() {
                self.common.sleeping.store(false, Ordering::SeqCst);
                self.enter(0);
            } else {
                self.enter(1);
                self.common.sleeping.store(false, Ordering::SeqCst);
            }
            self.reap();
        }
    }

    /// Does what is to be done, as far as the ring has room.
    fn work(&mut self) {
        while let Some(message) = self.todo.pop_front() {
            match message {
                Message::Read(file, run, done) if self.broken => self.common.read_slowly(file, run, done),
                Message::Read(file, run, done) if self.free.is_empty() => {
                    self.todo.push_front(Message::Read(file, run, done));
                    return;
                }
                Message::Read(file, run, done) => self.submit(file, run, done),
                Message::Run(job) => job(),
                Message::GiveBack(frames) => self.give_back(frames),
                Message::Close => self.closed = true,
            }
        }
    }

    fn submit(&mut self, file: Arc<Opened>, run: Run, done: Done) {
        let offset = run.index * PAGE;
        let wanted = file.len().saturating_sub(offset).min(run.pages.len() as u64 * PAGE) as usize;
        let Some(descriptor) = file.backing.descriptor().filter(|_| wanted > 0) else {
            // It was cut off meanwhile.
            return done(run, Err(Fault::Short));
        };
        let place = self.free.pop().expect("invariant: there is room");
        // SAFETY: the pages are busy on the account of the thread that has the run, each with a frame of its own.
        let address = |frame| unsafe { self.common.buffers.page_mut(frame) }.0.as_mut_ptr();
        let mut vectors: Vec<libc::iovec> = Vec::new();
        for (_, frame) in &run.pages {
            let at = address(*frame).cast();
            match vectors.last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == at => last.iov_len += PAGE_SIZE,
                _ => vectors.push(libc::iovec { iov_base: at, iov_len: PAGE_SIZE }),
            }
        }
        let (first, last) = (run.pages[0].1, run.pages[run.pages.len() - 1].1);
        let in_one_chunk = vectors.len() == 1 && first as usize / CHUNK == last as usize / CHUNK;
        let registered = if in_one_chunk { self.registered_frame(first) } else { None };
        let below = types::Fd(descriptor.as_raw_fd());
        let entry = match registered {
            Some(chunk) => opcode::ReadFixed::new(below, vectors[0].iov_base.cast(), vectors[0].iov_len as u32, chunk)
                .offset(offset)
                .build(),
            None => opcode::Readv::new(below, vectors.as_ptr(), vectors.len() as u32).offset(offset).build(),
        };
        self.flights[place] = Some(Flight { file, descriptor, run, done, wanted, vectors });
        // SAFETY: file, vector (which does not move with the flight) and frames are the flight's until its completion.
        unsafe { self.ring.submission().push(&entry.user_data(place as u64)) }
            .expect("invariant: the ring has room for every flight and one more");
    }

    /// The chunk of a frame, registered now if it can be.
    fn registered_frame(&mut self, frame: u32) -> Option<u16> {
        let chunk = frame as usize / CHUNK;
        let state = *self.chunks.get(chunk)?;
        if state == Chunk::Barred || state == Chunk::New && !self.registers {
            return None;
        }
        if state == Chunk::New {
            let frames = self.frames_of(chunk);
            let base = self.common.buffers.address((chunk * CHUNK) as u32);
            let vector = libc::iovec { iov_base: base.cast(), iov_len: frames * PAGE_SIZE };
            // SAFETY: the memory is mapped as long as the buffers, which this thread has; the kernel writes to it only
            // on behalf of reads.
            if unsafe { self.ring.submitter().register_buffers_update(chunk as u32, &[vector], None) }.is_err() {
                // What is registered stays known: it is to be given back.
                self.registers = false;
                return None;
            }
            self.chunks[chunk] = Chunk::Registered;
            self.common.registered.fetch_add(frames as u64, Ordering::Relaxed);
        }
        u16::try_from(chunk).ok()
    }

    fn frames_of(&self, chunk: usize) -> usize {
        CHUNK.min(self.common.buffers.pins.len() - chunk * CHUNK)
    }

    /// The kernel holds registered memory whatever the program does with it, so it is given up first. Reads under way
    /// keep what they need of it.
    fn give_back(&mut self, frames: Vec<Frame>) {
        // Reads that the kernel has not seen yet name chunks by their numbers.
        self.enter(0);
        for frame in frames {
            let chunk = frame as usize / CHUNK;
            if let Some(state) = self.chunks.get(chunk).copied() {
                let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
                // SAFETY: nothing is registered in place of the chunk.
                let leave = || unsafe { self.ring.submitter().register_buffers_update(chunk as u32, &[none], None) };
                if state == Chunk::Registered && leave().is_ok() {
                    self.common.registered.fetch_sub(self.frames_of(chunk) as u64, Ordering::Relaxed);
                }
                self.chunks[chunk] = Chunk::Barred;
            }
            self.common.buffers.give_back(frame);
        }
    }

    /// Has a completion come when a thread sends.
    fn arm(&mut self) {
        if !self.armed && !self.broken {
            let into: *mut u64 = &mut *self.woken;
            let fd = types::Fd(self.common.wake.as_fd().as_raw_fd());
            let entry = opcode::Read::new(fd, into.cast(), 8).build().user_data(WOKEN);
            // SAFETY: the word is in a box that lives as long as the ring; nothing reads it.
            unsafe { self.ring.submission().push(&entry) }.expect("invariant: the ring has room for one more");
            (self.armed, self.arming) = (true, true);
        }
    }

    fn enter(&mut self, wait: usize) {
        if self.broken {
            if wait > 0 {
                // A sender writes it.
                let _ = rustix::io::read(&self.common.wake, &mut [0; 8]);
            }
            return;
        }
        let entered = self.ring.submit_and_wait(wait).map_err(|error| error.raw_os_error());
        self.arming &= !self.ring.submission().is_empty();
        let error = match entered {
            Ok(_) => {
                self.refusals = 0;
                return;
            }
            Err(Some(libc::EINTR)) => return,
            Err(error) => error,
        };
        self.refusals += 1;
        let may_pass = matches!(error, Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM));
        let under_way = FLIGHTS - self.free.len() + usize::from(self.arming);
        if !(may_pass && self.refusals < MAX_REFUSALS) && self.ring.submission().len() == under_way {
            self.give_up();
        } else {
            // What was not taken is in the ring still. The kernel may complete what it has taken, and until then no
            // other thread may use those frames.
            // SAFETY: nothing is handed over but the wish to see what is complete.
            let _ = unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, GETEVENTS, None) };
            std::thread::sleep(PAUSE);
        }
    }

    /// The kernel takes requests no more, as where a program has forbidden them to itself, and has none of those that
    /// are in the ring. They stay there, and it is not entered again.
    fn give_up(&mut self) {
        self.broken = true;
        self.armed = false;
        for place in 0..FLIGHTS {
            if let Some(Flight { file, run, done, .. }) = self.flights[place].take() {
                self.free.push(place);
                self.common.read_slowly(file, run, done);
            }
        }
    }

    fn reap(&mut self) {
        let seen: Vec<(u64, i32)> = self.ring.completion().map(|seen| (seen.user_data(), seen.result())).collect();
        for (place, result) in seen {
            if place == WOKEN {
                self.armed = false;
                continue;
            }
            let flight = self.flights[place as usize].take().expect("invariant: a flight completes once");
            self.free.push(place as usize);
            self.land(flight, result);
        }
    }

    fn land(&self, flight: Flight, result: i32) {
        let Flight { file, descriptor, run, done, wanted, vectors } = flight;
        drop((vectors, descriptor));
        match usize::try_from(result) {
            Ok(bytes) if bytes >= wanted => {
                for (number, (_, frame)) in run.pages.iter().enumerate() {
                    let valid = wanted.saturating_sub(number * PAGE_SIZE).min(PAGE_SIZE);
                    // SAFETY: the kernel has done its part, and the page is busy on the run's account.
                    unsafe { self.common.buffers.page_mut(*frame) }.0[valid..].fill(0);
                }
                // Before who waits for the run may close the file.
                drop(file);
                done(run, Ok(()));
            }
            // The rest is read page by page, and what cannot be read is said by who tries.
            Ok(_) => self.common.read_slowly(file, run, done),
            // The last where its chunk was given up before the kernel came to it.
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN | libc::EFAULT) => {
                self.common.read_slowly(file, run, done);
            }
            Err(_) => {
                drop(file);
                done(run, Err(Fault::Io(io::Error::from_raw_os_error(-result))));
            }
        }
    }
}
