//! The connected clients: what `CLIENT LIST` says of each, and how one is ended from outside.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    acl::Account,
    config::Limits,
    outbox::{Left, Message, Outbox},
    waiters::Waiter,
};

/// What a connection is beside an ordinary one: bits that `CLIENT LIST` has letters for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(u8);

impl Mode {
    /// It is shown every command.
    pub(crate) const MONITOR: Self = Self(1);
    /// It is told which keys were changed.
    pub(crate) const TRACKING: Self = Self(1 << 1);
    /// It is told of all keys, and not only of those that it has read.
    pub(crate) const BROADCAST: Self = Self(1 << 2);
    /// The client is gone that is told in its place.
    pub(crate) const BROKEN_REDIRECT: Self = Self(1 << 3);
}

/// What is known of one connection. Its own task writes it; others read.
#[derive(Debug)]
pub(crate) struct ClientInfo {
    pub(crate) id: u64,
    /// The client's address, and the server's that it came to.
    pub(crate) address: String,
    pub(crate) local_address: String,
    pub(crate) name: Mutex<String>,
    pub(crate) library: Mutex<(String, String)>,
    pub(crate) database: AtomicU8,
    pub(crate) resp: AtomicU8,
    pub(crate) authenticated: AtomicBool,
    /// The user that it is; none before its session has begun.
    pub(crate) user: Mutex<Option<Arc<Account>>>,
    pub(crate) no_evict: AtomicBool,
    /// Set by a command that was told to be slow, so that its batch is not told as well.
    pub(crate) was_slow: AtomicBool,
    /// Commands queued by `MULTI`; -1 (as a wrapped number) if there is none.
    pub(crate) queued: AtomicUsize,
    /// Bytes that these take.
    pub(crate) queued_bytes: AtomicUsize,
    pub(crate) query_bytes: AtomicUsize,
    /// Of these, bytes that came and are no commands that were run.
    pub(crate) query_used: AtomicUsize,
    pub(crate) reply_bytes: AtomicUsize,
    /// Replies that the client has not taken: their bytes, and the chunks that those lie in.
    pub(crate) unsent_bytes: AtomicUsize,
    pub(crate) unsent_chunks: AtomicUsize,
    /// Index of the last command in the table; past its end if there was none.
    pub(crate) last_command: AtomicUsize,
    /// What other threads leave for the client.
    pub(crate) outbox: Outbox,
    /// How many channels, patterns and shard channels it has subscribed to.
    pub(crate) subscribed: [AtomicUsize; 3],
    /// Bits of [`Mode`].
    modes: AtomicU8,
    /// The number of the client that is told in its place which keys were changed; 0 if none is.
    pub(crate) redirect: AtomicU64,
    began: Instant,
    /// Milliseconds after `began` at which the client last sent a whole command.
    active_ms: AtomicU64,
    /// Milliseconds after `began` since which it is in the middle of a command, or a reply is not
    /// taken; 0 if neither.
    stalled_ms: AtomicU64,
    killed: AtomicBool,
    left: AtomicBool,
    /// Wakes the connection's task.
    wake: Notify,
    /// What the client waits with while it has sent a blocking command.
    pub(crate) waiter: Mutex<Option<Arc<Waiter>>>,
}

impl ClientInfo {
    /// A connection that begins now.
    pub(crate) fn new(id: u64, address: String, local_address: String) -> Self {
        Self {
            id,
            address,
            local_address,
            name: Mutex::default(),
            library: Mutex::default(),
            database: AtomicU8::new(0),
            resp: AtomicU8::new(2),
            authenticated: AtomicBool::new(false),
            user: Mutex::default(),
            no_evict: AtomicBool::new(false),
            was_slow: AtomicBool::new(false),
            queued: AtomicUsize::new(usize::MAX),
            queued_bytes: AtomicUsize::new(0),
            query_bytes: AtomicUsize::new(0),
            query_used: AtomicUsize::new(0),
            reply_bytes: AtomicUsize::new(0),
            unsent_bytes: AtomicUsize::new(0),
            unsent_chunks: AtomicUsize::new(0),
            last_command: AtomicUsize::new(usize::MAX),
            outbox: Outbox::default(),
            subscribed: [const { AtomicUsize::new(0) }; 3],
            modes: AtomicU8::new(0),
            redirect: AtomicU64::new(0),
            began: Instant::now(),
            active_ms: AtomicU64::new(0),
            stalled_ms: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            left: AtomicBool::new(false),
            wake: Notify::new(),
            waiter: Mutex::default(),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Seconds since the connection began.
    pub(crate) fn age_seconds(&self) -> u64 {
        self.elapsed_ms() / 1000
    }

    /// Seconds since the last command.
    pub(crate) fn idle_seconds(&self) -> u64 {
        self.elapsed_ms().saturating_sub(self.active_ms.load(Ordering::Relaxed)) / 1000
    }

    /// Says that a command was run.
    pub(crate) fn note_active(&self) {
        self.active_ms.store(self.elapsed_ms(), Ordering::Relaxed);
    }

    /// Says whether the client keeps the server waiting; the time is that of its beginning.
    pub(crate) fn note_stalled(&self, stalled: bool) {
        let before = self.stalled_ms.load(Ordering::Relaxed);
        if stalled && before == 0 {
            self.stalled_ms.store(self.elapsed_ms().max(1), Ordering::Relaxed);
        } else if !stalled && before != 0 {
            self.stalled_ms.store(0, Ordering::Relaxed);
        }
    }

    /// Asks the connection to end.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.wake();
    }

    /// Has the connection's task look at what was left for it.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Leaves a message for the client.
    pub(crate) fn leave(&self, message: &Arc<Message>) {
        let unsent = self.unsent_bytes.load(Ordering::Relaxed);
        match self.outbox.push(message, unsent, self.is_subscriber()) {
            Left::First => self.wake(),
            Left::Behind | Left::Ended => {}
            Left::TooMany => self.kill(),
        }
    }

    /// Returns true if the client has subscribed to anything.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscribed.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Returns true if the connection is of this mode.
    pub(crate) fn is_in(&self, mode: Mode) -> bool {
        self.modes.load(Ordering::Relaxed) & mode.0 != 0
    }

    /// Has the connection be of this mode, or not.
    pub(crate) fn set_mode(&self, mode: Mode, on: bool) {
        if on {
            self.modes.fetch_or(mode.0, Ordering::Relaxed);
        } else {
            self.modes.fetch_and(!mode.0, Ordering::Relaxed);
        }
    }

    /// Returns true if the connection has ended.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Returns true if the client is this user.
    pub(crate) fn is_of(&self, account: &Arc<Account>) -> bool {
        self.user.lock().as_ref().is_some_and(|user| Arc::ptr_eq(user, account))
    }

    /// Returns true if the connection was asked to end.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// Waits until the connection is asked to end. While this is polled beside the connection's
    /// work, whatever wakes the connection has that polled as well.
    pub(crate) async fn killed(&self) {
        while !self.is_killed() {
            self.wake.notified().await;
        }
    }

    /// Returns true if the client has been silent, or slow, for longer than the limits allow.
    fn is_overdue(&self, limits: &Limits) -> bool {
        let stalled = self.stalled_ms.load(Ordering::Relaxed);
        let stalled_seconds = match stalled {
            0 => 0,
            since => self.elapsed_ms().saturating_sub(since) / 1000,
        };
        let handshake = !self.authenticated.load(Ordering::Relaxed)
            && self.age_seconds() >= limits.handshake_seconds.max(1);
        // Subscribers and monitors are silent by nature, and so are clients that wait for a key.
        let may_idle = self.is_subscriber() || self.is_in(Mode::MONITOR);
        let idle = limits.idle_seconds > 0
            && self.idle_seconds() >= limits.idle_seconds
            && self.waiter.lock().is_none();
        handshake
            || (idle && !may_idle)
            || self.outbox.is_slow()
            || stalled_seconds >= limits.stall().as_secs()
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    count: AtomicUsize,
    by_id: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    /// Bytes of all clients' buffers.
    pub(crate) buffers_bytes: AtomicUsize,
    /// Those of them that are replies which were not taken, and the most that they ever were.
    pub(crate) unsent_bytes: AtomicUsize,
    pub(crate) unsent_bytes_max: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// How many wait with a blocking command.
    pub(crate) blocked: AtomicUsize,
    pub(crate) overdue: AtomicU64,
    /// Connections that were ended because they spoke HTTP.
    pub(crate) http: AtomicU64,
    /// Connections that were ended because they did not take their messages.
    pub(crate) over_limit: AtomicU64,
}

impl Clients {
    /// Enters a connection; none if there are `most` already.
    pub(crate) fn enter(
        &self,
        most: usize,
        address: String,
        local_address: String,
    ) -> Option<Arc<ClientInfo>> {
        let mut by_id = self.by_id.lock();
        if by_id.len() >= most {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let info = Arc::new(ClientInfo::new(id, address, local_address));
        by_id.insert(id, Arc::clone(&info));
        self.count.store(by_id.len(), Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(info)
    }

    /// Forgets a connection that has ended.
    pub(crate) fn leave(&self, id: u64) {
        let mut by_id = self.by_id.lock();
        if let Some(info) = by_id.remove(&id) {
            info.left.store(true, Ordering::Release);
        }
        self.count.store(by_id.len(), Ordering::Relaxed);
    }

    /// Says that a client's replies that were not taken have become `now` bytes.
    pub(crate) fn note_unsent(&self, before: usize, now: usize) {
        if before != now {
            let all = self.unsent_bytes.fetch_add(now, Ordering::Relaxed) + now;
            let all = all.saturating_sub(before);
            self.unsent_bytes.fetch_sub(before, Ordering::Relaxed);
            self.unsent_bytes_max.fetch_max(all, Ordering::Relaxed);
        }
    }

    /// Says that a client spoke HTTP, and is ended for it.
    pub(crate) fn note_http(&self) {
        self.http.fetch_add(1, Ordering::Relaxed);
    }

    /// How many are connected.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The client of this number.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// Everyone, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<Arc<ClientInfo>> {
        self.by_id.lock().values().cloned().collect()
    }

    /// Ends the connections that are overdue, and returns them. To be called every second.
    pub(crate) fn end_overdue(&self, limits: &Limits) -> Vec<Arc<ClientInfo>> {
        let mut ended = Vec::new();
        for info in self.all() {
            if !info.is_killed() && info.is_overdue(limits) {
                self.overdue.fetch_add(1, Ordering::Relaxed);
                info.kill();
                ended.push(info);
            }
        }
        ended
    }

    /// Asks every connection to end.
    pub(crate) fn end_all(&self) {
        self.all().iter().for_each(|info| info.kill());
    }
}

/// The letters of a client's modes.
fn letters(info: &ClientInfo) -> String {
    let is_queueing = info.queued.load(Ordering::Relaxed) != usize::MAX;
    let all = [
        ('O', info.is_in(Mode::MONITOR)),
        ('P', info.is_subscriber()),
        ('x', is_queueing),
        ('b', info.waiter.lock().is_some()),
        ('t', info.is_in(Mode::TRACKING)),
        ('R', info.is_in(Mode::BROKEN_REDIRECT)),
        ('B', info.is_in(Mode::BROADCAST)),
        ('e', info.no_evict.load(Ordering::Relaxed)),
    ];
    let letters: String = all.iter().filter(|(_, is)| *is).map(|(letter, _)| letter).collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}

/// What `CLIENT LIST` and `CLIENT INFO` say of a client, whose last command had this name.
pub(crate) fn describe(info: &ClientInfo, last_command: &str) -> String {
    let queued = info.queued.load(Ordering::Relaxed);
    let multi = if queued == usize::MAX { -1 } else { i64::try_from(queued).unwrap_or(i64::MAX) };
    let multi_bytes = info.queued_bytes.load(Ordering::Relaxed);
    let (library, version) = info.library.lock().clone();
    let user = info.user.lock().as_ref().map(|account| account.user());
    let user =
        user.map_or("default".into(), |user| String::from_utf8_lossy(&user.name).into_owned());
    let query = info.query_bytes.load(Ordering::Relaxed);
    let query_used = info.query_used.load(Ordering::Relaxed);
    let query_free = query.saturating_sub(query_used);
    let reply = info.reply_bytes.load(Ordering::Relaxed);
    let (messages, message_bytes) = info.outbox.size();
    let oll = info.unsent_chunks.load(Ordering::Relaxed) + messages;
    let omem = info.unsent_bytes.load(Ordering::Relaxed) + message_bytes;
    let [sub, psub, ssub] = info.subscribed.each_ref().map(|count| count.load(Ordering::Relaxed));
    let redirect =
        if info.is_in(Mode::TRACKING) { info.redirect.load(Ordering::Relaxed) as i64 } else { -1 };
    format!(
        "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db={} sub={sub} psub={psub} \
         ssub={ssub} multi={multi} qbuf={query_used} qbuf-free={query_free} argv-mem=0 \
         multi-mem={multi_bytes} rbs={reply} rbp={reply} obl=0 oll={oll} omem={omem} tot-mem={} events=r \
         cmd={} user={user} \
         redir={redirect} resp={} lib-name={} lib-ver={}",
        info.id,
        info.address,
        info.local_address,
        info.name.lock(),
        info.age_seconds(),
        info.idle_seconds(),
        letters(info),
        info.database.load(Ordering::Relaxed),
        query + reply + omem + multi_bytes,
        last_command,
        info.resp.load(Ordering::Relaxed),
        library,
        version,
    )
}
