//! Keys of a collection's members: its number first, so that they are neighbours.

use xxhash_rust::xxh3::xxh3_64;

use super::format::{
    ID_BYTES, TIMES_BY_END, TIMES_BY_FIELD, WORK_EXPIRY, WORK_FIELDS, WORK_RECLAIM, ZSET_BY_MEMBER,
    ZSET_BY_SCORE,
};

/// The longest member or field, in bytes: a member's key is a key of the engine.
pub(crate) const MEMBER_BYTES_MAX: usize = (64 << 10) - 32;

fn with_id(id: u64, room: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(ID_BYTES + room);
    key.extend_from_slice(&id.to_be_bytes());
    key
}

/// The front of the keys of all members of a collection.
pub(crate) fn prefix(id: u64) -> Vec<u8> {
    with_id(id, 0)
}

/// The key of a hash's field.
pub(crate) fn field(id: u64, field: &[u8]) -> Vec<u8> {
    let mut key = with_id(id, field.len());
    key.extend_from_slice(field);
    key
}

/// The field in a hash's member key.
pub(crate) fn field_of(key: &[u8]) -> &[u8] {
    key.get(ID_BYTES..).unwrap_or_default()
}

/// The key of the time at which a field of a hash ends; `times` is the number of the hash's times.
/// Its value is the time.
pub(crate) fn time_of_field(times: u64, field: &[u8]) -> Vec<u8> {
    let mut key = with_id(times, 1 + field.len());
    key.push(TIMES_BY_FIELD);
    key.extend_from_slice(field);
    key
}

/// The field in the key that [`time_of_field`] made.
pub(crate) fn time_of_field_of(key: &[u8]) -> &[u8] {
    key.get(ID_BYTES + 1..).unwrap_or_default()
}

/// The value of a key that [`time_of_field`] made.
pub(crate) fn encode_time(end_ms: u64) -> Vec<u8> {
    end_ms.to_le_bytes().to_vec()
}

/// The time in a value that [`encode_time`] made; 0 if the bytes are none.
pub(crate) fn decode_time(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap_or_default())
}

/// The key of a hash's field in the order of the times at which fields end; its value is empty.
/// Without a field it is the place before all fields of the time.
pub(crate) fn field_by_end(times: u64, end_ms: u64, field: &[u8]) -> Vec<u8> {
    let mut key = with_id(times, 9 + field.len());
    key.push(TIMES_BY_END);
    key.extend_from_slice(&end_ms.to_be_bytes());
    key.extend_from_slice(field);
    key
}

/// The time and the field in the key that [`field_by_end`] made.
pub(crate) fn field_by_end_of(key: &[u8]) -> Option<(u64, &[u8])> {
    let end = key.get(ID_BYTES + 1..ID_BYTES + 9)?.try_into().ok()?;
    Some((u64::from_be_bytes(end), &key[ID_BYTES + 9..]))
}

/// The front of all times of a hash by field, or by time.
pub(crate) fn times_prefix(times: u64, by_end: bool) -> Vec<u8> {
    let mut key = with_id(times, 1);
    key.push(if by_end { TIMES_BY_END } else { TIMES_BY_FIELD });
    key
}

/// The key of a set's member. A hash stands before it, so that a random place in the key order is
/// a random member.
pub(crate) fn set_member(id: u64, member: &[u8]) -> Vec<u8> {
    let mut key = with_id(id, 4 + member.len());
    key.extend_from_slice(&((xxh3_64(member) >> 32) as u32).to_be_bytes());
    key.extend_from_slice(member);
    key
}

/// The place of a random member: that of hash `hash`.
pub(crate) fn set_place(id: u64, hash: u32) -> Vec<u8> {
    let mut key = with_id(id, 4);
    key.extend_from_slice(&hash.to_be_bytes());
    key
}

/// The member in a set's member key.
pub(crate) fn set_member_of(key: &[u8]) -> &[u8] {
    key.get(ID_BYTES + 4..).unwrap_or_default()
}

/// The key of a list's element.
pub(crate) fn element(id: u64, place: u64) -> Vec<u8> {
    let mut key = with_id(id, 8);
    key.extend_from_slice(&place.to_be_bytes());
    key
}

/// The key of a sorted set's member, whose value is its score.
pub(crate) fn zset_member(id: u64, member: &[u8]) -> Vec<u8> {
    let mut key = with_id(id, 1 + member.len());
    key.push(ZSET_BY_MEMBER);
    key.extend_from_slice(member);
    key
}

/// The member in the key that [`zset_member`] made.
pub(crate) fn zset_member_of(key: &[u8]) -> &[u8] {
    key.get(ID_BYTES + 1..).unwrap_or_default()
}

/// The key of a sorted set's member in the order of scores; its value is empty. Without a member
/// it is the place before all members of the score.
pub(crate) fn zset_scored(id: u64, score: f64, member: &[u8]) -> Vec<u8> {
    let mut key = with_id(id, 9 + member.len());
    key.push(ZSET_BY_SCORE);
    key.extend_from_slice(&order_score(score).to_be_bytes());
    key.extend_from_slice(member);
    key
}

/// The score and the member in the key that [`zset_scored`] made.
pub(crate) fn zset_scored_of(key: &[u8]) -> Option<(f64, &[u8])> {
    let score = key.get(ID_BYTES + 1..ID_BYTES + 9)?.try_into().ok()?;
    Some((score_of(u64::from_be_bytes(score)), &key[ID_BYTES + 9..]))
}

/// The front of all keys by member, or by score.
pub(crate) fn zset_prefix(id: u64, by_score: bool) -> Vec<u8> {
    let mut key = with_id(id, 1);
    key.push(if by_score { ZSET_BY_SCORE } else { ZSET_BY_MEMBER });
    key
}

/// A number whose order among `u64` is that of the score among floats. Scores are never NaN, and
/// -0 is 0.
fn order_score(score: f64) -> u64 {
    // Adding 0 makes -0 to 0 and leaves everything else.
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

fn score_of(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

/// The work key of a collection whose members are to be reclaimed.
pub(crate) fn reclaim(id: u64) -> Vec<u8> {
    let mut key = vec![WORK_RECLAIM];
    key.extend_from_slice(&id.to_be_bytes());
    key
}

/// The collection in a key that [`reclaim`] made.
pub(crate) fn reclaim_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?))
}

/// The work key of a key that ends at `expires_ms`.
pub(crate) fn expiry(expires_ms: u64, of: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + of.len());
    key.push(WORK_EXPIRY);
    key.extend_from_slice(&expires_ms.to_be_bytes());
    key.extend_from_slice(of);
    key
}

/// The work key of a hash of which a field may end at `end_ms`.
pub(crate) fn fields_due(end_ms: u64, of: &[u8]) -> Vec<u8> {
    let mut key = expiry(end_ms, of);
    key[0] = WORK_FIELDS;
    key
}

/// The time and the key in a key that [`expiry`] or [`fields_due`] made.
pub(crate) fn expiry_of(key: &[u8]) -> Option<(u64, &[u8])> {
    Some((u64::from_be_bytes(key.get(1..9)?.try_into().ok()?), &key[9..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_have_their_golden_bytes() {
        let id = [0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(field(0x0102, b"f"), [&id[..], b"f"].concat());
        assert_eq!(element(0x0102, 1 << 63), [&id[..], &[0x80, 0, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(zset_member(0x0102, b"m"), [&id[..], &[0], b"m"].concat());
        let one = [1, 0xBF, 0xF0, 0, 0, 0, 0, 0, 0, b'm'];
        assert_eq!(zset_scored(0x0102, 1.0, b"m"), [&id[..], &one].concat());
        let set = set_member(0x0102, b"a");
        assert_eq!(set, [&id[..], &[0xE6, 0xC6, 0x32, 0xB6], b"a"].concat());
        assert_eq!(reclaim(0x0102), [&[0][..], &id].concat());
        assert_eq!(expiry(0x0102, b"k"), [&[1][..], &id, b"k"].concat());
        assert_eq!(fields_due(0x0102, b"k"), [&[2][..], &id, b"k"].concat());
        assert_eq!(time_of_field(0x0102, b"f"), [&id[..], &[0], b"f"].concat());
        assert_eq!(encode_time(0x0102), [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(field_by_end(0x0102, 0x0102, b"f"), [&id[..], &[1], &id, b"f"].concat());
    }

    proptest! {
        #[test]
        fn scores_keep_their_order(a in any::<f64>(), b in any::<f64>()) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(order_score(a).cmp(&order_score(b)), a.partial_cmp(&b).unwrap());
            prop_assert_eq!(score_of(order_score(a)), a);
        }

        #[test]
        fn members_are_read_back(id in any::<u64>(), m in prop::collection::vec(any::<u8>(), 0..20)) {
            let (hash, set) = (field(id, &m), set_member(id, &m));
            let (zset, scored) = (zset_member(id, &m), zset_scored(id, -1.5, &m));
            let mark = expiry(id, &m);
            let (time, ending) = (time_of_field(id, &m), field_by_end(id, 7, &m));
            prop_assert_eq!(time_of_field_of(&time), &m[..]);
            prop_assert_eq!(decode_time(&encode_time(id)), id);
            prop_assert_eq!(field_by_end_of(&ending), Some((7, &m[..])));
            let due = fields_due(id, &m);
            prop_assert_eq!(expiry_of(&due), Some((id, &m[..])));
            prop_assert!(time.starts_with(&times_prefix(id, false)));
            prop_assert!(ending.starts_with(&times_prefix(id, true)));
            prop_assert_eq!(field_of(&hash), &m[..]);
            prop_assert_eq!(set_member_of(&set), &m[..]);
            prop_assert_eq!(zset_member_of(&zset), &m[..]);
            prop_assert_eq!(zset_scored_of(&scored), Some((-1.5, &m[..])));
            prop_assert_eq!(expiry_of(&mark), Some((id, &m[..])));
            prop_assert_eq!(reclaim_of(&reclaim(id)), Some(id));
        }
    }
}
