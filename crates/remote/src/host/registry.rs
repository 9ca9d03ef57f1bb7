//! The connections of a host, wherever they are: parked, ready, or with a worker; and who is let
//! in.

use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    limits::{Limits, Origin, refuse_descriptor},
    tally::Tally,
};
use crate::socket::Stream;

/// The most clients that are told at once why they may not come: each keeps a connection until its
/// greeting. Further ones are closed without a word.
const REFUSED_MAX: usize = 32;

/// The connections, which outlive what they speak of.
#[derive(Debug, Default)]
pub(super) struct Registry {
    limits: Limits,
    tally: Tally,
    sessions: Mutex<Sessions>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Sessions {
    live: HashMap<usize, Live>,
    /// How many of them there are of each origin, but for those that are refused.
    by_origin: HashMap<Origin, usize>,
    /// How many of them are over TCP, but for those that are refused.
    tcp: usize,
    /// How many of them are refused.
    refused: usize,
    next: usize,
    is_closing: bool,
}

#[derive(Debug)]
struct Live {
    stream: Arc<Stream>,
    /// Where it comes from; `None` if it is refused.
    origin: Option<Origin>,
}

/// A connection's entry on the list, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    registry: Arc<Registry>,
    id: usize,
}

impl Registry {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// What is counted of clients.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        // Each change of it is a single step.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        let sessions = self.sessions();
        sessions.live.len() - sessions.refused
    }

    /// Enters a connection, with the reason if it is refused, for `refusal` or another one; `None`
    /// if it is to be closed at once.
    pub(super) fn enter(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        origin: Origin,
        refusal: Option<String>,
    ) -> Option<(Registration, Option<String>)> {
        let is_scarce = refuse_descriptor(stream.as_fd().as_raw_fd());
        let mut sessions = self.sessions();
        if sessions.is_closing {
            return None;
        }
        let all = sessions.live.len() - sessions.refused;
        let same = sessions.by_origin.get(&origin).copied().unwrap_or(0);
        let is_many = || self.limits.refuse(origin, all, sessions.tcp, same);
        let refusal = refusal.or_else(is_many).or(is_scarce);
        self.tally.count_session(refusal.is_some());
        let id = sessions.next;
        if refusal.is_some() {
            if sessions.refused >= REFUSED_MAX {
                return None;
            }
            sessions.refused += 1;
        } else {
            *sessions.by_origin.entry(origin).or_default() += 1;
            sessions.tcp += usize::from(stream.is_tcp());
        }
        sessions.next += 1;
        let origin = refusal.is_none().then_some(origin);
        sessions.live.insert(id, Live { stream: Arc::clone(stream), origin });
        drop(sessions);
        Some((Registration { registry: Arc::clone(self), id }, refusal))
    }

    /// Returns true once the host ends.
    pub(super) fn is_closing(&self) -> bool {
        self.sessions().is_closing
    }

    /// Waits for `time`, or until the host ends; returns false then.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let wait =
            self.ended.wait_timeout_while(self.sessions(), time, |sessions| !sessions.is_closing);
        !wait.unwrap_or_else(PoisonError::into_inner).0.is_closing
    }

    /// Lets no more connections come; returns those that there are.
    pub(super) fn close(&self) -> Vec<Arc<Stream>> {
        let mut sessions = self.sessions();
        sessions.is_closing = true;
        self.ended.notify_all();
        sessions.live.values().map(|live| Arc::clone(&live.stream)).collect()
    }

    /// Waits until there is no connection.
    pub(super) fn join(&self) {
        let has_some = |sessions: &mut Sessions| !sessions.live.is_empty();
        drop(self.ended.wait_while(self.sessions(), has_some));
    }
}

impl Registration {
    /// Where it comes from; `None` if it is refused.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(super) fn origin(&self) -> Option<Origin> {
        self.registry.sessions().live.get(&self.id)?.origin
    }

    /// Which connection of the host it is.
    pub(super) fn id(&self) -> usize {
        self.id
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut sessions = self.registry.sessions();
        let live = sessions.live.remove(&self.id);
        match &live {
            None => {}
            Some(Live { origin: None, .. }) => sessions.refused -= 1,
            Some(Live { stream, origin: Some(origin) }) => {
                sessions.tcp -= usize::from(stream.is_tcp());
                let same = sessions.by_origin.get_mut(origin).map_or(0, |same| {
                    *same -= 1;
                    *same
                });
                if same == 0 {
                    sessions.by_origin.remove(origin);
                }
            }
        }
        drop(sessions);
        self.registry.ended.notify_all();
        // Not under the lock: a queue pair takes the system a while to end.
        drop(live);
    }
}
