//! What a client and a host say to each other: requests and replies, as bytes of frames.
//!
//! Pure bytes, no input and no output: `socket` carries frames over a Unix socket. A decoded
//! message borrows keys, values and names from its frame. `docs/wire.md` has the bytes in prose,
//! [`mod@format`] the numbers.
//!
//! Invariants:
//!
//! 1. Decoding never panics. It allocates only lists of items, whose counts it has checked against
//!    [`format::ITEMS_MAX`] and the bytes that are left.
//! 2. A message has exactly one encoding: what decodes, encodes to the same bytes.
//! 3. What encodes, decodes on the other side: limits are checked by both.

mod codec;
pub(crate) mod format;
mod reply;
mod request;
#[cfg(test)]
mod tests;

use self::{
    codec::Input,
    format::{MAGIC, VERSION},
};
pub(crate) use self::{
    codec::{Frame, frame_len},
    reply::{Part, PartInfo, Reply},
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
