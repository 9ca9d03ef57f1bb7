//! One connection of a client: its requests, one after the other.

mod attach;
mod segments;

use std::{
    ops::Range,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
    time::{Duration, Instant},
};

use mio::Interest;

use self::segments::Sent;
use super::{
    Change, Scan,
    buffers::{Buffers, TOO_LARGE},
    look::Looker,
    registry::Registration,
    server::Inner,
    share::Share,
    tally::Calls,
};
use crate::{
    error::{Error, Result},
    fabric::Image,
    message::{
        Answer, Extent, Frame, Guess, Hint, Op, Part, Reply, Request,
        format::{FRAME_BYTES_MAX, GREETING_BYTES_MAX, ITEMS_MAX, failure, feature},
    },
    socket::Stream,
};

/// Bytes of pairs after which a part of a scan is sent: what a connection holds at most, and enough
/// that the round trip does not matter.
const SCAN_BYTES: usize = 256 << 10;

/// Bytes of answers that are kept back while further requests are at hand: a call of the system for
/// each 64 KiB does not matter.
const KEPT_BYTES: usize = 64 << 10;

/// The most bytes of pieces of a region in one answer: a table of models as large as clients keep
/// one is a eighth of it.
const PIECES_BYTES: u64 = 4 << 20;

/// How long a worker lingers on a connection that it has answered, or whose client has not read
/// enough yet. A client that calls in a loop does so within microseconds, and is answered without a
/// detour by the queue of events; a worker is held for no longer than one tick of the system's
/// timer, to which this is rounded up.
const LINGER: Duration = Duration::from_millis(1);

/// Times that a client is answered in a row while others wait for a worker: some tens of
/// microseconds.
const TURNS_MAX: u32 = 16;

/// How long a client may take for its greeting, for each part of a handshake, for each further part
/// of a frame that has begun, and for reading a part of an answer.
pub(super) const PART_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(10) };

/// How long a frame or an answer may take from its first byte to its last: the longest frame over a
/// link of 5 Mbit/s. A client that sends or takes a byte now and then is closed after this.
const FRAME_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_secs(3) } else { Duration::from_secs(30) };

/// What becomes of a connection that a worker has served.
pub(super) enum Next {
    /// It waits until its client does something.
    Park(Interest),
    /// Others have their turn first.
    Again,
    /// It has ended.
    End,
}

/// A keyspace that a client has opened.
struct Opened {
    name: String,
    share: Arc<Share>,
    /// What was sent of the control part.
    control: Sent,
    /// What was sent of the leaves.
    leaves: Sent,
    /// The sessions that the client has begun with the keyspace, if its clients keep descriptors.
    joined: Vec<u64>,
    /// The queue pairs that reach it.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    queues: std::collections::VecDeque<super::reached::Attached>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.share.end_sessions(&self.joined);
    }
}

impl Opened {
    fn new(name: String, share: Arc<Share>) -> Self {
        let (control, leaves) = (Sent::default(), Sent::default());
        Self {
            name,
            share,
            control,
            leaves,
            joined: Vec::new(),
            #[cfg(all(feature = "rdma", target_os = "linux"))]
            queues: std::collections::VecDeque::new(),
        }
    }

    fn looker(&self) -> Looker<'_> {
        Looker::new(&self.share, &self.name)
    }
}

/// A connection.
pub(super) struct Session {
    // Dropped before its place: once the last connection has left the list, nothing holds an
    // authority.
    host: Arc<Inner>,
    opened: Vec<Opened>,
    stream: Arc<Stream>,
    is_greeted: bool,
    /// True for a client that no descriptors reach.
    is_apart: bool,
    /// True once nothing more is read: it ends when what there is to say is sent.
    is_over: bool,
    /// Why its client may not use the host, if it may not.
    refusal: Option<String>,
    /// What it was asked and is not counted yet.
    calls: Calls,
    buffers: Buffers,
    /// Since when the client is amid a greeting, a frame or an answer.
    amid_since: Option<Instant>,
    /// When it is closed unless something happens before.
    deadline: Option<Instant>,
    registration: Registration,
    /// What is watched while it is parked.
    watched: RawFd,
    /// The connections by RDMA that belong to it.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    others: attach::Others,
}

impl Drop for Session {
    fn drop(&mut self) {
        #[cfg(all(feature = "rdma", target_os = "linux"))]
        self.others.end();
        // So that what was sent still arrives although the client has said more. One that has
        // ended is none to end.
        let _ = self.stream.shutdown();
    }
}

impl Session {
    /// A connection that has begun; one with a `refusal` tells it to its client.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(super) fn new(
        host: Arc<Inner>,
        stream: Arc<Stream>,
        registration: Registration,
        refusal: Option<String>,
    ) -> Result<Self> {
        stream.set_timeouts(Some(LINGER), None)?;
        let mut session = Self {
            host,
            opened: Vec::new(),
            stream,
            is_greeted: false,
            is_apart: false,
            is_over: false,
            refusal,
            calls: Calls::default(),
            buffers: Buffers::default(),
            amid_since: None,
            deadline: None,
            registration,
            watched: -1,
            #[cfg(all(feature = "rdma", target_os = "linux"))]
            others: attach::Others::default(),
        };
        session.set_deadline();
        Ok(session)
    }

    /// Which connection of the host it is.
    pub(super) fn id(&self) -> usize {
        self.registration.id()
    }

    /// What to watch while it is parked, and for what.
    pub(super) fn watch(&mut self, interest: Interest) -> (RawFd, Interest) {
        let (fd, for_reading) = self.stream.watched(interest.is_writable());
        self.watched = fd.as_raw_fd();
        (self.watched, if for_reading { Interest::READABLE } else { interest })
    }

    /// What was watched last.
    pub(super) fn watched(&self) -> RawFd {
        self.watched
    }

    /// Takes note that it is closed because its client is too slow.
    pub(super) fn set_overdue(&self) {
        self.host.tally().count_overdue();
    }

    /// Returns true, and has no time limit any more, if its client has taken all that it was sent
    /// and is amid nothing: by RDMA nothing tells of that.
    pub(super) fn has_caught_up(&mut self) -> bool {
        let has_sent = self.stream.is_tcp() && self.is_greeted && !self.stream.has_unsent();
        if has_sent && self.buffers.is_empty() && self.stream.kept_bytes() == 0 {
            self.set_deadline();
        }
        self.deadline.is_none()
    }

    /// When it is to be closed, if it is parked until then.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Bytes that are kept for its client.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffers.bytes() + self.stream.kept_bytes()
    }

    /// Lends it a worker's buffers, if it has none.
    pub(super) fn lend(&mut self, spare: &mut Buffers) {
        if self.buffers.is_empty() {
            std::mem::swap(&mut self.buffers, spare);
        }
    }

    /// Gives its buffers to a worker, but for what they hold of it.
    pub(super) fn give_back(&mut self, spare: &mut Buffers) {
        self.buffers.shrink_into(spare);
    }

    /// Answers requests until none are at hand; with others that wait for a worker, a few of them.
    pub(super) fn serve(&mut self, others_wait: impl Fn() -> bool) -> Next {
        let mut turns = 0;
        loop {
            let may_linger = !others_wait();
            let patience = if may_linger { LINGER } else { Duration::ZERO };
            let answers = !self.buffers.output.is_empty();
            // A handshake's part is no answer: all of it has the time of one frame.
            if answers || self.stream.has_unsent() {
                match self.buffers.output.send(&self.stream, patience) {
                    Ok(true) if answers => self.amid_since = None,
                    Ok(true) => {}
                    Ok(false) => return self.park(Interest::WRITABLE),
                    // The client has gone.
                    Err(_) => return Next::End,
                }
            }
            if self.is_over {
                self.stream.finish();
                return Next::End;
            }
            if self.has_others_to_begin() {
                return Next::Again;
            }
            if !may_linger && turns >= TURNS_MAX {
                let has_more = self.buffers.input.holds_frame() || self.stream.has_plain();
                return if has_more { Next::Again } else { self.park(Interest::READABLE) };
            }
            turns += 1;
            if self.answer_some() {
                continue;
            }
            match self.stream.take_some(self.buffers.input.room(), may_linger) {
                Ok(Some(bytes)) => self.buffers.input.add(bytes),
                Ok(None) => return self.park(Interest::READABLE),
                Err(_) => return Next::End,
            }
        }
    }

    fn park(&mut self, interest: Interest) -> Next {
        self.set_deadline();
        Next::Park(interest)
    }

    fn set_deadline(&mut self) {
        let is_kept = self.stream.kept_bytes() > 0 || self.stream.is_sending();
        let is_amid = is_kept || !self.buffers.is_empty();
        if self.is_greeted && !is_amid {
            (self.deadline, self.amid_since) = (None, None);
            return;
        }
        let now = Instant::now();
        let since = *self.amid_since.get_or_insert(now);
        self.deadline = Some((now + PART_TIMEOUT).min(since + FRAME_TIMEOUT));
    }

    /// Answers requests that have come, those whose answers go together; returns false if there
    /// are none.
    fn answer_some(&mut self) -> bool {
        let (mut has_answered, mut began) = (false, None);
        while !self.is_over && self.buffers.output.len() < KEPT_BYTES && !self.has_others_to_begin()
        {
            let is_known = self.is_greeted || !self.stream.is_tcp();
            let len_max = if is_known { usize::MAX } else { GREETING_BYTES_MAX };
            match self.buffers.input.take_frame(len_max) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    began.get_or_insert_with(Instant::now);
                    self.amid_since = None;
                    self.handle(frame);
                }
                // What follows cannot be told from what came before.
                Err(_) => self.is_over = true,
            }
            has_answered = true;
        }
        if let Some(began) = began {
            self.host.tally().add(&std::mem::take(&mut self.calls), began.elapsed());
        }
        has_answered
    }

    /// Answers the request of a frame. After what a client may not do, the connection is over.
    fn handle(&mut self, frame: Range<usize>) {
        let input = std::mem::take(&mut self.buffers.input);
        let handled = self.handle_frame(input.frame(frame));
        self.buffers.input = input;
        if handled.is_err() {
            self.is_over = true;
        }
    }

    fn handle_frame(&mut self, frame: &[u8]) -> Result<()> {
        let parsed = Frame::parse(frame)?;
        let request = match Request::decode(&parsed) {
            Ok(request) => request,
            Err(error) => {
                self.fail(parsed.id, failure::BAD_REQUEST, &error.to_string())?;
                return Err(error);
            }
        };
        match (&request, self.is_greeted) {
            (Request::Goodbye, _) => return Err(Error::Closed),
            (Request::Hello { features, token, .. }, false) => {
                self.admit(parsed.id, *features, *token)?;
                if let Some(text) = self.refusal.take() {
                    self.fail(parsed.id, failure::REFUSED, &text)?;
                    return Err(Error::Refused { code: failure::REFUSED, text });
                }
                self.is_greeted = true;
            }
            (Request::Hello { .. }, true) | (_, false) => {
                self.fail(parsed.id, failure::BAD_REQUEST, "a greeting is the first request")?;
                return Err(Error::invalid("a request out of order"));
            }
            _ => {}
        }
        self.calls.add(&request);
        match self.answer(parsed.id, request) {
            Ok(()) => Ok(()),
            Err(Refusal::Reply(code, text)) => self.fail(parsed.id, code, &text),
            Err(Refusal::Moved(epoch)) => self.reply(parsed.id, &Reply::Moved { epoch }),
            Err(Refusal::End(error)) => Err(error),
        }
    }

    /// Refuses a client that may not use this host, and ends its connection.
    fn admit(&mut self, id: u32, features: u64, token: Option<&[u8]>) -> Result<()> {
        self.is_apart = features & feature::NO_DESCRIPTORS != 0;
        if !self.stream.is_tcp() {
            return Ok(());
        }
        if !self.is_apart {
            let text = "no descriptors go over TCP";
            self.fail(id, failure::BAD_REQUEST, text)?;
            return Err(Error::invalid(text));
        }
        if !self.host.admits(token) {
            let text = "this host asks for a token, and this is not it";
            self.fail(id, failure::REFUSED, text)?;
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    fn answer(&mut self, id: u32, request: Request<'_>) -> Result<(), Refusal> {
        match request {
            Request::Hello { .. } => self.reply(id, &Reply::Hello { features: 0 })?,
            Request::Open { keyspace } => self.open(id, keyspace)?,
            Request::Get { keyspace, key, .. } => {
                let opened = self.opened(keyspace)?;
                let get = || opened.share.authority().get(&opened.name, key);
                let value = opened.share.serving().answer(key, get)?;
                self.reply(id, &Reply::Value(value.as_deref()))?;
            }
            Request::MultiGet { keyspace, keys } => {
                let opened = self.opened(keyspace)?;
                let authority = opened.share.authority();
                let get = || authority.multi_get(&opened.name, &keys, FRAME_BYTES_MAX);
                let values = opened.share.serving().answer_all(keys.iter().copied(), get)?;
                let values = values.iter().map(Option::as_deref).collect();
                self.reply(id, &Reply::Values(values))?;
            }
            Request::Scan { keyspace, from, to, limit, reverse, is_atomic } => {
                let limit = (limit as usize).min(ITEMS_MAX);
                let scan = Scan { from, to, reverse, limit, bytes_max: SCAN_BYTES };
                self.scan(id, keyspace, &scan, is_atomic)?;
            }
            Request::Insert { keyspace, key, value, hint } => {
                self.write(id, keyspace, (key, Some(value)), hint)?;
            }
            Request::Remove { keyspace, key, hint } => {
                self.write(id, keyspace, (key, None), hint)?;
            }
            Request::CompareAndSwap { keyspace, key, expected, new, .. } => {
                let opened = self.opened(keyspace)?;
                let change = Change { keyspace: &opened.name, key, value: new };
                let write = self.host.gate().writes();
                opened.share.serving().check_write(key)?;
                let swapped = opened.share.authority().compare_and_swap(&change, expected)?;
                drop(write);
                let seq = opened.share.applied();
                self.reply(id, &Reply::Swapped { swapped, seq })?;
            }
            Request::Consult { keyspace, question } => {
                let answer = self.consult(keyspace, question)?;
                self.reply(id, &Reply::Consulted(&answer))?;
            }
            Request::Pieces { keyspace, extents } => self.pieces(id, keyspace, &extents)?,
            Request::Batch { ops } => self.batch(id, &ops)?,
            Request::Renew { gets, .. } => {
                for (keyspace, gets) in &gets {
                    self.opened(*keyspace)?.share.gets().add(gets);
                }
                // Changes whenever one of them does.
                let epochs = self.opened.iter().map(|opened| opened.share.epoch());
                let epoch = epochs.fold(0, u64::wrapping_add);
                let seq = self.opened.iter().map(|opened| opened.share.applied()).max();
                self.reply(id, &Reply::Renewed { epoch, seq: seq.unwrap_or(0) })?;
            }
            Request::Goodbye => {}
            Request::Read { keyspace, guess, key } => self.read(id, keyspace, guess, key)?,
            Request::ReadMany { keyspace, wanted } => self.read_many(id, keyspace, &wanted)?,
            Request::Top { keyspace, from, limit } => {
                let opened = self.opened(keyspace)?;
                let epoch = opened.share.epoch();
                let (blocks, more) = opened.looker().top(from, (limit as usize).min(ITEMS_MAX));
                let blocks = blocks.iter().map(|(low, unit)| (&low[..], *unit)).collect();
                self.reply(id, &Reply::Top { epoch, blocks, more })?;
            }
            Request::Routing { keyspace, above } => {
                let share = Arc::clone(&self.opened(keyspace)?.share);
                // Read first: what is served is of that generation, or newer.
                let generation = share.generation();
                share.serving().describe(generation, above, |reply| self.reply(id, reply))?;
            }
            Request::Block { keyspace, key } => {
                let opened = self.opened(keyspace)?;
                let epoch = opened.share.epoch();
                let block = opened.looker().block(key);
                let (low, high, image) = block.as_ref().map_or((&[][..], None, &[][..]), |block| {
                    (&block.low, block.high.as_deref(), &block.image)
                });
                self.reply(id, &Reply::Block { epoch, low, high, image })?;
            }
            Request::Attach { keyspace, endpoint } => self.attach(id, keyspace, &endpoint)?,
            Request::AttachCalls { keyspace, endpoint } => {
                self.attach_calls(id, keyspace, &endpoint)?;
            }
            Request::RemoteSegments { keyspace, part, known } => {
                self.remote_segments(id, keyspace, (part, known))?;
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        id: u32,
        keyspace: u32,
        scan: &Scan<'_>,
        is_atomic: bool,
    ) -> Result<(), Refusal> {
        let opened = self.opened(keyspace)?;
        // Leaves are read one after the other, and the store at one moment.
        let read = || {
            // planted: moment-read-leaf-leaf-over
            if self.is_apart && !is_atomic {
                opened.looker().scan(scan)
            } else {
                opened.share.authority().scan(&opened.name, scan)
            }
        };
        let (pairs, more) = opened.share.serving().answer_range((scan.from, scan.to), read)?;
        let pairs = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        Ok(self.reply(id, &Reply::Pairs { pairs, more })?)
    }

    fn read(&mut self, id: u32, keyspace: u32, guess: Guess, key: &[u8]) -> Result<(), Refusal> {
        let mut values = std::mem::take(&mut self.buffers.values);
        let opened = self.opened(keyspace)?;
        let epoch = opened.share.epoch();
        let (how, value) = opened.share.serving().answer(key, || {
            values.clear();
            opened.looker().read(guess, key, &mut values)
        })?;
        let value = value.map(|value| &values[value]);
        self.reply(id, &Reply::Read { epoch, answer: Answer { how, value } })?;
        self.buffers.keep_values(values);
        Ok(())
    }

    fn read_many(
        &mut self,
        id: u32,
        keyspace: u32,
        wanted: &[(Guess, &[u8])],
    ) -> Result<(), Refusal> {
        let mut values = std::mem::take(&mut self.buffers.values);
        let opened = self.opened(keyspace)?;
        let epoch = opened.share.epoch();
        let keys = wanted.iter().map(|(_, key)| *key);
        let found = opened.share.serving().answer_all(keys, || {
            values.clear();
            opened.looker().read_many(wanted, &mut values)
        })?;
        let answer = |(how, value): (_, Option<std::ops::Range<usize>>)| Answer {
            how,
            value: value.map(|value| &values[value]),
        };
        let answers = found.into_iter().map(answer).collect();
        self.reply(id, &Reply::ReadMany { epoch, answers })?;
        self.buffers.keep_values(values);
        Ok(())
    }

    /// Reads pieces of a region.
    fn pieces(&mut self, id: u32, keyspace: u32, extents: &[Extent]) -> Result<(), Refusal> {
        let bytes: u64 = extents.iter().map(|extent| u64::from(extent.len)).sum();
        if bytes > PIECES_BYTES {
            return Err(Refusal::Reply(failure::TOO_LARGE, TOO_LARGE.into()));
        }
        let mut image = Image::default();
        self.opened(keyspace)?.share.read_pieces(extents, &mut image)?;
        let (guards, bytes) = image.to_bytes();
        Ok(self.reply(id, &Reply::Pieces { guards, bytes: &bytes })?)
    }

    fn consult(&mut self, keyspace: u32, question: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.opened(keyspace)?;
        let Opened { name, share, joined, .. } = &mut self.opened[keyspace as usize];
        Ok(share.consult(name, question, joined, self.host.gate())?)
    }

    fn opened(&self, keyspace: u32) -> Result<&Opened, Refusal> {
        self.opened.get(keyspace as usize).ok_or_else(|| {
            let text = format!("no keyspace has the number {keyspace} in this connection");
            Refusal::Reply(failure::NO_SUCH_KEYSPACE, text)
        })
    }

    fn write(
        &mut self,
        id: u32,
        keyspace: u32,
        (key, value): (&[u8], Option<&[u8]>),
        hint: Option<Hint>,
    ) -> Result<(), Refusal> {
        let opened = self.opened(keyspace)?;
        let write = self.host.gate().writes();
        // planted: write-hint-passes-gate
        opened.share.serving().check_write(key)?;
        opened.share.write(Change { keyspace: &opened.name, key, value }, hint)?;
        drop(write);
        let seq = opened.share.applied();
        Ok(self.reply(id, &Reply::Done { seq })?)
    }

    /// Makes changes of one keyspace or several as one.
    fn batch(&mut self, id: u32, ops: &[Op<'_>]) -> Result<(), Refusal> {
        let mut changes = Vec::with_capacity(ops.len());
        let mut share: Option<&Share> = None;
        for op in ops {
            let (keyspace, key, value) = match *op {
                Op::Insert { keyspace, key, value } => (keyspace, key, Some(value)),
                Op::Remove { keyspace, key } => (keyspace, key, None),
            };
            let opened = self.opened(keyspace)?;
            if !share.get_or_insert(&opened.share).has_authority_of(&opened.share) {
                let text = "a batch over keyspaces of which one is volatile, written by itself";
                return Err(Refusal::Reply(failure::REFUSED, text.into()));
            }
            changes.push(Change { keyspace: &opened.name, key, value });
        }
        let mut seq = 0;
        if let Some(share) = share {
            let _write = self.host.gate().writes();
            for op in ops {
                let (Op::Insert { keyspace, key, .. } | Op::Remove { keyspace, key }) = *op;
                self.opened(keyspace)?.share.serving().check_write(key)?;
            }
            // planted: changes-batch-made
            share.authority().commit(&changes)?;
            seq = share.applied();
        }
        Ok(self.reply(id, &Reply::Done { seq })?)
    }

    /// Replies, after the segments that the client does not have yet.
    fn reply(&mut self, id: u32, reply: &Reply<'_>) -> Result<()> {
        let mapped = if self.is_apart { 0 } else { self.opened.len() };
        for keyspace in 0..mapped {
            for which in [Part::Control, Part::Leaves] {
                self.announce(keyspace, which)?;
            }
        }
        self.buffers.output.push(id, reply, Vec::new())
    }

    fn fail(&mut self, id: u32, code: u16, text: &str) -> Result<()> {
        self.buffers.output.push(id, &Reply::Failed { code, text }, Vec::new())
    }
}

/// Why a request has no answer.
enum Refusal {
    /// The client is told so, by a code and a text.
    Reply(u16, String),
    /// Another host serves the keys, as a table of this epoch says.
    Moved(u64),
    /// The connection ends.
    End(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Full { .. } => failure::FULL,
            Error::InvalidArgument(_) => failure::REFUSED,
            Error::Refused { code, text } => return Self::Reply(*code, text.clone()),
            Error::Closed | Error::TimedOut => return Self::End(error),
            Error::Moved { epoch } => return Self::Moved(*epoch),
            _ => failure::INTERNAL,
        };
        Self::Reply(code, error.to_string())
    }
}
