//! One connection of a client: its requests, one after the other.

use std::{os::fd::BorrowedFd, sync::Arc};

use super::{Change, Scan, server::Inner, share::Share};
use crate::{
    clock,
    error::{Error, Result},
    message::{
        Frame, Op, Part, PartInfo, Reply, Request,
        format::{ITEMS_MAX, SEGMENTS_MAX, failure},
    },
    region::{HostRegion, Segment},
    socket::Stream,
};

/// Bytes of pairs after which a part of a scan is sent: what a connection holds at most, and enough
/// that the round trip does not matter.
const SCAN_BYTES: usize = 256 << 10;

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
}

/// A connection.
pub(super) struct Session<'h> {
    host: &'h Inner,
    stream: &'h Stream,
    opened: Vec<Opened>,
    out: Vec<u8>,
}

impl<'h> Session<'h> {
    pub(super) fn new(host: &'h Inner, stream: &'h Stream) -> Self {
        Self { host, stream, opened: Vec::new(), out: Vec::new() }
    }

    /// Answers requests until the client goes or breaks the rules.
    pub(super) fn run(&mut self) -> Result<()> {
        let (mut frame, mut is_greeted) = (Vec::new(), false);
        loop {
            // Descriptors that come unasked are closed here.
            drop(self.stream.receive(&mut frame)?);
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
                (Request::Hello { .. }, false) => is_greeted = true,
                (Request::Hello { .. }, true) | (_, false) => {
                    self.fail(parsed.id, failure::BAD_REQUEST, "a greeting is the first request")?;
                    return Err(Error::invalid("a request out of order"));
                }
                _ => {}
            }
            match self.answer(parsed.id, request) {
                Ok(()) => {}
                Err(Refusal::Reply(code, text)) => self.fail(parsed.id, code, &text)?,
                Err(Refusal::End(error)) => return Err(error),
            }
        }
    }

    fn answer(&mut self, id: u32, request: Request<'_>) -> Result<(), Refusal> {
        match request {
            Request::Hello { .. } => self.reply(id, &Reply::Hello { features: 0 })?,
            Request::Open { keyspace } => self.open(id, keyspace)?,
            Request::Get { keyspace, key, .. } => {
                let opened = self.opened(keyspace)?;
                let value = opened.share.authority().get(&opened.name, key)?;
                self.reply(id, &Reply::Value(value.as_deref()))?;
            }
            Request::MultiGet { keyspace, keys } => {
                let opened = self.opened(keyspace)?;
                let values = opened.share.authority().multi_get(&opened.name, &keys)?;
                let values = values.iter().map(Option::as_deref).collect();
                self.reply(id, &Reply::Values(values))?;
            }
            Request::Scan { keyspace, from, to, limit, reverse } => {
                let limit = (limit as usize).min(ITEMS_MAX);
                let opened = self.opened(keyspace)?;
                let scan = Scan { from, to, reverse, limit, bytes_max: SCAN_BYTES };
                let (pairs, more) = opened.share.authority().scan(&opened.name, &scan)?;
                let pairs = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                self.reply(id, &Reply::Pairs { pairs, more })?;
            }
            Request::Insert { keyspace, key, value, .. } => {
                self.write(id, keyspace, key, Some(value))?;
            }
            Request::Remove { keyspace, key, .. } => self.write(id, keyspace, key, None)?,
            Request::CompareAndSwap { keyspace, key, expected, new, .. } => {
                let opened = self.opened(keyspace)?;
                let change = Change { keyspace: &opened.name, key, value: new };
                let swapped = opened.share.authority().compare_and_swap(&change, expected)?;
                let seq = opened.share.applied();
                self.reply(id, &Reply::Swapped { swapped, seq })?;
            }
            Request::Batch { ops } => self.batch(id, &ops)?,
            Request::Renew { .. } => {
                self.reply(id, &Reply::Renewed { epoch: 0, seq: 0 })?;
            }
            Request::Goodbye => {}
        }
        Ok(())
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
        let mut opened = Opened { name, share: Arc::clone(&share), control: 0, leaves: 0 };
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
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let opened = self.opened(keyspace)?;
        opened.share.authority().commit(&[Change { keyspace: &opened.name, key, value }])?;
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
            share.authority().commit(&changes)?;
            seq = share.applied();
        }
        Ok(self.reply(id, &Reply::Done { seq })?)
    }

    /// Sends a reply, after the segments that the client does not have yet.
    fn reply(&mut self, id: u32, reply: &Reply<'_>) -> Result<()> {
        for keyspace in 0..self.opened.len() {
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
        self.out.clear();
        if reply.encode(id, &mut self.out).is_err() {
            Reply::Failed { code: failure::TOO_LARGE, text: TOO_LARGE }
                .encode(id, &mut self.out)?;
        }
        self.stream.send(&self.out, fds)
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
            _ => failure::INTERNAL,
        };
        Self::Reply(code, error.to_string())
    }
}
