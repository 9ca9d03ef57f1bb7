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

use crate::{config::Limits, waiters::Waiter};

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
    pub(crate) no_evict: AtomicBool,
    /// Set by a command that was told to be slow, so that its batch is not told as well.
    pub(crate) was_slow: AtomicBool,
    /// Commands queued by `MULTI`; -1 (as a wrapped number) if there is none.
    pub(crate) queued: AtomicUsize,
    pub(crate) query_bytes: AtomicUsize,
    pub(crate) reply_bytes: AtomicUsize,
    /// Replies that the client has not taken: their bytes, and the chunks that those lie in.
    pub(crate) unsent_bytes: AtomicUsize,
    pub(crate) unsent_chunks: AtomicUsize,
    /// Index of the last command in the table; past its end if there was none.
    pub(crate) last_command: AtomicUsize,
    began: Instant,
    /// Milliseconds after `began` at which the client last sent a whole command.
    active_ms: AtomicU64,
    /// Milliseconds after `began` since which it is in the middle of a command, or a reply is not
    /// taken; 0 if neither.
    stalled_ms: AtomicU64,
    killed: AtomicBool,
    kill: Notify,
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
            no_evict: AtomicBool::new(false),
            was_slow: AtomicBool::new(false),
            queued: AtomicUsize::new(usize::MAX),
            query_bytes: AtomicUsize::new(0),
            reply_bytes: AtomicUsize::new(0),
            unsent_bytes: AtomicUsize::new(0),
            unsent_chunks: AtomicUsize::new(0),
            last_command: AtomicUsize::new(usize::MAX),
            began: Instant::now(),
            active_ms: AtomicU64::new(0),
            stalled_ms: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            kill: Notify::new(),
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
        self.kill.notify_one();
    }

    /// Returns true if the connection was asked to end.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// Waits until the connection is asked to end.
    pub(crate) async fn killed(&self) {
        self.kill.notified().await;
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
        let idle = limits.idle_seconds > 0
            && self.idle_seconds() >= limits.idle_seconds
            && self.waiter.lock().is_none();
        handshake || idle || stalled_seconds >= limits.stall().as_secs()
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
        by_id.remove(&id);
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

/// What `CLIENT LIST` and `CLIENT INFO` say of a client, whose last command had this name.
pub(crate) fn describe(info: &ClientInfo, last_command: &str) -> String {
    let queued = info.queued.load(Ordering::Relaxed);
    let multi = if queued == usize::MAX { -1 } else { i64::try_from(queued).unwrap_or(i64::MAX) };
    let (library, version) = info.library.lock().clone();
    let query = info.query_bytes.load(Ordering::Relaxed);
    let reply = info.reply_bytes.load(Ordering::Relaxed);
    let oll = info.unsent_chunks.load(Ordering::Relaxed);
    let omem = info.unsent_bytes.load(Ordering::Relaxed);
    format!(
        "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 \
         multi={multi} qbuf={query} qbuf-free=0 argv-mem=0 multi-mem=0 rbs={reply} rbp={reply} \
         obl=0 oll={oll} omem={omem} tot-mem={} events=r cmd={} user=default redir=-1 resp={} lib-name={} \
         lib-ver={}",
        info.id,
        info.address,
        info.local_address,
        info.name.lock(),
        info.age_seconds(),
        info.idle_seconds(),
        match (multi >= 0, info.no_evict.load(Ordering::Relaxed)) {
            _ if info.waiter.lock().is_some() => "b",
            (true, _) => "x",
            (false, true) => "e",
            (false, false) => "N",
        },
        info.database.load(Ordering::Relaxed),
        query + reply + omem,
        last_command,
        info.resp.load(Ordering::Relaxed),
        library,
        version,
    )
}
