//! Calls by sends: a connection over a queue pair, for requests that are short and have short
//! answers as a rule. All others, and those for which there is no such connection, go over TCP.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::attachment::{Attachment, RemoteReads};
use crate::{
    client::{
        connection::{is_broken, unexpected},
        tcp::{Connection, Opened},
    },
    error::{Error, Result},
    message::{Reply, Request},
    socket::Stream,
    verbs::{ByteStream, MESSAGE_BYTES},
};

/// Bytes of a request besides its keys and its value, at most: a frame's head, numbers and a hint.
const REST_BYTES: usize = 64;

/// The most keys of which several values are asked for by sends. More of them have an answer of
/// some messages, for which TCP is made.
const KEYS_MAX: usize = 16;

/// How long calls go over TCP after sends have failed.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// The connection by sends of an attachment.
#[derive(Default)]
pub(super) struct Sends(Mutex<State>);

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Until when it is not tried again.
    rests_until: Option<Instant>,
}

impl Sends {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of it is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has calls go over TCP for a while.
    fn rest(&self) {
        self.lock().rest();
    }
}

impl State {
    fn rest(&mut self) {
        *self = Self { connection: None, rests_until: Some(Instant::now() + RETRY_EVERY) };
    }
}

/// Returns true for a request that fits a message, with an answer that does so as a rule.
fn is_short(request: &Request<'_>) -> bool {
    let bytes = match request {
        Request::Get { key, .. } | Request::Read { key, .. } | Request::Remove { key, .. } => {
            key.len()
        }
        Request::Insert { key, value, .. } => key.len() + value.len(),
        Request::CompareAndSwap { key, expected, new, .. } => {
            let len = |value: &Option<&[u8]>| value.map_or(0, <[u8]>::len);
            key.len() + len(expected) + len(new)
        }
        Request::MultiGet { keys, .. } if keys.len() <= KEYS_MAX => {
            keys.iter().map(|key| key.len() + size_of::<u32>()).sum()
        }
        Request::Consult { question, .. } => question.len(),
        _ => return false,
    };
    bytes + REST_BYTES <= MESSAGE_BYTES
}

impl RemoteReads<'_> {
    /// Sends a request, and waits for the answer; returns the lengths of both and the answer's
    /// frame. `None` if it must be asked over TCP. `request` is told how the keyspace was opened in
    /// the connection that is used.
    ///
    /// # Errors
    ///
    /// Those of a connection that has broken, of a request that may have been answered and must not
    /// be repeated.
    pub(in crate::client) fn exchange<'a>(
        &self,
        is_read: bool,
        request: &impl Fn(&Opened) -> Request<'a>,
    ) -> Option<Result<(usize, Vec<u8>)>> {
        let attachment = self.attachment_for_calls()?;
        let (connection, opened) = self.sends_of(&attachment)?;
        let request = request(&opened);
        if !is_short(&request) {
            return None;
        }
        match connection.exchange(&request) {
            Err(error) if is_broken(&error) => {
                attachment.sends().rest();
                (!is_read).then_some(Err(error))
            }
            // It was not sent.
            Err(Error::InvalidArgument(_)) => None,
            answered => Some(answered),
        }
    }

    /// The connection of an attachment, which is made if there is none; `None` while calls go over
    /// TCP.
    fn sends_of(&self, attachment: &Attachment) -> Option<(Arc<Connection>, Opened)> {
        let state = &mut *attachment.sends().lock();
        if state.rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let usable = state.connection.take().filter(|connection| connection.is_usable());
        let connection = usable.map_or_else(|| self.connect_sends(attachment), Ok);
        let opened = connection.and_then(|connection| {
            let opened = connection.open(self.keyspace().name())?;
            Ok((connection, opened))
        });
        if let Ok((connection, _)) = &opened {
            state.connection = Some(Arc::clone(connection));
        } else {
            state.rest();
        }
        opened.ok()
    }

    fn connect_sends(&self, attachment: &Attachment) -> Result<Arc<Connection>> {
        let socket = self.link().socket()?;
        let stream = ByteStream::new(attachment.domain(), Some(socket))?;
        let endpoint = stream.endpoint();
        let attach = |keyspace| Request::AttachCalls { keyspace, endpoint };
        let peer = self.call(attachment, attach, |reply| match reply {
            Reply::Attached { endpoint } => Ok(endpoint),
            other => Err(unexpected(&other)),
        })?;
        stream.connect(&peer)?;
        self.link().begin(Stream::by_rdma(stream)?, attachment.generation())
    }
}
