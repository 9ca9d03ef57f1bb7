//! What `DUMP` gives and `RESTORE` takes: a type, a value, the version, and the checksum of all.

use super::{
    format::{
        FOOTER_BYTES, TYPE_HASH_METADATA, VERSION_READ_MAX, VERSION_WITH_TIMES, VERSION_WRITTEN,
    },
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

/// Returns true if a payload is a hash of which some fields end, which only Redis 7.4 and later
/// know.
pub(crate) fn has_times(payload: &[u8]) -> bool {
    payload.first() == Some(&TYPE_HASH_METADATA)
}

/// Appends the version and the checksum to a type and a value. The version is the first that has
/// the type.
pub(crate) fn finish_payload(value: &mut Vec<u8>) {
    let version = if has_times(value) { VERSION_WITH_TIMES } else { VERSION_WRITTEN };
    value.extend_from_slice(&version.to_le_bytes());
    let sum = CHECKSUM.checksum(value);
    value.extend_from_slice(&sum.to_le_bytes());
}
