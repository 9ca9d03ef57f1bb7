//! A connection that several threads use at once.
//!
//! The host answers in the order of the requests. A thread sends its request and stands in a queue
//! then; one of those that wait receives for all of them, and hands each frame to the first in the
//! queue, whose answer it is.
//!
//! 1. A request stands in the queue before its first byte is sent, and requests are sent in the
//!    order of the queue: both happen with `sending` held.
//! 2. While the queue is not empty, one of its threads receives, or is about to look if another
//!    does. So the host can always send, and a thread that sends waits for no other thread.
//! 3. A frame that is not the answer to the first in the queue breaks the connection for all.
//!
//! Each thread sends by a call of its own. One call for the requests of several threads was tried
//! with `examples/tcp.rs`: a get of eight threads took 16 to 23 microseconds of the client's
//! processor either way, on two cores that others used too.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::super::{
    connection::{ATTEMPT_EVERY, RETURN_TIMEOUT, is_broken, is_gone, unexpected},
    counts::Counters,
    keyspace::KeyspaceInner as Keyspace,
    target::Target,
};
use crate::{
    error::{Error, Result},
    layout::Geometry,
    message::{
        Frame, HEADER_WORDS, Op, Reply, Request,
        format::{HAS_CHECKSUMS, PROGRAM_BYTES_MAX, RENEWED_MAX, feature},
    },
    socket::Stream,
};

/// How long a thread waits for the next bytes of the host: as on a Unix socket.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the greeting by RDMA may take, whose host has just answered over TCP.
#[cfg(all(feature = "rdma", target_os = "linux"))]
const SENDS_TIMEOUT: Duration = Duration::from_secs(1);

/// The way to a host: a connection, and how to make the next one.
pub(in crate::client) struct Link {
    target: Target,
    state: Mutex<LinkState>,
}

/// The connection, and how many there were.
#[derive(Debug, Default)]
struct LinkState {
    connection: Option<Arc<Connection>>,
    generation: u64,
}

/// A connection.
#[derive(Debug)]
pub(in crate::client) struct Connection {
    stream: Stream,
    /// The process that connected.
    process: u32,
    /// Which of the link's connections it is.
    generation: u64,
    sending: Mutex<Sending>,
    waiting: Mutex<Waiting>,
    /// The keyspaces that were opened in it, by their numbers.
    opened: Mutex<Vec<(Vec<u8>, Opened)>>,
}

#[derive(Debug, Default)]
struct Sending {
    last_id: u32,
    out: Vec<u8>,
}

/// The threads that wait for answers.
#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Waiter>,
    /// Answers whose threads have not come for them yet.
    ready: HashMap<u32, Vec<u8>>,
    /// True while a thread receives.
    is_received: bool,
    /// Why the connection cannot be used any more.
    broken: Option<Error>,
}

#[derive(Debug)]
struct Waiter {
    id: u32,
    /// None if nobody wants the answer.
    wake: Option<Arc<Condvar>>,
}

/// How a keyspace is read over TCP.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) enum Shape {
    /// By guesses of leaves, which all have these sizes.
    Runs(Geometry),
    /// Piece by piece. This is what the control part begins with.
    Pieces([u64; HEADER_WORDS]),
}

/// A keyspace of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Opened {
    /// Its number in the connection.
    pub(in crate::client) number: u32,
    /// How it is read.
    pub(in crate::client) shape: Shape,
    /// Which of the link's connections it is in: the next host may know nothing of what this one
    /// said.
    pub(in crate::client) generation: u64,
}

/// Every change of what the locks hold is a single step.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Connects to a host.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`](crate::Client::connect).
    pub(in crate::client) fn connect(target: Target) -> Result<Self> {
        let link = Self { target, state: Mutex::default() };
        link.renew(&mut lock(&link.state))?;
        Ok(link)
    }

    /// How a keyspace was opened in the connection, which is done if it was not.
    ///
    /// # Errors
    ///
    /// As [`Client::keyspace`](crate::Client::keyspace).
    pub(in crate::client) fn open(&self, name: &[u8]) -> Result<Opened> {
        let open = || self.connection()?.open(name);
        match open() {
            Err(error) if is_broken(&error) => open(),
            opened => opened,
        }
    }

    /// The address of this machine that the connection comes from.
    ///
    /// # Errors
    ///
    /// Those of connecting; [`Error::Io`].
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(in crate::client) fn local_address(&self) -> Result<std::net::IpAddr> {
        self.connection()?.stream.local_address()
    }

    /// The socket of the connection, as another descriptor.
    ///
    /// # Errors
    ///
    /// As [`Link::local_address`].
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(in crate::client) fn socket(&self) -> Result<std::os::fd::OwnedFd> {
        use std::os::fd::AsFd;
        let connection = self.connection()?;
        let socket = connection.stream.as_fd().try_clone_to_owned();
        socket.map_err(|error| Error::io("copy a connection's descriptor", error))
    }

    /// How a keyspace was opened in the connection of now; `None` if there is none that is usable,
    /// or it was not opened there yet. Does not wait.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(in crate::client) fn opened_now(&self, name: &[u8]) -> Option<Opened> {
        let connection = self.state.try_lock().ok()?.connection.clone();
        let connection = connection.filter(|connection| connection.is_usable())?;
        let all = connection.opened.try_lock().ok()?;
        all.iter().find(|(other, _)| other == name).map(|(_, opened)| *opened)
    }

    /// Gives the connection up if the host has ended it. Does not wait.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(in crate::client) fn notice_end(&self) {
        let connection = self.state.try_lock().ok().and_then(|state| state.connection.clone());
        if let Some(connection) = connection.filter(|connection| connection.stream.has_hung_up()) {
            connection.give_up(&Error::Closed);
        }
    }

    /// Another connection to the host of the one of this number, which is greeted.
    ///
    /// # Errors
    ///
    /// Those of greeting.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(in crate::client) fn begin(
        &self,
        stream: Stream,
        generation: u64,
    ) -> Result<Arc<Connection>> {
        Connection::begin(stream, generation, self.target.token(), SENDS_TIMEOUT)
    }

    /// Makes a call, by RDMA where that is used and the call is short. `request` is told how the
    /// keyspace was opened in the connection that is used, and `read` is given the reply. A call
    /// that changes nothing is repeated once if the connection breaks.
    pub(in crate::client) fn call<'a, T>(
        &self,
        keyspace: &Keyspace,
        is_read: bool,
        request: impl Fn(&Opened) -> Request<'a>,
        read: impl FnOnce(Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        let by_rdma = keyspace.remote(self);
        match by_rdma.and_then(|remote| remote.exchange(is_read, &request)) {
            None => self.call_by_tcp(keyspace, is_read, request, read),
            Some(answered) => {
                keyspace.counters.sent();
                let (sent, frame) = answered?;
                keyspace.counters.bytes(sent, frame.len());
                answer(&frame, read)
            }
        }
    }

    /// [`Link::call`] over TCP.
    pub(in crate::client) fn call_by_tcp<'a, T>(
        &self,
        keyspace: &Keyspace,
        is_read: bool,
        request: impl Fn(&Opened) -> Request<'a>,
        read: impl FnOnce(Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        keyspace.counters.round_trip();
        let frame = match self.try_call(keyspace, &request) {
            Err(error) if is_read && is_broken(&error) => self.try_call(keyspace, &request)?,
            frame => frame?,
        };
        answer(&frame, read)
    }

    /// Makes changes of several keyspaces as one. `ops` is given the keyspaces' numbers in the
    /// connection that is used.
    pub(in crate::client) fn call_batch<'a, T>(
        &self,
        keyspaces: &[Arc<Keyspace>],
        ops: impl Fn(&[u32]) -> Vec<Op<'a>>,
        read: impl FnOnce(Reply<'_>) -> Result<T>,
    ) -> Result<T> {
        let connection = self.connection()?;
        let mut numbers = Vec::with_capacity(keyspaces.len());
        for keyspace in keyspaces {
            keyspace.counters.round_trip();
            numbers.push(connection.open(keyspace.name())?.number);
        }
        let (_, frame) = connection.exchange(&Request::Batch { ops: ops(&numbers) })?;
        answer(&frame, read)
    }

    /// Reports how gets went, without waiting for the answer.
    pub(in crate::client) fn report(&self, counters_of: impl Fn(&[u8]) -> Option<Arc<Counters>>) {
        // Where others are connecting or opening, there is another time.
        let connection = self.state.try_lock().ok().and_then(|state| state.connection.clone());
        let Some(connection) = connection.filter(|connection| connection.is_usable()) else {
            return;
        };
        let mut gets = Vec::new();
        let Ok(all) = connection.opened.try_lock() else { return };
        for (name, opened) in all.iter().take(RENEWED_MAX) {
            let counters = counters_of(name);
            let fresh = counters.and_then(|counters| counters.report(counters.gets()));
            gets.extend(fresh.map(|counts| (opened.number, counts)));
        }
        drop(all);
        if !gets.is_empty() {
            // If it does not arrive, the next call does not either.
            let _ = connection.send(&Request::Renew { epoch: 0, gets }, None);
        }
    }

    fn try_call<'a>(
        &self,
        keyspace: &Keyspace,
        request: &impl Fn(&Opened) -> Request<'a>,
    ) -> Result<Vec<u8>> {
        let connection = self.connection()?;
        let opened = connection.open(keyspace.name())?;
        let (sent, frame) = connection.exchange(&request(&opened))?;
        keyspace.counters.bytes(sent, frame.len());
        Ok(frame)
    }

    /// The connection, or another one if it broke. A forked child speaks over one of its own.
    fn connection(&self) -> Result<Arc<Connection>> {
        let mut state = lock(&self.state);
        let usable = state.connection.as_ref().filter(|connection| connection.is_usable());
        if let Some(connection) = usable {
            return Ok(Arc::clone(connection));
        }
        state.connection = None;
        let until = Instant::now() + RETURN_TIMEOUT;
        loop {
            match self.renew(&mut state) {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() >= until || !is_gone(&error) => return Err(error),
                Err(_) => thread::sleep(ATTEMPT_EVERY),
            }
        }
    }

    fn renew(&self, state: &mut LinkState) -> Result<Arc<Connection>> {
        let stream = self.target.connect()?;
        state.generation += 1;
        let connection =
            Connection::begin(stream, state.generation, self.target.token(), CALL_TIMEOUT)?;
        state.connection = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

/// What a call makes of the frame of its answer.
fn answer<T>(frame: &[u8], read: impl FnOnce(Reply<'_>) -> Result<T>) -> Result<T> {
    match Reply::decode(&Frame::parse(frame)?)? {
        Reply::Failed { code, text } => Err(Error::Refused { code, text: text.to_owned() }),
        reply => read(reply),
    }
}

impl Connection {
    /// A connection that has greeted the host.
    fn begin(
        stream: Stream,
        generation: u64,
        token: Option<&[u8]>,
        patience: Duration,
    ) -> Result<Arc<Self>> {
        stream.set_timeouts(Some(patience), Some(patience))?;
        let connection = Self {
            stream,
            process: std::process::id(),
            generation,
            sending: Mutex::default(),
            waiting: Mutex::default(),
            opened: Mutex::default(),
        };
        connection.greet(token)?;
        connection.stream.set_timeouts(Some(CALL_TIMEOUT), Some(CALL_TIMEOUT))?;
        Ok(Arc::new(connection))
    }

    pub(in crate::client) fn is_usable(&self) -> bool {
        self.process == std::process::id() && lock(&self.waiting).broken.is_none()
    }

    fn greet(&self, token: Option<&[u8]>) -> Result<()> {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().and_then(|name| name.to_str());
        // Longer names are refused.
        let program = program.filter(|name| name.len() <= PROGRAM_BYTES_MAX).unwrap_or_default();
        let features = feature::NO_DESCRIPTORS;
        let (_, frame) = self.exchange(&Request::Hello { program, features, token })?;
        match Reply::decode(&Frame::parse(&frame)?)? {
            Reply::Hello { .. } => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// How a keyspace was opened, which is done if it was not. The list is held meanwhile, so that
    /// the numbers are those that the host counts.
    pub(in crate::client) fn open(&self, name: &[u8]) -> Result<Opened> {
        let mut all = lock(&self.opened);
        if let Some((_, opened)) = all.iter().find(|(other, _)| other == name) {
            return Ok(*opened);
        }
        let (_, frame) = self.exchange(&Request::Open { keyspace: name })?;
        let opened = match Reply::decode(&Frame::parse(&frame)?)? {
            Reply::Described { keyspace, leaf_bytes, room, .. }
                if keyspace as usize == all.len() =>
            {
                let has_checksums = leaf_bytes & HAS_CHECKSUMS != 0;
                Geometry::new(leaf_bytes & !HAS_CHECKSUMS, room)
                    .map(|sizes| (keyspace, Shape::Runs(sizes.with_checksums(has_checksums))))
            }
            Reply::Shown { keyspace, header } if keyspace as usize == all.len() => {
                Ok((keyspace, Shape::Pieces(header)))
            }
            Reply::Described { .. } | Reply::Shown { .. } => {
                Err(Error::invalid("a keyspace with another number than the next"))
            }
            other => return Err(unexpected(&other)),
        };
        if let Err(error) = &opened {
            // The host counts this keyspace among those that are open.
            self.give_up(error);
        }
        let (number, shape) = opened?;
        let opened = Opened { number, shape, generation: self.generation };
        all.push((name.to_vec(), opened));
        Ok(opened)
    }

    /// Sends a request and waits for its answer; returns the length of the one, and the other.
    pub(in crate::client) fn exchange(&self, request: &Request<'_>) -> Result<(usize, Vec<u8>)> {
        let wake = Arc::new(Condvar::new());
        let (id, sent) = self.send(request, Some(&wake))?;
        Ok((sent, self.wait_for(id, &wake)?))
    }

    /// Sends a request; returns its id and its length. `wake` is told when its answer has come,
    /// which is thrown away if nobody wants it.
    fn send(&self, request: &Request<'_>, wake: Option<&Arc<Condvar>>) -> Result<(u32, usize)> {
        let sending = &mut *lock(&self.sending);
        let id = sending.last_id.wrapping_add(1).max(1);
        sending.out.clear();
        request.encode(id, &mut sending.out)?;
        sending.last_id = id;
        {
            let mut waiting = lock(&self.waiting);
            if let Some(error) = &waiting.broken {
                return Err(error.clone());
            }
            waiting.queue.push_back(Waiter { id, wake: wake.cloned() });
        }
        if let Err(error) = self.stream.send(&sending.out, &[]) {
            self.give_up(&error);
            return Err(error);
        }
        Ok((id, sending.out.len()))
    }

    /// Waits until the answer has come, and receives for those before in the meantime if no other
    /// thread does.
    fn wait_for(&self, id: u32, wake: &Condvar) -> Result<Vec<u8>> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(frame) = waiting.ready.remove(&id) {
                return Ok(frame);
            }
            if let Some(error) = &waiting.broken {
                return Err(error.clone());
            }
            if waiting.is_received {
                waiting = wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            waiting.is_received = true;
            drop(waiting);
            let mut frame = Vec::new();
            let received = self.stream.receive(&mut frame);
            waiting = lock(&self.waiting);
            waiting.is_received = false;
            if let Err(error) = received.and_then(|_| waiting.hand_over(frame)) {
                waiting.end(&error);
                drop(waiting);
                // The error that led here is the one to report.
                let _ = self.stream.shutdown();
                return Err(error);
            }
            if let Some(frame) = waiting.ready.remove(&id) {
                // Another one receives from here on.
                if let Some(next) = waiting.queue.iter().find_map(|waiter| waiter.wake.as_ref()) {
                    next.notify_one();
                }
                return Ok(frame);
            }
        }
    }

    /// Gives the connection up, for all threads that wait for it too.
    fn give_up(&self, error: &Error) {
        lock(&self.waiting).end(error);
        // The error that led here is the one to report.
        let _ = self.stream.shutdown();
    }
}

impl Waiting {
    /// Hands a frame to the first in the queue.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for one that is not its answer.
    fn hand_over(&mut self, frame: Vec<u8>) -> Result<()> {
        let id = Frame::parse(&frame)?.id;
        if self.queue.front().is_none_or(|first| first.id != id) {
            // Those that wait are told so.
            return Err(Error::invalid("an answer to another question"));
        }
        if let Some(Waiter { wake: Some(wake), .. }) = self.queue.pop_front() {
            self.ready.insert(id, frame);
            wake.notify_one();
        }
        Ok(())
    }

    /// Tells all that wait why there is no answer.
    fn end(&mut self, error: &Error) {
        self.broken.get_or_insert_with(|| error.clone());
        self.queue.drain(..).filter_map(|waiter| waiter.wake).for_each(|wake| wake.notify_one());
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("target", &self.target).finish_non_exhaustive()
    }
}
