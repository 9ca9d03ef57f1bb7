//! Values into a server that runs, by `RESTORE`.

use std::time::Duration;

use super::{Refusal, Target, TransferError, Transferred, refuse};
use crate::{
    peer::{Peer, PeerAddress, PeerReply},
    rdb::{self, Item, KeyHead, RdbError, ValueBytes},
};

/// How long a server may take for one reply: a large value is restored in a few seconds.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of commands that are sent before their replies are read.
const BATCH_BYTES: usize = 1 << 20;

/// What is said besides of a refusal where hashes of which some fields end are among the values.
const HINT: &str = " (there are hashes with fields that end, which Redis knows since 7.4)";

/// A server that values go to. All of a value's bytes are in memory.
pub(super) struct ServerTarget {
    peer: Peer,
    /// Commands whose replies were not read.
    waiting: usize,
    /// One of these brings a hash with fields that end.
    has_times: bool,
}

impl ServerTarget {
    /// Connects.
    pub(super) fn open(address: &PeerAddress) -> Result<Self, TransferError> {
        let peer = Peer::open(address, REPLY_TIMEOUT).map_err(TransferError::Failed)?;
        let mut target = Self { peer, waiting: 0, has_times: false };
        target.push(&[b"SELECT", address.database.to_string().as_bytes()])?;
        Ok(target)
    }

    fn push(&mut self, words: &[&[u8]]) -> Result<(), TransferError> {
        self.peer.push(words);
        self.waiting += 1;
        if self.peer.pending() < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), TransferError> {
        let failed = |error| TransferError::Failed(format!("the server that keys go to: {error}"));
        self.peer.flush().map_err(failed)?;
        let has_times = std::mem::take(&mut self.has_times);
        for _ in 0..std::mem::take(&mut self.waiting) {
            if let PeerReply::Error(text) = self.peer.reply().map_err(failed)? {
                let hint = if has_times { HINT } else { "" };
                let what = format!("the server that keys go to refuses one: {text}{hint}");
                return Err(TransferError::Failed(what));
            }
        }
        Ok(())
    }
}

impl Target for ServerTarget {
    fn database(&mut self, number: u64) -> Result<(), TransferError> {
        self.push(&[b"SELECT", number.to_string().as_bytes()])
    }

    fn value(
        &mut self,
        head: &KeyHead,
        next: &mut dyn FnMut() -> Result<Option<Item>, RdbError>,
    ) -> Result<(), Refusal> {
        let mut value = ValueBytes::new(head.kind);
        while let Some(item) = next()? {
            value.push(&item);
        }
        let mut payload = Vec::with_capacity(value.len() + 32);
        value.finish(&mut payload)?;
        rdb::finish_payload(&mut payload);
        self.has_times |= rdb::has_times(&payload);
        let time = head.expires_ms.to_string();
        let words = [b"RESTORE", &head.key[..], time.as_bytes(), &payload, b"REPLACE", b"ABSTTL"];
        Ok(self.push(&words)?)
    }

    fn library(&mut self, code: &[u8]) -> Result<(), Refusal> {
        Ok(self.push(&[b"FUNCTION", b"LOAD", b"REPLACE", code])?)
    }

    fn run(
        &mut self,
        commands: &[u8],
        count: usize,
        all: &mut Transferred,
    ) -> Result<(), TransferError> {
        self.flush()?;
        self.peer.push_raw(commands);
        self.peer.flush()?;
        for _ in 0..count {
            if let PeerReply::Error(text) = self.peer.reply()? {
                refuse(all, &text);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransferError> {
        self.flush()
    }
}
