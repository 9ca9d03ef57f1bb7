//! The connection of asynchronous calls, and the two threads that send and receive.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    super::connection::{
        ATTEMPT_EVERY, CALL_TIMEOUT, RETURN_TIMEOUT, is_broken, is_gone, unexpected,
    },
    lock,
    queue::{Queue, Slot, spawn},
};
use crate::{
    error::{Error, Result},
    message::{
        Frame, Reply, Request,
        format::{PROGRAM_BYTES_MAX, feature},
    },
    socket::Stream,
};

/// How often a connection that is silent is looked after: an answer is late by a quarter of
/// [`CALL_TIMEOUT`] at most when that is noticed.
const TICK: Duration = Duration::from_millis(CALL_TIMEOUT.as_millis() as u64 / 4);

/// Bytes of requests that are sent together: a call of the system for each 64 KiB does not matter.
const SENT_BYTES: usize = 64 << 10;

/// A connection.
struct Line {
    stream: Stream,
    waiting: Mutex<Waiting>,
}

struct Waiting {
    by_id: HashMap<u32, Asker>,
    /// When the host last answered, or was asked after it had answered everything.
    heard: Instant,
    /// Why the connection cannot be used any more.
    broken: Option<Error>,
}

/// The receiver of an answer.
enum Asker {
    Future(Arc<Slot>),
    /// The thread that sends, which opens a keyspace.
    Sender(mpsc::Sender<Vec<u8>>),
}

/// What the thread that sends knows of the present connection.
struct Sending {
    line: Arc<Line>,
    /// The keyspaces that were opened, by their numbers.
    opened: Vec<Vec<u8>>,
    last_id: u32,
    out: Vec<u8>,
}

/// Sends what futures queue, until the client has gone.
pub(super) fn run(queue: &Arc<Queue>) {
    let mut sending: Option<Sending> = None;
    while let Some(mut slots) = queue.next() {
        while let Some(slot) = slots.pop_front() {
            if slot.is_forgotten() {
                queue.finish(&slot, Err(Error::Closed));
                continue;
            }
            let current = sending.take().filter(|sending| sending.line.is_usable());
            let mut current = match current.map_or_else(|| connect(queue), Ok) {
                Ok(current) => current,
                Err(error) => {
                    // The others would wait as long, for the same host.
                    queue.finish(&slot, Err(error.clone()));
                    slots.drain(..).for_each(|slot| queue.finish(&slot, Err(error.clone())));
                    continue;
                }
            };
            current.put(queue, &slot);
            if current.out.len() >= SENT_BYTES {
                current.flush();
            }
            sending = Some(current);
        }
        // The last of them may have been forgotten.
        if let Some(sending) = &mut sending {
            sending.flush();
        }
    }
    if let Some(sending) = sending {
        sending.line.end(Error::Closed);
    }
}

/// Connects, and waits for a host that has gone as blocking calls do.
fn connect(queue: &Arc<Queue>) -> Result<Sending> {
    let until = Instant::now() + RETURN_TIMEOUT;
    loop {
        match try_connect(queue) {
            Err(error) if Instant::now() >= until || queue.is_closed() || !is_gone(&error) => {
                return Err(error);
            }
            Err(_) => thread::sleep(ATTEMPT_EVERY),
            connected => return connected,
        }
    }
}

fn try_connect(queue: &Arc<Queue>) -> Result<Sending> {
    let stream = queue.target.connect()?;
    stream.set_timeouts(Some(CALL_TIMEOUT), Some(CALL_TIMEOUT))?;
    greet(&stream, queue.target.token())?;
    stream.set_timeouts(Some(TICK), Some(CALL_TIMEOUT))?;
    let waiting = Waiting { by_id: HashMap::new(), heard: Instant::now(), broken: None };
    let line = Arc::new(Line { stream, waiting: Mutex::new(waiting) });
    let (of_queue, of_line) = (Arc::clone(queue), Arc::clone(&line));
    spawn("rhumb-call-read", move || of_line.receive(&of_queue))?;
    Ok(Sending { line, opened: Vec::new(), last_id: 0, out: Vec::new() })
}

/// Greets the host as a client that takes no descriptors, on a Unix socket too: it maps nothing.
fn greet(stream: &Stream, token: Option<&[u8]>) -> Result<()> {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().and_then(|name| name.to_str());
    // Longer names are refused.
    let program = program.filter(|name| name.len() <= PROGRAM_BYTES_MAX).unwrap_or_default();
    let features = feature::NO_DESCRIPTORS;
    let mut frame = Vec::new();
    Request::Hello { program, features, token }.encode(1, &mut frame)?;
    stream.send(&frame, &[])?;
    stream.receive(&mut frame)?;
    match Reply::decode(&Frame::parse(&frame)?)? {
        Reply::Hello { .. } => Ok(()),
        other => Err(unexpected(&other)),
    }
}

impl Sending {
    /// Puts a request among those that are sent next. One that cannot be is answered by the error.
    fn put(&mut self, queue: &Queue, slot: &Arc<Slot>) {
        let numbers: Result<Vec<u32>> =
            slot.job.keyspaces.iter().map(|keyspace| self.number(keyspace.name())).collect();
        let id = self.next_id();
        let begin = self.out.len();
        let put = numbers.and_then(|numbers| {
            slot.job.encode(&numbers, id, &mut self.out)?;
            self.line.expect(id, Asker::Future(Arc::clone(slot)))
        });
        match put {
            Ok(()) => {}
            // It was not sent: over the next connection it may be.
            Err(error) if is_broken(&error) => {
                self.out.truncate(begin);
                queue.end_all(vec![Arc::clone(slot)], false, &error);
            }
            Err(error) => {
                self.out.truncate(begin);
                queue.finish(slot, Err(error));
            }
        }
    }

    fn next_id(&mut self) -> u32 {
        self.last_id = self.last_id.wrapping_add(1).max(1);
        self.last_id
    }

    fn flush(&mut self) {
        if let Err(error) = self.line.stream.send_frames(&self.out, &[]) {
            self.line.end(error);
        }
        self.out.clear();
    }

    /// The number of a keyspace, which is opened if it was not: waits for the answer then.
    fn number(&mut self, name: &[u8]) -> Result<u32> {
        if let Some(number) = self.opened.iter().position(|other| other == name) {
            return Ok(number as u32);
        }
        let id = self.next_id();
        let (answered, answer) = mpsc::channel();
        Request::Open { keyspace: name }.encode(id, &mut self.out)?;
        self.line.expect(id, Asker::Sender(answered))?;
        self.flush();
        let frame = answer.recv().map_err(|_| self.line.error())?;
        match Reply::decode(&Frame::parse(&frame)?)? {
            Reply::Described { keyspace, .. } | Reply::Shown { keyspace, .. }
                if keyspace as usize == self.opened.len() =>
            {
                self.opened.push(name.to_vec());
                Ok(keyspace)
            }
            Reply::Described { .. } | Reply::Shown { .. } => {
                let error = Error::invalid("a keyspace with another number than the next");
                // The host counts this keyspace among those that are open.
                self.line.end(error.clone());
                Err(error)
            }
            other => Err(unexpected(&other)),
        }
    }
}

impl Line {
    fn is_usable(&self) -> bool {
        lock(&self.waiting).broken.is_none()
    }

    /// Why the connection cannot be used any more.
    fn error(&self) -> Error {
        lock(&self.waiting).broken.clone().unwrap_or(Error::Closed)
    }

    /// Records the receiver of the answer to a request that is about to be sent.
    fn expect(&self, id: u32, asker: Asker) -> Result<()> {
        let waiting = &mut *lock(&self.waiting);
        if let Some(error) = &waiting.broken {
            return Err(error.clone());
        }
        if waiting.by_id.is_empty() {
            waiting.heard = Instant::now();
        }
        waiting.by_id.insert(id, asker);
        Ok(())
    }

    /// Hands answers to those that asked, until the connection breaks.
    fn receive(&self, queue: &Queue) {
        let error = loop {
            if let Err(error) = self.receive_one(queue) {
                break error;
            }
        };
        self.end(error);
        let (error, askers) = {
            let waiting = &mut *lock(&self.waiting);
            (waiting.broken.clone().unwrap_or(Error::Closed), std::mem::take(&mut waiting.by_id))
        };
        // Those of senders are dropped, which tells them.
        let futures = askers.into_values().filter_map(|asker| match asker {
            Asker::Future(slot) => Some(slot),
            Asker::Sender(_) => None,
        });
        queue.end_all(futures.collect(), true, &error);
    }

    fn receive_one(&self, queue: &Queue) -> Result<()> {
        let mut frame = Vec::new();
        match self.stream.receive(&mut frame) {
            Ok(_) => {}
            Err(Error::TimedOut) if frame.is_empty() => {
                let waiting = lock(&self.waiting);
                let is_late = !waiting.by_id.is_empty() && waiting.heard.elapsed() >= CALL_TIMEOUT;
                return if is_late { Err(Error::TimedOut) } else { Ok(()) };
            }
            Err(error) => return Err(error),
        }
        let id = Frame::parse(&frame)?.id;
        let asker = {
            let waiting = &mut *lock(&self.waiting);
            waiting.heard = Instant::now();
            waiting.by_id.remove(&id)
        };
        match asker {
            Some(Asker::Future(slot)) => queue.finish(&slot, Ok(frame)),
            // It waits for this.
            Some(Asker::Sender(sender)) => drop(sender.send(frame)),
            None => return Err(Error::invalid("an answer to no question")),
        }
        Ok(())
    }

    /// Gives the connection up. The thread that receives tells those that wait.
    fn end(&self, error: Error) {
        lock(&self.waiting).broken.get_or_insert(error);
        // The error that led here is the one to report.
        let _ = self.stream.shutdown();
    }
}
