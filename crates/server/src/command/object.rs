//! `OBJECT`: what Redis would say of how a value is kept. The encodings are those that Redis 7.2
//! would choose for the value with its settings; nothing here is kept in them.

use super::{Context, Done, NO_SUCH_KEY, connection::wrong_part_arity, help, is_word};
use crate::{
    encode::{Entry, Kind, Meta, member},
    fault::Fault,
    resp::{Args, number::parse_i64},
};

/// The longest string that Redis keeps beside its object, in bytes.
const EMBEDDED_BYTES: usize = 44;

/// Redis has one object for all keys with the same number below this one.
const SHARED_NUMBERS: i64 = 10_000;

/// The references that Redis says such an object has.
const SHARED_REFERENCES: i64 = i32::MAX as i64;

/// The bytes of a list in one block for each of the settings -1 to -5 of `list-max-listpack-size`.
const BLOCK_BYTES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The bytes of a list in one block if the setting is a number of elements.
const COUNTED_BLOCK_BYTES: u64 = 8 << 10;

/// Bytes that a block of a list has besides its elements.
const BLOCK_HEADER_BYTES: u64 = 7;

const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not \
                            tracked. Please note that when switching between policies at runtime \
                            LRU and LFU data will take some time to adjust.";

const NO_IDLE_TIME: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please \
                            note that when switching between policies at runtime LRU and LFU data \
                            will take some time to adjust.";

/// What Redis says of a key that was not read for a while: the frequency of one that is new.
const NEW_FREQUENCY: i64 = 5;

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
        context.out.int(references(&entry));
    } else {
        // When and how often a key was read is not kept.
        let counts = context.server.remembered.text("maxmemory-policy").ends_with("-lfu");
        match is_word(part, "idletime") {
            true if counts => return Err(NO_IDLE_TIME.into()),
            true => context.out.int(0),
            false if counts => context.out.int(NEW_FREQUENCY),
            false => return Err(NO_FREQUENCY.into()),
        }
    }
    Ok(())
}

/// How often Redis would use the object: it has one of each small number, for all keys.
fn references(entry: &Entry) -> i64 {
    let number = Some(entry).filter(|entry| entry.kind == Kind::String && !entry.is_raw());
    match number.and_then(|entry| parse_i64(entry.bytes())) {
        Some(0..SHARED_NUMBERS) => SHARED_REFERENCES,
        _ => 1,
    }
}

pub(super) fn encoding(context: &Context<'_, '_>, entry: &Entry) -> Result<&'static str, Fault> {
    if entry.kind == Kind::String {
        let bytes = entry.bytes();
        return Ok(match bytes.len() {
            _ if entry.is_raw() => "raw",
            ..=20 if parse_i64(bytes).is_some() => "int",
            ..=EMBEDDED_BYTES => "embstr",
            _ => "raw",
        });
    }
    let meta = context.txn.meta(entry)?;
    let setting = |name| context.server.remembered.number(name).unsigned_abs();
    let is_short = |bytes: &[u8], most: u64| bytes.len() as u64 <= most;
    let (is_small, names) = match entry.kind {
        Kind::String => return Err(NO_SUCH_KEY.into()),
        Kind::List => (is_one_block(context, &meta)?, ["listpack", "quicklist"]),
        Kind::Hash => {
            let most = setting("hash-max-listpack-value");
            let fits = |key: &[u8], value: &[u8]| {
                is_short(member::field_of(key), most) && is_short(value, most)
            };
            let count = setting("hash-max-listpack-entries");
            let small = if meta.times == 0 { "listpack" } else { "listpackex" };
            (all(context, &meta, count, fits)?, [small, "hashtable"])
        }
        Kind::Zset => {
            let most = setting("zset-max-listpack-value");
            // The members by themselves come first; as many again follow by their scores.
            let fits = |key: &[u8], _: &[u8]| is_short(member::zset_member_of(key), most);
            let count = setting("zset-max-listpack-entries");
            (all(context, &meta, count, fits)?, ["listpack", "skiplist"])
        }
        Kind::Stream => (false, ["stream"; 2]),
        Kind::Set => {
            let is_integer = |key: &[u8], _: &[u8]| parse_i64(member::set_member_of(key)).is_some();
            if all(context, &meta, setting("set-max-intset-entries"), is_integer)? {
                return Ok("intset");
            }
            let most = setting("set-max-listpack-value");
            let fits = |key: &[u8], _: &[u8]| is_short(member::set_member_of(key), most);
            let count = setting("set-max-listpack-entries");
            (all(context, &meta, count, fits)?, ["listpack", "hashtable"])
        }
    };
    Ok(names[usize::from(!is_small)])
}

/// Bytes that an element takes in a block of a list.
fn block_bytes(element: &[u8]) -> u64 {
    let number = parse_i64(element).filter(|_| element.len() < 21);
    let Some(number) = number else {
        let (head, len) = match element.len() {
            len @ ..64 => (1, len),
            len @ ..4096 => (2, len),
            len => (5, len),
        };
        // The length stands after the element once more, seven bits in a byte.
        let bits = usize::BITS - (head + len).leading_zeros();
        return (head + len) as u64 + u64::from(bits.div_ceil(7).max(1));
    };
    match number {
        0..=127 => 2,
        -4096..=4095 => 3,
        -32768..=32767 => 4,
        -8_388_608..=8_388_607 => 5,
        -2_147_483_648..=2_147_483_647 => 6,
        _ => 10,
    }
}

/// Returns true if Redis would keep a list in one block.
fn is_one_block(context: &Context<'_, '_>, meta: &Meta) -> Result<bool, Fault> {
    let setting = context.server.remembered.number("list-max-listpack-size");
    let most = if setting >= 0 {
        if meta.count > setting.unsigned_abs().max(1) {
            return Ok(false);
        }
        COUNTED_BLOCK_BYTES
    } else {
        let at = usize::try_from(setting.unsigned_abs() - 1).unwrap_or(usize::MAX);
        BLOCK_BYTES[at.min(BLOCK_BYTES.len() - 1)]
    };
    // Every element takes two bytes at least.
    if meta.count > most / 2 {
        return Ok(false);
    }
    context.check_length(meta.count)?;
    let mut bytes = BLOCK_HEADER_BYTES;
    for pair in context.txn.members(&member::prefix(meta.id))?.take(meta.count as usize) {
        bytes += block_bytes(&pair?.1);
        if bytes > most {
            return Ok(false);
        }
    }
    Ok(true)
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
    context.check_length(meta.count)?;
    for pair in context.txn.members(&member::prefix(meta.id))?.take(meta.count as usize) {
        let (key, value) = pair?;
        if !fits(&key, &value) {
            return Ok(false);
        }
    }
    Ok(true)
}
