//! Values as bytes: `DUMP` and `RESTORE`.

use super::{Context, Done, SYNTAX, integer, is_word};
use crate::{
    effort,
    encode::{Entry, Kind},
    fault::Fault,
    key_event::KeyEvent,
    rdb::{self, Items, Source, ValueBytes},
    resp::Args,
    values::{self, BAD_DATA, ValueWriter},
};

/// Bytes of a payload that count as one element for the time that it takes: a small member with
/// its length.
const PAYLOAD_BYTES_PER_ELEMENT: usize = 8;

/// A value as `DUMP` gives it, of at most `bytes_max` bytes; none if all of it has ended, as the
/// fields of a hash may.
///
/// # Errors
///
/// If it is larger, if no dump has values of its type, and from the engine.
pub(super) fn payload(
    context: &Context<'_, '_>,
    entry: &Entry,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, Fault> {
    let kind = values::kind_of(entry);
    context.check_bytes(entry.bytes().len())?;
    context.check_length(values::items_of(&context.txn, entry)?.0)?;
    if entry.kind == Kind::String {
        // A long one is copied once.
        check_size(entry.bytes().len(), bytes_max)?;
        let mut payload = rdb::string_value(entry.bytes());
        rdb::finish_payload(&mut payload);
        return Ok(Some(payload));
    }
    let mut value = ValueBytes::new(kind);
    values::read(&context.txn, entry, |item| -> Result<(), Fault> {
        value.push(&item);
        check_size(value.len(), bytes_max)
    })?;
    if value.is_empty() {
        return Ok(None);
    }
    let mut payload = Vec::with_capacity(value.len() + 32);
    value.finish(&mut payload).map_err(|error| error.to_string())?;
    rdb::finish_payload(&mut payload);
    Ok(Some(payload))
}

fn check_size(bytes: usize, bytes_max: usize) -> Done {
    if bytes > bytes_max {
        return Err(format!("ERR the value has more than {bytes_max} bytes").into());
    }
    Ok(())
}

/// `DUMP`.
pub(super) fn dump(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let Some(entry) = context.txn.read(args.at(1))? else {
        context.out.null();
        return Ok(());
    };
    let bytes_max = context.server.limits.read().reply_bytes;
    let payload = payload(context, &entry, bytes_max)?;
    context.out.bulk_or_null(payload.as_deref());
    effort::free(payload.unwrap_or_default());
    Ok(())
}

/// What `RESTORE` is asked besides the value.
struct Options {
    replace: bool,
    /// The time to live is a time.
    is_absolute: bool,
}

fn options(args: Args<'_>) -> Result<Options, Fault> {
    let mut options = Options { replace: false, is_absolute: false };
    let (mut idle, mut frequency) = (false, false);
    let mut at = 4;
    while let Some(option) = args.get(at) {
        match args.get(at + 1) {
            _ if is_word(option, "replace") => options.replace = true,
            _ if is_word(option, "absttl") => options.is_absolute = true,
            Some(seconds) if is_word(option, "idletime") && !frequency => {
                if integer(seconds)? < 0 {
                    return Err("ERR Invalid IDLETIME value, must be >= 0".into());
                }
                (idle, at) = (true, at + 1);
            }
            Some(count) if is_word(option, "freq") && !idle => {
                if !(0..=255).contains(&integer(count)?) {
                    return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
                }
                (frequency, at) = (true, at + 1);
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    Ok(options)
}

/// The value in a payload, of at most `bytes_max` bytes once it is unpacked.
fn value_of(
    context: &Context<'_, '_>,
    payload: &[u8],
    bytes_max: usize,
) -> Result<ValueWriter, Fault> {
    let bytes = rdb::open_payload(payload);
    let bytes = bytes.ok_or("ERR DUMP payload version or checksum are wrong")?;
    let mut source = Source::new(bytes, false);
    let bad = |_| Fault::from(BAD_DATA);
    let type_byte = source.byte().map_err(bad)?;
    let mut items = Items::begin(type_byte, &mut source).map_err(bad)?;
    let mut value = ValueWriter::begin(&context.txn, items.kind)?;
    while let Some(item) = items.next(&mut source).map_err(bad)? {
        value.push(&context.txn, item)?;
        if value.bytes() > bytes_max {
            return Err(format!("ERR the value has more than {bytes_max} bytes").into());
        }
    }
    value.check(&context.txn)?;
    if source.offset() < bytes.len() as u64 {
        return Err(BAD_DATA.into());
    }
    Ok(value)
}

/// `RESTORE`.
pub(super) fn restore(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (key, payload) = (args.at(1), args.at(3));
    let Options { replace, is_absolute } = options(args)?;
    if !replace && context.txn.exists(key)? {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let ttl = integer(args.at(2))?;
    let ttl = u64::try_from(ttl).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    context.check_length((payload.len() / PAYLOAD_BYTES_PER_ELEMENT) as u64)?;
    let bytes_max = context.server.limits.read().query_bytes;
    let value = value_of(context, payload, bytes_max)?;
    let now = context.txn.now_ms;
    let ends = match ttl {
        0 => 0,
        ttl if is_absolute => ttl,
        ttl => now.saturating_add(ttl),
    };
    let before = context.txn.edit(key)?;
    if ends != 0 && ends <= now {
        // It has ended already.
        if let Some(before) = before {
            context.txn.delete(key, &before)?;
            context.txn.notify(KeyEvent::generic("del"), key);
        }
    } else {
        value.finish(&mut context.txn, key, before.as_ref(), ends)?;
        context.txn.notify(KeyEvent::generic("restore"), key);
    }
    context.out.ok();
    Ok(())
}
