//! HyperLogLogs: estimates of how many different elements were added. They are strings in Redis'
//! own form, so that a value may be moved from one to the other.

mod estimate;
mod registers;

use self::registers::{Corrupt, HyperLogLog, Registers};
use super::{Context, Done, is_word};
use crate::{
    encode::{Edited, Entry, Kind},
    fault::Fault,
    key_event::KeyEvent,
    resp::Args,
};

const NO_HYPERLOGLOG: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
const CORRUPT: &str = "INVALIDOBJ Corrupted HLL object detected";

/// The elements of a collection that take as long as the registers of a HyperLogLog.
const ELEMENTS_OF_REGISTERS: u64 = 100;

/// The elements of a collection that take as long as adding an element to a sparse HyperLogLog.
const ELEMENTS_OF_ADDITION: u64 = 10;

impl From<Corrupt> for Fault {
    fn from(_: Corrupt) -> Self {
        CORRUPT.into()
    }
}

/// The HyperLogLog that a string is.
fn parse(entry: &Entry) -> Result<HyperLogLog, Fault> {
    HyperLogLog::parse(entry.bytes()).ok_or_else(|| NO_HYPERLOGLOG.into())
}

fn put(
    context: &mut Context<'_, '_>,
    key: &[u8],
    before: Option<&Entry>,
    value: &HyperLogLog,
) -> Done {
    let expires = before.map_or(0, |before| before.expires_ms);
    let mut string = Edited::empty(value.bytes().len(), expires);
    string.extend(value.bytes());
    context.txn.put_edited(key, before, string)?;
    Ok(())
}

/// The longest sparse form, in bytes with its header.
fn sparse_max(context: &Context<'_, '_>) -> usize {
    let bytes = context.server.remembered.number("hll-sparse-max-bytes");
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// `PFADD`.
pub(super) fn pfadd(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let key = args.at(1);
    context.check_length((args.len() - 2) as u64 * ELEMENTS_OF_ADDITION)?;
    let before = context.edit(key, Kind::String)?;
    let mut value = before.as_ref().map_or_else(|| Ok(HyperLogLog::new()), parse)?;
    let mut changed = before.is_none();
    let sparse_max = sparse_max(context);
    for element in args.iter_from(2) {
        changed |= value.add(element, sparse_max)?;
    }
    if changed {
        value.forget_estimate();
        put(context, key, before.as_ref(), &value)?;
        context.txn.notify(KeyEvent::string("pfadd"), key);
    }
    context.out.int(changed.into());
    Ok(())
}

/// The registers of several HyperLogLogs together, and true if one of them is dense.
fn merge<'a>(
    context: &mut Context<'_, '_>,
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<(Registers, bool), Fault> {
    context.check_length(keys.len() as u64 * ELEMENTS_OF_REGISTERS)?;
    let (mut registers, mut dense) = (Registers::new(), false);
    for key in keys {
        if let Some(entry) = context.read(key, Kind::String)? {
            let value = parse(&entry)?;
            dense |= value.is_dense();
            value.merge_into(&mut registers)?;
        }
    }
    Ok((registers, dense))
}

/// `PFCOUNT`. The estimate of one key is kept in its value.
pub(super) fn pfcount(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 2 {
        let (registers, _) = merge(context, args.iter_from(1))?;
        context.out.int(registers.estimate());
        return Ok(());
    }
    let Some(entry) = context.edit(args.at(1), Kind::String)? else {
        context.out.int(0);
        return Ok(());
    };
    let mut value = parse(&entry)?;
    let estimate = match value.kept_estimate() {
        Some(estimate) => estimate,
        None => {
            let estimate = value.estimate()?;
            value.keep_estimate(estimate);
            put(context, args.at(1), Some(&entry), &value)?;
            estimate
        }
    };
    context.out.int(estimate);
    Ok(())
}

/// `PFMERGE`.
pub(super) fn pfmerge(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let key = args.at(1);
    let (registers, dense) = merge(context, args.iter_from(1))?;
    let before = context.edit(key, Kind::String)?;
    let mut value = before.as_ref().map_or_else(|| Ok(HyperLogLog::new()), parse)?;
    if dense {
        value.make_dense()?;
    } else {
        // Each register that is set goes through the sparse form.
        context.check_length(registers.set() as u64 * ELEMENTS_OF_ADDITION)?;
    }
    value.raise(&registers, sparse_max(context))?;
    value.forget_estimate();
    put(context, key, before.as_ref(), &value)?;
    context.txn.notify(KeyEvent::string("pfadd"), key);
    context.out.ok();
    Ok(())
}

/// `PFDEBUG`: what is in a HyperLogLog.
pub(super) fn pfdebug(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (part, key) = (args.at(1), args.at(2));
    let Some(entry) = context.edit(key, Kind::String)? else {
        return Err("ERR The specified key does not exist".into());
    };
    let mut value = parse(&entry)?;
    let (was_dense, is) = (value.is_dense(), |word| is_word(part, word));
    if is("encoding") {
        context.out.simple(if was_dense { "dense" } else { "sparse" });
    } else if is("decode") {
        if was_dense {
            return Err("ERR HLL encoding is not sparse".into());
        }
        context.out.bulk(value.describe().as_bytes());
    } else if is("getreg") || is("todense") {
        value.make_dense()?;
        if !was_dense {
            put(context, key, Some(&entry), &value)?;
        }
        if is("todense") {
            context.out.int((!was_dense).into());
            return Ok(());
        }
        let mut registers = Registers::new();
        value.merge_into(&mut registers)?;
        context.out.array(registers.all().len());
        registers.all().iter().for_each(|register| context.out.int((*register).into()));
    } else {
        let part = String::from_utf8_lossy(part);
        return Err(format!("ERR Unknown PFDEBUG subcommand '{part}'").into());
    }
    Ok(())
}

/// How many elements `PFSELFTEST` adds.
const TESTED_ELEMENTS: u32 = 100_000;

/// How far an estimate may be off, as a part of the number: five times the standard error of
/// 1.04 / sqrt(16384).
const TESTED_ERROR: f64 = 5.0 * 1.04 / 128.0;

/// `PFSELFTEST`: adds elements and looks at the estimates.
pub(super) fn pfselftest(context: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let mut value = HyperLogLog::new();
    for n in 1..=TESTED_ELEMENTS {
        value.add(&n.to_le_bytes(), sparse_max(context))?;
        if n.is_power_of_two() || n == TESTED_ELEMENTS {
            let (estimate, number) = (value.estimate()? as f64, f64::from(n));
            if (estimate - number).abs() > (number * TESTED_ERROR).max(1.0) {
                return Err(format!("TESTFAILED {n} elements are estimated at {estimate}").into());
            }
        }
    }
    context.out.ok();
    Ok(())
}
