//! The extended RCU barrier: what was replaced is freed when every session that lives knows what
//! replaced it.
//!
//! A change of the model has two steps (FineStore, section 4.2): the new arrays take the place of
//! the old ones, and the old ones wait; when all sessions have acknowledged the new epoch, the old
//! ones are freed. The paper counts machines. Here sessions are counted, and only while they live:
//!
//! 1. A session acknowledges, when it joins, the epoch of the model at that time: what waits
//!    already was never told to it, and what is replaced later waits for it.
//! 2. A session is out when it leaves, when its lease ends, or when it renewed its lease for ten
//!    lease times without acknowledging what waits.
//! 3. Nothing here waits: [`Barrier::poll`] says what is due by now.

use std::collections::{BTreeMap, VecDeque};

/// Lease times for which a session may renew its lease and acknowledge nothing: it has missed some
/// twenty replies that brought what it lacks.
const LAG_LEASES: u64 = 10;

struct Session {
    /// The epoch that it has acknowledged.
    model: u64,
    /// When its lease ends.
    until_ms: u64,
    /// Since when it lacks an epoch that something waits for.
    lags_since_ms: Option<u64>,
}

/// Sessions, and what waits for them.
pub(super) struct Barrier<T> {
    lease_ms: u64,
    sessions: BTreeMap<u64, Session>,
    next_session: u64,
    /// What waits, with the epoch that replaced it, in the order of epochs.
    waiting: VecDeque<(u64, T)>,
}

impl<T> Barrier<T> {
    /// A barrier of sessions with leases of this length.
    pub(super) fn new(lease_ms: u64) -> Self {
        let (sessions, waiting) = (BTreeMap::new(), VecDeque::new());
        Self { lease_ms, sessions, next_session: 1, waiting }
    }

    pub(super) fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// Begins a session, at an epoch of the model.
    pub(super) fn join(&mut self, now_ms: u64, model: u64) -> u64 {
        let session = self.next_session;
        self.next_session += 1;
        let until_ms = now_ms.saturating_add(self.lease_ms);
        self.sessions.insert(session, Session { model, until_ms, lags_since_ms: None });
        session
    }

    /// Renews a session's lease, with the epoch that it has, of which `current` is the last; false
    /// if there is no such session.
    pub(super) fn renew(&mut self, session: u64, now_ms: u64, model: u64, current: u64) -> bool {
        // The others are looked at by `poll`: what one client asks for does not take longer the
        // more sessions there are.
        let terms = self.terms();
        let Some(state) = self.sessions.get_mut(&session) else { return false };
        if !state.lives(now_ms, terms) {
            self.sessions.remove(&session);
            return false;
        }
        if model.min(current) > state.model {
            (state.model, state.lags_since_ms) = (model.min(current), None);
        }
        state.until_ms = now_ms.saturating_add(self.lease_ms);
        true
    }

    /// Ends a session.
    pub(super) fn leave(&mut self, session: u64) {
        self.sessions.remove(&session);
    }

    /// Ends all sessions, and forgets what waits for them.
    pub(super) fn clear(&mut self) {
        self.sessions.clear();
        self.waiting.clear();
    }

    /// Has something wait that is replaced since an epoch, which is none before the last one's.
    pub(super) fn retire(&mut self, model: u64, what: T) {
        self.waiting.push_back((model, what));
    }

    /// What no live session may know any more.
    pub(super) fn poll(&mut self, now_ms: u64) -> Vec<T> {
        self.expire(now_ms);
        let known = self.sessions.values().map(|session| session.model).min();
        let known = known.unwrap_or(u64::MAX);
        // planted: replaced-freed-before-all-sessions
        let count = self.waiting.iter().take_while(|(model, _)| *model <= known).count();
        self.waiting.drain(..count).map(|(_, what)| what).collect()
    }

    /// Number of live sessions, as of the last [`Barrier::poll`].
    #[cfg(test)]
    pub(super) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// What waits.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().map(|(_, what)| what)
    }

    /// The last epoch that something waits for, and for how long a session may lack it.
    fn terms(&self) -> (u64, u64) {
        let waits_for = self.waiting.back().map_or(0, |(model, _)| *model);
        (waits_for, self.lease_ms.saturating_mul(LAG_LEASES))
    }

    fn expire(&mut self, now_ms: u64) {
        let terms = self.terms();
        self.sessions.retain(|_, session| session.lives(now_ms, terms));
    }
}

impl Session {
    /// Returns true if its lease lasts, and it has not lacked an epoch for too long.
    fn lives(&mut self, now_ms: u64, (waits_for, patience_ms): (u64, u64)) -> bool {
        if self.model >= waits_for {
            self.lags_since_ms = None;
        }
        let since = match self.model < waits_for {
            true => *self.lags_since_ms.get_or_insert(now_ms),
            false => now_ms,
        };
        now_ms < self.until_ms && now_ms.saturating_sub(since) < patience_ms
    }
}
