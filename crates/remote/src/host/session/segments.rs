//! Keyspaces that a client opens, and the segments that it is told of.

use std::sync::Arc;

use super::{Opened, Refusal, Session};
use crate::{
    clock,
    error::Result,
    message::{
        Part, PartInfo, Reply,
        format::{HAS_CHECKSUMS, SEGMENTS_MAX, failure},
    },
    region::{HostRegion, Segment},
};

/// The segments of a part that a client has.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    segments: usize,
    bytes: u64,
}

impl Session {
    pub(super) fn open(&mut self, id: u32, name: &[u8]) -> Result<(), Refusal> {
        let name_and_share = std::str::from_utf8(name).ok();
        let name_and_share =
            name_and_share.and_then(|name| Some((name.to_owned(), self.host.share(name)?)));
        let Some((name, share)) = name_and_share else {
            let text = format!("no keyspace {:?} is shared here", String::from_utf8_lossy(name));
            return Err(Refusal::Reply(failure::NO_SUCH_KEYSPACE, text));
        };
        let most = self.host.limits().keyspaces;
        if self.opened.len() >= most {
            let text = format!("a connection opens at most {most} keyspaces (keyspaces_max)");
            return Err(Refusal::Reply(failure::REFUSED, text));
        }
        let keyspace = self.opened.len() as u32;
        if self.is_apart {
            let Some(geometry) = share.geometry() else {
                let header = share.header();
                self.opened.push(Opened::new(name, share));
                self.reply(id, &Reply::Shown { keyspace, header })?;
                return Ok(());
            };
            let epoch = share.epoch();
            let checksums = if geometry.has_checksums() { HAS_CHECKSUMS } else { 0 };
            let leaf_bytes = geometry.leaf_bytes() as u32 | checksums;
            let room = geometry.room() as u32;
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
        // A client that opens a keyspace finds the host there.
        share.beat(clock::now_ms());
        self.opened.push(opened);
        Ok(self.buffers.output.push(id, &reply, [control, leaves].concat())?)
    }

    /// Tells a client of segments of a part that it does not have yet.
    pub(super) fn announce(&mut self, keyspace: usize, which: Part) -> Result<()> {
        loop {
            let opened = &mut self.opened[keyspace];
            let (region, sent) = match which {
                Part::Control => (opened.share.control(), &mut opened.control),
                Part::Leaves => (opened.share.leaves(), &mut opened.leaves),
            };
            // Most answers are made while no region grows.
            if sent.bytes >= region.len_bytes() {
                return Ok(());
            }
            let segments = fresh(region, sent, SEGMENTS_MAX);
            let sizes = segments.iter().map(Segment::bytes).collect();
            let reply = Reply::Segments { keyspace: keyspace as u32, part: which, sizes };
            self.buffers.output.push(0, &reply, segments)?;
        }
    }
}

/// Segments that a client has not got yet, at most `most`; `sent` counts those that it has.
fn fresh(region: &HostRegion, sent: &mut Sent, most: usize) -> Vec<Segment> {
    let segments = region.segments().into_iter().skip(sent.segments).take(most);
    let segments: Vec<Segment> = segments.collect();
    sent.segments += segments.len();
    sent.bytes += segments.iter().map(Segment::bytes).sum::<u64>();
    segments
}

fn part(region: &HostRegion, segments: &[Segment]) -> PartInfo {
    PartInfo {
        capacity_bytes: region.capacity_bytes(),
        segments: segments.iter().map(Segment::bytes).collect(),
    }
}
