//! `MEMORY`: what a key takes, by reading it, and what the server takes.

use super::{Context, Done, NOT_AN_INTEGER, SYNTAX, help, info, integer, is_word};
use crate::{
    encode::{Entry, Kind, member},
    fault::Fault,
    resp::Args,
    txn::Space,
};

/// Members that are read by default, as in Redis, and at most: some hundred microseconds' worth.
const SAMPLES_DEFAULT: u64 = 5;
const SAMPLES_MAX: u64 = 10_000;

/// What is counted for each entry of the engine besides its bytes: its lengths and its place.
const ENTRY_BYTES: u64 = 16;

/// `MEMORY` and its parts.
pub(super) fn memory(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = args.at(1);
    if is_word(part, "help") {
        help::write("MEMORY", help::MEMORY, context.out);
    } else if is_word(part, "usage") {
        return usage(context, args);
    } else if is_word(part, "stats") {
        stats(context);
    } else if is_word(part, "doctor") {
        context.out.verbatim(&doctor(context));
    } else if is_word(part, "malloc-stats") {
        context.out.verbatim("Stats not supported for the current allocator");
    } else {
        // The allocator gives back by itself what is free.
        context.out.ok();
    }
    Ok(())
}

/// How many members `MEMORY USAGE` is to read.
fn samples(args: Args<'_>) -> Result<u64, Fault> {
    let mut samples = SAMPLES_DEFAULT;
    let mut options = args.iter_from(3);
    while let Some(option) = options.next() {
        let value = options.next().filter(|_| is_word(option, "samples")).ok_or(SYNTAX)?;
        let number = integer(value).map_err(|_| NOT_AN_INTEGER)?;
        samples = u64::try_from(number).map_err(|_| SYNTAX)?;
        if samples == 0 {
            samples = u64::MAX;
        }
    }
    Ok(samples.min(SAMPLES_MAX))
}

fn usage(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (key, samples) = (args.at(2), samples(args)?);
    let Some(entry) = context.txn.read(key)? else {
        context.out.null();
        return Ok(());
    };
    let own = key.len() as u64 + entry.bytes().len() as u64 + ENTRY_BYTES;
    let members = members_bytes(context, &entry, samples)?;
    context.out.int(i64::try_from(own + members).unwrap_or(i64::MAX));
    Ok(())
}

/// About the bytes of a collection's members: the mean of those that are read, times their number.
fn members_bytes(context: &Context<'_, '_>, entry: &Entry, samples: u64) -> Result<u64, Fault> {
    if entry.kind == Kind::String {
        return Ok(0);
    }
    let meta = context.txn.meta(entry)?;
    context.check_length(samples.min(meta.count))?;
    let (from, to) = crate::txn::prefix_range(&member::prefix(meta.id));
    let scan = context.txn.scan(Space::Members, from, to, false)?.expecting(samples);
    let (mut bytes, mut read) = (0, 0);
    for pair in scan.take(usize::try_from(samples).unwrap_or(usize::MAX)) {
        let (key, value) = pair?;
        bytes += (key.len() + value.len()) as u64 + ENTRY_BYTES;
        read += 1;
    }
    // A sorted set has two entries for each member.
    let entries = if entry.kind == Kind::Zset { 2 * meta.count } else { meta.count };
    Ok(if read == 0 { 0 } else { (bytes as f64 / read as f64 * entries as f64) as u64 })
}

fn stats(context: &mut Context<'_, '_>) {
    let server = context.server;
    let engine = server.databases.engine.stats();
    let used = server.memory_bytes(&engine);
    let peak = server.metrics.memory_peak(used);
    let resident = info::resident_bytes(used);
    let clients = used.saturating_sub(engine.mapped_bytes + engine.read_buffer_bytes);
    let dataset = engine.memtable_bytes + engine.cache_bytes;
    let counts = [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", clients),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("overhead.total", used.saturating_sub(dataset)),
        ("dataset.bytes", dataset),
        ("allocator.allocated", used),
        ("allocator.active", engine.mapped_bytes.max(used)),
        ("allocator.resident", resident),
    ];
    let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let ratios = [
        ("dataset.percentage", share(dataset, used)),
        ("peak.percentage", share(used, peak)),
        ("rss-overhead.ratio", resident as f64 / used.max(1) as f64),
        ("fragmentation", resident as f64 / used.max(1) as f64),
    ];
    context.out.map(counts.len() + ratios.len() + 1);
    for (name, count) in counts {
        context.out.bulk(name.as_bytes());
        context.out.int(i64::try_from(count).unwrap_or(i64::MAX));
    }
    for (name, ratio) in ratios {
        context.out.bulk(name.as_bytes());
        context.out.double(ratio);
    }
    context.out.bulk(b"fragmentation.bytes");
    context.out.int(resident as i64 - used as i64);
}

/// What the resident memory may be above what is counted before it is said: allocators keep some.
const RESIDENT_RATIO_MAX: f64 = 2.0;

fn doctor(context: &Context<'_, '_>) -> String {
    let server = context.server;
    let engine = server.databases.engine.stats();
    let used = server.memory_bytes(&engine);
    let resident = info::resident_bytes(used);
    let mut text = String::new();
    if resident as f64 > RESIDENT_RATIO_MAX * used as f64 {
        text += &format!(
            "The process has {resident} bytes of memory, and the server counts {used}: the \
             allocator keeps what was freed.\n"
        );
    }
    let unsent = server.clients.unsent_bytes.load(std::sync::atomic::Ordering::Relaxed) as u64;
    if unsent > used / 4 {
        text += &format!("Clients have not taken {unsent} bytes of replies.\n");
    }
    if text.is_empty() {
        text += "Nothing is wrong with the memory of this server.\n";
    }
    text
}
