//! `OBJECT`: what Redis would say of how a value is kept. The encodings are those that Redis 7.0
//! would choose for the value with its default settings; nothing here is kept in them.

use super::{Context, Done, NO_SUCH_KEY, connection::wrong_part_arity, help, is_word};
use crate::{
    encode::{Entry, Kind, Meta, member},
    fault::Fault,
    resp::{Args, number::parse_i64},
};

/// Redis's limits of the short forms: bytes of a string beside its object; fields of a hash and
/// members of a sorted set in a listpack, and bytes of each; members of a set of integers.
const EMBEDDED_BYTES: usize = 44;
const LISTPACK_FIELDS: u64 = 512;
const LISTPACK_MEMBERS: u64 = 128;
const LISTPACK_BYTES: usize = 64;
const INTSET_MEMBERS: u64 = 512;

const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not \
                            tracked. Please note that when switching between policies at runtime \
                            LRU and LFU data will take some time to adjust.";

/// `OBJECT` and its parts.
pub(super) fn object(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1);
    if is_word(part, "help") && args.len() == 2 {
        help::write("OBJECT", help::OBJECT, context.out);
        return Ok(());
    }
    let Some(key) = args.get(2) else { return Err(wrong_part_arity(args)) };
    let Some(entry) = context.txn.read(key)? else {
        context.out.null();
        return Ok(());
    };
    if is_word(part, "encoding") {
        let encoding = encoding(context, &entry)?;
        context.out.bulk(encoding.as_bytes());
    } else if is_word(part, "refcount") {
        context.out.int(1);
    } else if is_word(part, "idletime") {
        // When a key was read last is not kept.
        context.out.int(0);
    } else {
        return Err(NO_FREQUENCY.into());
    }
    Ok(())
}

pub(super) fn encoding(context: &Context<'_, '_>, entry: &Entry) -> Result<&'static str, Fault> {
    if entry.kind == Kind::String {
        let bytes = entry.bytes();
        return Ok(match bytes.len() {
            ..=20 if parse_i64(bytes).is_some() => "int",
            ..=EMBEDDED_BYTES => "embstr",
            _ => "raw",
        });
    }
    let meta = context.txn.meta(entry)?;
    let is_short = |bytes: &[u8]| bytes.len() <= LISTPACK_BYTES;
    let (is_small, names) = match entry.kind {
        Kind::String => return Err(NO_SUCH_KEY.into()),
        Kind::List => return Ok("quicklist"),
        Kind::Hash => {
            let fits =
                |key: &[u8], value: &[u8]| is_short(member::field_of(key)) && is_short(value);
            (all(context, &meta, LISTPACK_FIELDS, fits)?, ["listpack", "hashtable"])
        }
        Kind::Zset => {
            // The members by themselves come first; as many again follow by their scores.
            let fits = |key: &[u8], _: &[u8]| is_short(member::zset_member_of(key));
            (all(context, &meta, LISTPACK_MEMBERS, fits)?, ["listpack", "skiplist"])
        }
        Kind::Stream => (false, ["stream"; 2]),
        Kind::Set => {
            let fits = |key: &[u8], _: &[u8]| parse_i64(member::set_member_of(key)).is_some();
            (all(context, &meta, INTSET_MEMBERS, fits)?, ["intset", "hashtable"])
        }
    };
    Ok(names[usize::from(!is_small)])
}

/// Returns true if a collection has at most this number of members, and `fits` holds for each.
fn all(
    context: &Context<'_, '_>,
    meta: &Meta,
    most: u64,
    fits: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<bool, Fault> {
    if meta.count > most {
        return Ok(false);
    }
    for pair in context.txn.members(&member::prefix(meta.id))?.take(meta.count as usize) {
        let (key, value) = pair?;
        if !fits(&key, &value) {
            return Ok(false);
        }
    }
    Ok(true)
}
