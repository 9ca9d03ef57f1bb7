//! One connection of a client: its requests, one after the other.

use std::{os::fd::BorrowedFd, sync::Arc};

use super::{Change, Scan, look::Looker, server::Inner, share::Share};
use crate::{
    clock,
    error::{Error, Result},
    fabric::Image,
    message::{
        Answer, Frame, Guess, Hint, Op, Part, PartInfo, Place, Reply, Request,
        format::{GREETING_BYTES_MAX, ITEMS_MAX, SEGMENTS_MAX, failure, feature},
    },
    region::{HostRegion, Segment},
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

/// Said of an answer that a client must ask for in parts.
const TOO_LARGE: &str = "the answer does not fit a message";

/// A keyspace that a client has opened.
struct Opened {
    name: String,
    share: Arc<Share>,
    /// Number of segments that were sent of the control part.
    control: usize,
    /// Number of segments that were sent of the leaves.
    leaves: usize,
    /// The sessions that the client has begun with the keyspace, if its clients keep descriptors.
    joined: Vec<u64>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.share.end_sessions(&self.joined);
    }
}

impl Opened {
    fn new(name: String, share: Arc<Share>) -> Self {
        Self { name, share, control: 0, leaves: 0, joined: Vec::new() }
    }

    fn looker(&self) -> Looker<'_> {
        Looker::new(&self.share, &self.name)
    }
}

/// A connection.
pub(super) struct Session<'h> {
    host: &'h Inner,
    stream: &'h Stream,
    opened: Vec<Opened>,
    /// True for a client that no descriptors reach.
    is_apart: bool,
    /// Answers that were not sent yet.
    out: Vec<u8>,
    /// Values of the answer that is being made.
    values: Vec<u8>,
}

impl<'h> Session<'h> {
    pub(super) fn new(host: &'h Inner, stream: &'h Stream) -> Self {
        let (opened, out, values) = (Vec::new(), Vec::new(), Vec::new());
        Self { host, stream, opened, is_apart: false, out, values }
    }

    /// Answers requests until the client goes or breaks the rules.
    pub(super) fn run(&mut self) -> Result<()> {
        let served = self.serve();
        // Answers that were kept back for one that did not follow.
        self.flush(&[])?;
        served
    }

    fn serve(&mut self) -> Result<()> {
        let (mut frame, mut is_greeted) = (Vec::new(), false);
        loop {
            let is_known = is_greeted || !self.stream.is_tcp();
            let len_max = if is_known { usize::MAX } else { GREETING_BYTES_MAX };
            match self.stream.receive_up_to(len_max, &mut frame) {
                // Descriptors that come unasked are closed here.
                Ok(received) => drop(received),
                // A client may be silent between two requests.
                Err(Error::TimedOut) if is_greeted && frame.is_empty() => continue,
                Err(error) => return Err(error),
            }
            let parsed = Frame::parse(&frame)?;
            let request = match Request::decode(&parsed) {
                Ok(request) => request,
                Err(error) => {
                    self.fail(parsed.id, failure::BAD_REQUEST, &error.to_string())?;
                    return Err(error);
                }
            };
            match (&request, is_greeted) {
                (Request::Goodbye, _) => return Ok(()),
                (Request::Hello { features, token, .. }, false) => {
                    self.admit(parsed.id, *features, *token)?;
                    is_greeted = true;
                }
                (Request::Hello { .. }, true) | (_, false) => {
                    self.fail(parsed.id, failure::BAD_REQUEST, "a greeting is the first request")?;
                    return Err(Error::invalid("a request out of order"));
                }
                _ => {}
            }
            match self.answer(parsed.id, request) {
                Ok(()) => {}
                Err(Refusal::Reply(code, text)) => self.fail(parsed.id, code, &text)?,
                Err(Refusal::Moved(epoch)) => self.reply(parsed.id, &Reply::Moved { epoch })?,
                Err(Refusal::End(error)) => return Err(error),
            }
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
                let value = opened.share.authority().get(&opened.name, key)?;
                opened.share.serving().check(key)?;
                self.reply(id, &Reply::Value(value.as_deref()))?;
            }
            Request::MultiGet { keyspace, keys } => {
                let opened = self.opened(keyspace)?;
                let values = opened.share.authority().multi_get(&opened.name, &keys)?;
                opened.share.serving().check_all(keys)?;
                let values = values.iter().map(Option::as_deref).collect();
                self.reply(id, &Reply::Values(values))?;
            }
            Request::Scan { keyspace, from, to, limit, reverse, is_atomic } => {
                let limit = (limit as usize).min(ITEMS_MAX);
                let opened = self.opened(keyspace)?;
                let scan = Scan { from, to, reverse, limit, bytes_max: SCAN_BYTES };
                // Leaves are read one after the other, and the store at one moment.
                let (pairs, more) = if self.is_apart && !is_atomic {
                    opened.looker().scan(&scan)?
                } else {
                    opened.share.authority().scan(&opened.name, &scan)?
                };
                opened.share.serving().check_range((from, to))?;
                let pairs = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                self.reply(id, &Reply::Pairs { pairs, more })?;
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
            Request::Pieces { keyspace, places } => self.pieces(id, keyspace, &places)?,
            Request::Batch { ops } => self.batch(id, &ops)?,
            Request::Renew { .. } => {
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
        }
        Ok(())
    }

    fn read(&mut self, id: u32, keyspace: u32, guess: Guess, key: &[u8]) -> Result<(), Refusal> {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        let opened = self.opened(keyspace)?;
        let epoch = opened.share.epoch();
        let (how, value) = opened.looker().read(guess, key, &mut values)?;
        opened.share.serving().check(key)?;
        let value = value.map(|value| &values[value]);
        self.reply(id, &Reply::Read { epoch, answer: Answer { how, value } })?;
        self.keep(values);
        Ok(())
    }

    /// Keeps a buffer for the next answer, unless it is larger than most need.
    fn keep(&mut self, values: Vec<u8>) {
        if values.capacity() <= SCAN_BYTES {
            self.values = values;
        }
    }

    fn read_many(
        &mut self,
        id: u32,
        keyspace: u32,
        wanted: &[(Guess, &[u8])],
    ) -> Result<(), Refusal> {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        let opened = self.opened(keyspace)?;
        let epoch = opened.share.epoch();
        let found = opened.looker().read_many(wanted, &mut values)?;
        opened.share.serving().check_all(wanted.iter().map(|(_, key)| *key))?;
        let answer = |(how, value): (_, Option<std::ops::Range<usize>>)| Answer {
            how,
            value: value.map(|value| &values[value]),
        };
        let answers = found.into_iter().map(answer).collect();
        self.reply(id, &Reply::ReadMany { epoch, answers })?;
        self.keep(values);
        Ok(())
    }

    /// Reads pieces of a region.
    fn pieces(&mut self, id: u32, keyspace: u32, places: &[Place]) -> Result<(), Refusal> {
        let bytes: u64 = places.iter().map(|place| u64::from(place.len)).sum();
        if bytes > PIECES_BYTES {
            return Err(Refusal::Reply(failure::TOO_LARGE, TOO_LARGE.into()));
        }
        let mut image = Image::default();
        self.opened(keyspace)?.share.read_pieces(places, &mut image)?;
        let (guards, bytes) = image.to_bytes();
        Ok(self.reply(id, &Reply::Pieces { guards, bytes: &bytes })?)
    }

    fn open(&mut self, id: u32, name: &[u8]) -> Result<(), Refusal> {
        let name_and_share = std::str::from_utf8(name).ok();
        let name_and_share =
            name_and_share.and_then(|name| Some((name.to_owned(), self.host.share(name)?)));
        let Some((name, share)) = name_and_share else {
            let text = format!("no keyspace {:?} is shared here", String::from_utf8_lossy(name));
            return Err(Refusal::Reply(failure::NO_SUCH_KEYSPACE, text));
        };
        let keyspace = self.opened.len() as u32;
        if self.is_apart {
            let Some(geometry) = share.geometry() else {
                let header = share.header();
                self.opened.push(Opened::new(name, share));
                self.reply(id, &Reply::Shown { keyspace, header })?;
                return Ok(());
            };
            let epoch = share.epoch();
            let (leaf_bytes, room) = (geometry.leaf_bytes() as u32, geometry.room() as u32);
            self.opened.push(Opened::new(name, share));
            self.reply(id, &Reply::Described { keyspace, leaf_bytes, room, epoch })?;
            return Ok(());
        }
        let mut opened = Opened::new(name, Arc::clone(&share));
        let control = fresh(share.control(), &mut opened.control, SEGMENTS_MAX);
        let leaves = fresh(share.leaves(), &mut opened.leaves, SEGMENTS_MAX - control.len());
        let reply = Reply::Opened {
            keyspace,
            control: part(share.control(), &control),
            leaves: part(share.leaves(), &leaves),
            lease_ms: self.host.lease_ms(),
        };
        let fds: Vec<BorrowedFd<'_>> = control.iter().chain(&leaves).map(Segment::fd).collect();
        // A client that opens a keyspace finds the host there.
        share.beat(clock::now_ms());
        self.opened.push(opened);
        self.send(id, &reply, &fds)?;
        Ok(())
    }

    fn consult(&mut self, keyspace: u32, question: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.opened(keyspace)?;
        let Opened { share, joined, .. } = &mut self.opened[keyspace as usize];
        Ok(share.consult(question, joined)?)
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
            share.authority().commit(&changes)?;
            seq = share.applied();
        }
        Ok(self.reply(id, &Reply::Done { seq })?)
    }

    /// Sends a reply, after the segments that the client does not have yet.
    fn reply(&mut self, id: u32, reply: &Reply<'_>) -> Result<()> {
        let mapped = if self.is_apart { 0 } else { self.opened.len() };
        for keyspace in 0..mapped {
            for which in [Part::Control, Part::Leaves] {
                self.announce(keyspace, which)?;
            }
        }
        self.send(id, reply, &[])
    }

    fn announce(&mut self, keyspace: usize, which: Part) -> Result<()> {
        loop {
            let opened = &mut self.opened[keyspace];
            let (region, sent) = match which {
                Part::Control => (opened.share.control(), &mut opened.control),
                Part::Leaves => (opened.share.leaves(), &mut opened.leaves),
            };
            let segments = fresh(region, sent, SEGMENTS_MAX);
            if segments.is_empty() {
                return Ok(());
            }
            let sizes = segments.iter().map(Segment::bytes).collect();
            let fds: Vec<BorrowedFd<'_>> = segments.iter().map(Segment::fd).collect();
            self.send(0, &Reply::Segments { keyspace: keyspace as u32, part: which, sizes }, &fds)?;
        }
    }

    fn fail(&mut self, id: u32, code: u16, text: &str) -> Result<()> {
        self.send(id, &Reply::Failed { code, text }, &[])
    }

    fn send(&mut self, id: u32, reply: &Reply<'_>, fds: &[BorrowedFd<'_>]) -> Result<()> {
        if reply.encode(id, &mut self.out).is_err() {
            Reply::Failed { code: failure::TOO_LARGE, text: TOO_LARGE }
                .encode(id, &mut self.out)?;
        }
        // The next answer goes with this one, if its request is at hand.
        if self.out.len() < KEPT_BYTES && self.stream.holds_frame() {
            return Ok(());
        }
        self.flush(fds)
    }

    fn flush(&mut self, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let sent = self.stream.send_frames(&self.out, fds);
        self.out.clear();
        sent
    }
}

/// Segments that a client has not got yet, at most `most`; `sent` counts those that it has.
fn fresh(region: &HostRegion, sent: &mut usize, most: usize) -> Vec<Segment> {
    let segments: Vec<Segment> = region.segments().into_iter().skip(*sent).take(most).collect();
    *sent += segments.len();
    segments
}

fn part(region: &HostRegion, segments: &[Segment]) -> PartInfo {
    PartInfo {
        capacity_bytes: region.capacity_bytes(),
        segments: segments.iter().map(Segment::bytes).collect(),
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
