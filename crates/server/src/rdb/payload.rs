//! What `DUMP` gives and `RESTORE` takes: a type, a value, the version, and the checksum of all.

use super::{
    format::{FOOTER_BYTES, VERSION_READ_MAX, VERSION_WRITTEN},
    source::CHECKSUM,
};

/// The type and the value, if the version is one that is read and the checksum is right.
pub(crate) fn open_payload(payload: &[u8]) -> Option<&[u8]> {
    let (value, footer) = payload.split_at_checked(payload.len().checked_sub(FOOTER_BYTES)?)?;
    let (version, sum) = footer.split_at(2);
    let version = u16::from_le_bytes(version.try_into().ok()?);
    let sum = u64::from_le_bytes(sum.try_into().ok()?);
    let summed = &payload[..value.len() + 2];
    (version <= VERSION_READ_MAX && sum == CHECKSUM.checksum(summed)).then_some(value)
}

/// Appends the version and the checksum to a type and a value.
pub(crate) fn finish_payload(value: &mut Vec<u8>) {
    value.extend_from_slice(&VERSION_WRITTEN.to_le_bytes());
    let sum = CHECKSUM.checksum(value);
    value.extend_from_slice(&sum.to_le_bytes());
}
