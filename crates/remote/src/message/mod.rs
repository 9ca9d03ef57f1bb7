//! What a client and a host say to each other: requests and replies, as bytes of frames.
//!
//! Pure bytes, no input and no output: `socket` carries frames. A decoded message borrows keys,
//! values and names from its frame. `docs/wire.md` has the bytes in prose, [`mod@format`] the
//! numbers.
//!
//! Invariants:
//!
//! 1. Decoding never panics. It allocates only lists of items, whose counts it has checked against
//!    [`format::ITEMS_MAX`] and the bytes that are left.
//! 2. A message has exactly one encoding: what decodes, encodes to the same bytes.
//! 3. What encodes, decodes on the other side: limits are checked by both.

mod codec;
pub(crate) mod format;
mod rdma;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use self::request::GetCounts;
use self::{
    codec::Input,
    format::{MAGIC, VERSION},
};
pub(crate) use self::{
    codec::{Frame, frame_len},
    rdma::{Endpoint, RemoteSegment},
    reply::{HEADER_WORDS, Part, PartInfo, Reply, Table},
    request::{Op, Request},
};
use crate::error::{Error, Result};

/// Where the client believes that a key is. The host checks it and walks if it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    /// The leaf's slot.
    pub(crate) slot: u32,
    /// The incarnation that the leaf had.
    pub(crate) incarnation: u32,
}

/// A piece of a region. Offsets and lengths are in bytes and multiples of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) part: Part,
    /// Where it begins in the part.
    pub(crate) at: u64,
    pub(crate) len: u32,
    /// Where its guard is in the part.
    pub(crate) guard: u64,
}

impl Extent {
    /// In place of a guard: what is read proves itself. Only where reads have no order.
    pub(crate) const NO_GUARD: u64 = u64::MAX;
}

/// Where a client that keeps a part of the directory expects a key. What the host finds there
/// proves itself, so that a wrong guess costs time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guess {
    /// The client does not know.
    None,
    /// In the leaf of this slot.
    Leaf(u32),
    /// In a run of the block in this unit.
    Block(u32),
}

/// How a host found what it answers to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum How {
    /// The leaf that the client guessed said it, or one that it links to.
    Guessed = 0,
    /// The leaf could not say: the host asked the authority.
    Asked = 1,
    /// The guess was wrong, or there was none: the host found the leaf by its own directory.
    Routed = 2,
}

/// What a host says of a key that it was asked to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub(crate) how: How,
    /// The key's value, if it is there.
    pub(crate) value: Option<&'a [u8]>,
}

/// Appends what either side's first frame begins with.
fn put_greeting(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
}

/// Checks what the other side's first frame begins with.
fn check_greeting(input: &mut Input<'_>) -> Result<()> {
    let magic = input.take(MAGIC.len(), "the magic of Rhumb's messages")?;
    if magic != MAGIC {
        return Err(input.refuse("the magic of Rhumb's messages", magic.escape_ascii()));
    }
    let version = input.u32("the version of the messages")?;
    if version != VERSION {
        let text = format!("the other side speaks version {version}, this one {VERSION}");
        return Err(Error::Unsupported(text.into()));
    }
    Ok(())
}
