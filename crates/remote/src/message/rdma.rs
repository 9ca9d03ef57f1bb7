//! What two sides tell each other to be connected by RDMA.

use super::codec::Input;
use crate::error::Result;

/// What another machine needs to reach a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The port's GID, its name in a routed network.
    pub(crate) gid: [u8; 16],
    /// The port's LID, its number in an InfiniBand subnet; 0 on Ethernet.
    pub(crate) lid: u16,
    /// The path MTU as verbs count it: 1 is 256 bytes, 5 is 4,096.
    pub(crate) mtu: u8,
    /// RDMA reads that the queue pair answers at once.
    pub(crate) reads_in: u8,
    /// The queue pair's number.
    pub(crate) queue: u32,
    /// The number of the first packet that it sends, of 24 bits.
    pub(crate) sequence: u32,
}

/// A segment of a region, as another machine reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteSegment {
    /// Where it begins, as the host's device names it.
    pub(crate) address: u64,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// The remote key (rkey) of the memory region that it is.
    pub(crate) key: u32,
}

/// Bytes of a [`RemoteSegment`].
pub(super) const SEGMENT_BYTES: usize = 8 + 8 + 4;

impl Endpoint {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.gid);
        out.extend_from_slice(&self.lid.to_le_bytes());
        out.extend_from_slice(&[self.mtu, self.reads_in]);
        out.extend_from_slice(&self.queue.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
    }

    pub(super) fn read(input: &mut Input<'_>) -> Result<Self> {
        let mut gid = [0; 16];
        gid.copy_from_slice(input.take(16, "a GID")?);
        Ok(Self {
            gid,
            lid: input.u16("a LID")?,
            mtu: input.u8("a path MTU")?,
            reads_in: input.u8("a number of reads at once")?,
            queue: input.u32("a queue pair's number")?,
            sequence: input.u32("a packet's number")?,
        })
    }
}

impl RemoteSegment {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.address.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.key.to_le_bytes());
    }

    pub(super) fn read(input: &mut Input<'_>) -> Result<Self> {
        Ok(Self {
            address: input.u64("a segment's address")?,
            bytes: input.u64("a segment's size")?,
            key: input.u32("a segment's remote key")?,
        })
    }
}
