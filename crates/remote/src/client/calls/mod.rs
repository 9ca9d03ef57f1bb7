//! Calls as futures: many under way at once, without a thread for each and without a runtime.
//!
//! The first call starts two threads and a connection of their own. One thread sends what futures
//! have queued, the other receives answers and wakes the futures that they belong to. Nothing that
//! a future does blocks: it queues a request, or looks if its answer is there.
//!
//! 1. At most [`CALLS_MAX`] calls, and requests of [`REQUEST_BYTES_MAX`] bytes, are under way. A
//!    future beyond that keeps its request to itself until there is room.
//! 2. A future that is dropped before its request is sent has it forgotten; later the request
//!    happens, and its answer is thrown away. Its room is free once the answer has come.
//! 3. Wakers are called without a lock held.
//! 4. A forked child has threads and a connection of its own, and touches nothing of its parent's.

mod line;
mod queue;
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use self::queue::{Ask, Job, Queue, Slot};
use super::{
    Batch,
    connection::{ClientInner as Client, unexpected},
    keyspace::Keyspace,
    target::Target,
};
use crate::{
    error::{Error, Result},
    message::{Frame, Reply, format::FRAME_BYTES_MAX},
};

/// Calls under way at once: enough that a host over a network of a millisecond answers a million a
/// second.
const CALLS_MAX: usize = 1_024;

/// Bytes of the requests under way at once, but for a single larger one: what the longest frame
/// has.
const REQUEST_BYTES_MAX: usize = FRAME_BYTES_MAX;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change of what the locks hold is a single step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a client keeps for its asynchronous calls.
pub(super) struct Calls {
    target: Target,
    queue: Mutex<Option<Arc<Queue>>>,
}

impl Calls {
    pub(super) fn new(target: Target) -> Self {
        Self { target, queue: Mutex::default() }
    }

    /// The queue of this process, whose threads run.
    fn queue(&self) -> Result<Arc<Queue>> {
        let mut queue = lock(&self.queue);
        if let Some(queue) = queue.as_ref().filter(|queue| queue.is_of_this_process()) {
            return Ok(Arc::clone(queue));
        }
        // The parent's threads and its connection are not here to be ended.
        std::mem::forget(queue.take());
        let started = Queue::start(self.target.clone())?;
        Ok(Arc::clone(queue.insert(started)))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match queue {
            Some(queue) if queue.is_of_this_process() => queue.close(),
            queue => std::mem::forget(queue),
        }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("target", &self.target).finish_non_exhaustive()
    }
}

/// A call that is a future. It runs under any executor; nothing is sent before it is polled first.
///
/// At most 1,024 calls of a client are under way at once, with requests of 16 MiB together; others
/// wait for these. A call that is dropped before it was sent does not happen; later it does, and
/// nobody learns how it ended. An answer that does not come within ten seconds or a little more is
/// [`Error::TimedOut`].
///
/// ```no_run
/// # async fn example() -> rhumb_remote::Result<()> {
/// use rhumb_remote::Client;
///
/// let users = Client::connect("tcp:db.example:7000")?.keyspace("users")?;
/// // Both are under way at once, where they are polled together.
/// let (ada, grace) = (users.insert_async("ada", "1815"), users.insert_async("grace", "1906"));
/// # async fn join<A, B>(_: A, _: B) -> (rhumb_remote::Result<()>, rhumb_remote::Result<()>) {
/// #     (Ok(()), Ok(()))
/// # }
/// let (ada, grace) = join(ada, grace).await;
/// (ada?, grace?);
/// assert_eq!(users.get_async("ada").await?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent before it is polled"]
pub struct Call<T> {
    state: CallState<T>,
}

/// Takes what a call returns out of its answer.
type Read<T> = fn(&Reply<'_>) -> Result<T>;

enum CallState<T> {
    /// The answer is known.
    Known(Result<T>),
    /// The request was not queued yet. With a ticket, it waits for room.
    New { client: Arc<Client>, job: Job, ticket: Option<(Arc<Queue>, u64)>, read: Read<T> },
    /// The request was queued. The client lives as long as it.
    Queued { queue: Arc<Queue>, slot: Arc<Slot>, read: Read<T>, _client: Arc<Client> },
    /// The answer was returned.
    Ended,
}

impl<T> Call<T> {
    fn new(client: &Arc<Client>, job: Job, read: Read<T>) -> Self {
        let client = Arc::clone(client);
        Self { state: CallState::New { client, job, ticket: None, read } }
    }

    /// Queues the request if there is room, so that its answer wakes the caller.
    fn submit(&mut self, context: &Context<'_>) -> Result<()> {
        let CallState::New { client, job, ticket, read } = &mut self.state else { return Ok(()) };
        let queue = client.calls().queue()?;
        // A ticket of the parent's says nothing in a forked child.
        let number = ticket.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &queue)).map(|(_, n)| *n);
        match queue.submit(job, number, context.waker()) {
            Ok(slot) => {
                let (client, read) = (Arc::clone(client), *read);
                self.state = CallState::Queued { queue, slot, read, _client: client };
            }
            Err(number) => *ticket = Some((queue, number)),
        }
        Ok(())
    }
}

impl<T> Future for Call<T>
where
    T: Unpin,
{
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Err(error) = self.submit(context) {
            self.state = CallState::Ended;
            return Poll::Ready(Err(error));
        }
        let done = match &self.state {
            CallState::New { .. } => return Poll::Pending,
            CallState::Queued { queue, slot, read, .. } => {
                let answer = if queue.is_of_this_process() {
                    slot.answer(context.waker())
                } else {
                    // The parent has its answer.
                    Some(Err(Error::Closed))
                };
                match answer {
                    None => return Poll::Pending,
                    Some(frame) => frame.and_then(|frame| {
                        let reply = Reply::decode(&Frame::parse(&frame)?)?;
                        read(&reply)
                    }),
                }
            }
            CallState::Known(_) => match std::mem::replace(&mut self.state, CallState::Ended) {
                CallState::Known(known) => known,
                _ => unreachable!("it was known"),
            },
            CallState::Ended => panic!("a call is polled after it has ended"),
        };
        self.state = CallState::Ended;
        Poll::Ready(done)
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        match &self.state {
            CallState::New { ticket: Some((queue, number)), .. } if queue.is_of_this_process() => {
                queue.give_up(*number);
            }
            CallState::Queued { queue, slot, .. } if queue.is_of_this_process() => slot.forget(),
            _ => {}
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            CallState::Known(_) => "known",
            CallState::New { ticket: None, .. } => "new",
            CallState::New { .. } => "waits for room",
            CallState::Queued { .. } => "queued",
            CallState::Ended => "ended",
        };
        f.debug_struct("Call").field("state", &state).finish_non_exhaustive()
    }
}

fn done(reply: &Reply<'_>) -> Result<()> {
    match reply {
        Reply::Done { .. } => Ok(()),
        other => Err(unexpected(other)),
    }
}

impl Keyspace {
    fn call_async<T>(&self, ask: Ask, is_read: bool, read: Read<T>) -> Call<T> {
        let (client, inner) = self.parts();
        Call::new(client, Job::new(vec![Arc::clone(inner)], ask, is_read), read)
    }

    /// The value of `key`, as a future. Looks into the host's memory at once, where it is mapped;
    /// what that does not say is a call.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::get`].
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> Call<Option<Vec<u8>>> {
        let key = key.as_ref();
        let mut value = Vec::new();
        match self.look(key, &mut value) {
            Some(is_found) => Call { state: CallState::Known(Ok(is_found.then_some(value))) },
            None => {
                self.count_call();
                self.call_async(Ask::Get(key.to_vec()), true, |reply| match reply {
                    Reply::Value(found) => Ok(found.map(<[u8]>::to_vec)),
                    other => Err(unexpected(other)),
                })
            }
        }
    }

    /// [`Keyspace::insert`] as a future.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::insert`].
    pub fn insert_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Call<()> {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        self.call_async(Ask::Insert(key, value), false, done)
    }

    /// [`Keyspace::remove`] as a future.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::remove`].
    pub fn remove_async(&self, key: impl AsRef<[u8]>) -> Call<()> {
        self.call_async(Ask::Remove(key.as_ref().to_vec()), false, done)
    }

    /// [`Keyspace::compare_and_swap`] as a future.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::compare_and_swap`].
    pub fn compare_and_swap_async(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Call<bool> {
        let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        let ask = Ask::Swap(key.as_ref().to_vec(), owned(expected), owned(new));
        self.call_async(ask, false, |reply| match reply {
            Reply::Swapped { swapped, .. } => Ok(*swapped),
            other => Err(unexpected(other)),
        })
    }
}

impl Batch {
    /// [`Batch::commit`] as a future.
    ///
    /// # Errors
    ///
    /// As [`Batch::commit`].
    pub fn commit_async(self) -> Call<()> {
        if let Err(error) = self.check() {
            return Call { state: CallState::Known(Err(error)) };
        }
        if self.is_empty() {
            return Call { state: CallState::Known(Ok(())) };
        }
        let (client, keyspaces, operations) = self.into_parts();
        Call::new(&client, Job::new(keyspaces, Ask::Batch(operations), false), done)
    }
}
