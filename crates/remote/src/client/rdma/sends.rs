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

/// How long calls go over TCP after sends have failed for the first time, and at most: each failure
/// in a row doubles it, since a try may hold a call up for a second.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(64);

/// The connection by sends of an attachment.
#[derive(Default)]
pub(super) struct Sends(Mutex<SendsState>);

#[derive(Default)]
struct SendsState {
    connection: Option<(Arc<Connection>, Opened)>,
    /// True while a thread connects; the others do not wait for it.
    is_connecting: bool,
    /// Until when it is not tried again.
    rests_until: Option<Instant>,
    /// Failures since it was connected the last time.
    failures: u32,
}

impl Sends {
    fn lock(&self) -> MutexGuard<'_, SendsState> {
        // Every change of it is a single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has calls go over TCP for a while.
    fn rest(&self) {
        let state = &mut *self.lock();
        let rest = (REST_MIN * 2_u32.saturating_pow(state.failures)).min(REST_MAX);
        let (rests_until, failures) = (Some(Instant::now() + rest), state.failures.min(9) + 1);
        *state = SendsState { connection: None, is_connecting: false, rests_until, failures };
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
                // If that was the end of the host, the next call need not find it out as well.
                self.link().notice_end();
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
        {
            let state = &mut *attachment.sends().lock();
            let usable = state.connection.take().filter(|(connection, _)| connection.is_usable());
            if let Some((connection, opened)) = usable {
                state.connection = Some((Arc::clone(&connection), opened));
                return Some((connection, opened));
            }
            let rests = state.rests_until.is_some_and(|until| Instant::now() < until);
            if rests || state.is_connecting {
                return None;
            }
            state.is_connecting = true;
        }
        let opened = self.connect_sends(attachment).and_then(|connection| {
            let opened = connection.open(self.keyspace().name())?;
            Ok((connection, opened))
        });
        let Ok((connection, opened)) = opened else {
            attachment.sends().rest();
            return None;
        };
        let mut state = attachment.sends().lock();
        (state.is_connecting, state.failures) = (false, 0);
        state.connection = Some((Arc::clone(&connection), opened));
        Some((connection, opened))
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
