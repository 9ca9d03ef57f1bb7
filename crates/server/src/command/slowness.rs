//! `SLOWLOG` and `LATENCY`: what took long, and how long commands take.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    COMMANDS, Command, Context, Done, Flags, connection::wrong_part_arity, help, integer, is_word,
};
use crate::{
    clients::ClientInfo,
    fault::Fault,
    resp::{Args, Reply},
    server::Server,
    slow::Series,
};

/// What is shown in the place of an argument that may be a password.
const REDACTED: &[u8] = b"(redacted)";

/// How many entries `SLOWLOG GET` gives by default.
const ENTRIES_DEFAULT: usize = 10;

/// Returns true for an argument that is not to be shown.
pub(super) fn is_secret(command: &Command, args: Args<'_>, at: usize) -> bool {
    let word = |at: usize| args.get(at).unwrap_or_default();
    match command.name {
        "acl" => at > 1 && ["setuser", "getuser", "deluser"].iter().any(|w| is_word(word(1), w)),
        "config" => {
            let secrets = ["requirepass", "masterauth", "masteruser"];
            at > 2 && is_word(word(1), "set") && secrets.iter().any(|w| is_word(word(at - 1), w))
        }
        "hello" => (1..at).rev().take(2).any(|before| before > 1 && is_word(word(before), "auth")),
        "migrate" => {
            let is = |back: usize, w| at > back + 5 && is_word(word(at - back), w);
            is(1, "auth") || is(1, "auth2") || is(2, "auth2")
        }
        _ => false,
    }
}

/// Tells of a command that took this long, if it is to be told of; returns true if so.
#[inline]
pub(crate) fn note_slow(
    server: &Server,
    info: &ClientInfo,
    took: Duration,
    call: (&Command, Args<'_>),
) -> bool {
    let is_noted = server.slow.is_noted(took);
    if is_noted {
        note(server, info, took, call);
    }
    is_noted
}

#[cold]
fn note(server: &Server, info: &ClientInfo, took: Duration, (command, args): (&Command, Args<'_>)) {
    // What a transaction runs is told of by itself, and passwords not at all.
    if command.flags.has(Flags::RUNS_QUEUE) || command.name == "auth" {
        return;
    }
    let is_fast = command.flags.has(Flags::FAST);
    server.slow.monitor(if is_fast { "fast-command" } else { "command" }, took);
    if server.slow.is_logged(took) {
        let shown = (0..args.len())
            .map(|at| if is_secret(command, args, at) { REDACTED } else { args.at(at) });
        server.slow.log.add(took, shown, (&info.address, &info.name.lock()));
    }
}

/// `SLOWLOG` and its parts.
pub(super) fn slowlog(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (part, log) = (args.at(1), &context.server.slow.log);
    if is_word(part, "help") {
        help::write("SLOWLOG", help::SLOWLOG, context.out);
    } else if is_word(part, "len") {
        context.out.count(log.len());
    } else if is_word(part, "reset") {
        log.reset();
        context.out.ok();
    } else if args.len() > 3 {
        return Err(wrong_part_arity(args));
    } else {
        return slowlog_get(context, args.get(2));
    }
    Ok(())
}

fn slowlog_get(context: &mut Context<'_, '_>, most: Option<&[u8]>) -> Done {
    let most = match most.map(integer).transpose()? {
        None => ENTRIES_DEFAULT,
        Some(-1) => usize::MAX,
        Some(most) => {
            usize::try_from(most).map_err(|_| "ERR count should be greater than or equal to -1")?
        }
    };
    let (entries, out) = (context.server.slow.log.last(most), &mut *context.out);
    out.array(entries.len());
    for entry in entries {
        out.array(6);
        out.int(entry.id as i64);
        out.int(entry.at as i64);
        out.int(i64::try_from(entry.took.as_micros()).unwrap_or(i64::MAX));
        out.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| out.bulk(argument));
        out.bulk(entry.address.as_bytes());
        out.bulk(entry.name.as_bytes());
    }
    Ok(())
}

/// `LATENCY` and its parts.
pub(super) fn latency(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (part, monitor) = (args.at(1), &context.server.slow.monitor);
    let is = |word: &str| is_word(part, word);
    let event = || String::from_utf8_lossy(args.get(2).unwrap_or_default());
    if is("help") {
        help::write("LATENCY", help::LATENCY, context.out);
    } else if is("latest") {
        let all = monitor.all();
        context.out.array(all.len());
        for (event, series) in all {
            let last = series.samples().back();
            context.out.array(4);
            context.out.bulk(event.as_bytes());
            context.out.int(last.map_or(0, |sample| sample.at as i64));
            context.out.int(last.map_or(0, |sample| sample.ms as i64));
            context.out.int(series.max_ms as i64);
        }
    } else if is("history") {
        let series = monitor.series(&event()).unwrap_or_default();
        context.out.array(series.samples().len());
        for sample in series.samples() {
            context.out.array(2);
            context.out.int(sample.at as i64);
            context.out.int(sample.ms as i64);
        }
    } else if is("reset") {
        let is_one =
            |event: &str| args.len() == 2 || args.iter_from(2).any(|name| is_word(name, event));
        context.out.count(monitor.reset(is_one));
    } else if is("graph") {
        let series = monitor.series(&event()).ok_or_else(|| {
            Fault::from(format!("ERR No samples available for event '{}'", event()))
        })?;
        context.out.verbatim(&graph(&event(), &series));
    } else if is("doctor") {
        context.out.verbatim(&doctor(context.server));
    } else {
        histogram(context, args);
    }
    Ok(())
}

/// Columns of a graph, and the signs of its heights, the lowest first.
const COLUMNS_MAX: usize = 80;
const HEIGHTS: [char; 4] = ['_', '.', 'o', '#'];

/// How long ago, shortly.
fn ago(seconds: u64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The samples of an event as columns of one sign each, and below it how long ago each was.
fn graph(event: &str, series: &Series) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let skipped = series.samples().len().saturating_sub(COLUMNS_MAX);
    let samples: Vec<_> = series.samples().iter().skip(skipped).collect();
    let high = samples.iter().map(|sample| sample.ms).max().unwrap_or(0);
    let low = samples.iter().map(|sample| sample.ms).min().unwrap_or(0);
    let step = (high - low).max(1) as f64 / HEIGHTS.len() as f64;
    let height = |ms: u64| (((ms - low) as f64 / step) as usize).min(HEIGHTS.len() - 1);
    let line: String = samples.iter().map(|sample| HEIGHTS[height(sample.ms)]).collect();
    let times: Vec<Vec<char>> =
        samples.iter().map(|s| ago(now.saturating_sub(s.at)).chars().collect()).collect();
    let mut text =
        format!("{event} - high {high} ms, low {low} ms (all time high {} ms)\n", series.max_ms);
    text += &format!("{}\n{line}\n\n", "-".repeat(COLUMNS_MAX));
    for row in 0..times.iter().map(Vec::len).max().unwrap_or(0) {
        text.extend(times.iter().map(|time| time.get(row).copied().unwrap_or(' ')));
        text.push('\n');
    }
    text
}

fn doctor(server: &Server) -> String {
    if server.slow.monitor_ms() == 0 {
        return "Latency monitoring is off. CONFIG SET latency-monitor-threshold <milliseconds> \
                turns it on.\n"
            .to_owned();
    }
    let all = server.slow.monitor.all();
    if all.is_empty() {
        return "Nothing has taken longer than latency-monitor-threshold.\n".to_owned();
    }
    let mut text = String::from("These events took longer than latency-monitor-threshold:\n");
    for (at, (event, series)) in all.iter().enumerate() {
        let samples = series.samples();
        let mean =
            samples.iter().map(|sample| sample.ms).sum::<u64>() / samples.len().max(1) as u64;
        text += &format!(
            "{}. {event}: {} seconds with a long one, {mean} ms on average, {} ms at most.\n",
            at + 1,
            samples.len(),
            series.max_ms
        );
    }
    text + "SLOWLOG GET shows the commands. INFO's section Engine shows stalls of the disk.\n"
}

/// The slots that the names of `LATENCY HISTOGRAM` stand for: a command's name is that of its parts
/// as well.
fn slots_named(args: Args<'_>) -> Vec<usize> {
    if args.len() == 2 {
        return (0..COMMANDS.slots()).collect();
    }
    let mut found = Vec::new();
    for name in args.iter_from(2) {
        let Some(slot) = COMMANDS.slot_named(&name.to_ascii_lowercase()) else { continue };
        found.push(slot);
        if slot < COMMANDS.len() {
            found.extend(COMMANDS.parts(slot));
        }
    }
    found
}

/// `LATENCY HISTOGRAM`: how many calls took how long, by powers of two of microseconds.
fn histogram(context: &mut Context<'_, '_>, args: Args<'_>) {
    let stats = &context.server.metrics.by_command;
    let slots = slots_named(args).into_iter();
    let found: Vec<_> = slots.filter_map(|slot| Some((slot, stats.latencies(slot)?))).collect();
    let out: &mut Reply = context.out;
    out.map(found.len());
    for (slot, latencies) in found {
        // Buckets end at powers of two of nanoseconds: those of 2^(n + 10) stand for 2^n us.
        let counts: Vec<u64> = (0..31).map(|power| latencies.below(power + 10)).collect();
        let shown: Vec<(u32, u64)> = (0..).zip(counts).collect();
        let changes = |at: usize| at == 0 || shown[at].1 != shown[at - 1].1;
        let shown: Vec<(u32, u64)> = (0..shown.len())
            .filter(|at| shown[*at].1 > 0 && changes(*at))
            .map(|at| shown[at])
            .collect();
        out.bulk(COMMANDS.name(slot).as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.int(latencies.count() as i64);
        out.bulk(b"histogram_usec");
        out.map(shown.len());
        for (power, count) in shown {
            out.int(1 << power);
            out.int(count as i64);
        }
    }
}
