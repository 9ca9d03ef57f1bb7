//! Keys that end as fast as they come: what the server keeps of them, in memory and on the disk.

use std::{
    io::Write as _,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::live::{Client, Live, Program, put};

const USAGE: &str = "\
usage: cargo xtask expiries [--server PATH] [--rate N] [--alive N] [--minutes N] [--memory SIZE] [--json]

Sets --rate keys a second (default 30000), each new and of 64 bytes, whose times to live are such that --alive
of them (default 100000) live at a time, for --minutes (default 10). Each ten seconds it prints the server's
memory, the bytes of its data, the keys that it counts and those that it has removed. Fails if memory or data
of the last third are more than a fifth over those of the second, or if keys are removed more slowly than
they end.";

/// How often keys are sent: what is sent at once is a tenth of a second's keys.
const TICKS: u64 = 10;

/// The reply to each command.
const OK: &[u8] = b"+OK\r\n";

/// How often it looks.
const LOOK: Duration = Duration::from_secs(10);

/// The most that the last third may be over the second: what compaction leaves goes up and down.
const MOST_GROWTH: f64 = 1.2;

struct Options {
    program: Program,
    rate: u64,
    alive: u64,
    minutes: f64,
    memory: String,
    json: bool,
}

/// What is seen at a time.
struct Seen {
    rss: u64,
    data: u64,
    keys: i64,
    expired: u64,
    sent: u64,
}

/// Runs the load; see the usage text.
///
/// # Errors
/// If an argument is unknown, the server does not start, or what it keeps grows.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let live = Live::start(&options.program, &["--memory", &options.memory])?;
    let seen = load(&live, &options)?;
    judge(&seen, &options)
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        program: Program::Rhumb(crate::redis_bench::release_binary()?),
        rate: 30_000,
        alive: 100_000,
        minutes: 10.0,
        memory: "64MiB".to_owned(),
        json: false,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--server" => options.program = Program::Rhumb(value()?.into()),
            "--rate" => options.rate = value()?.parse().context("--rate")?,
            "--alive" => options.alive = value()?.parse().context("--alive")?,
            "--minutes" => options.minutes = value()?.parse().context("--minutes")?,
            "--memory" => value()?.clone_into(&mut options.memory),
            "--json" => options.json = true,
            _ => bail!("{USAGE}"),
        }
    }
    ensure!(options.rate >= TICKS && options.minutes > 0.0, "{USAGE}");
    Ok(options)
}

/// Sends keys at an even rate and looks at the server now and then.
fn load(live: &Live, options: &Options) -> Result<Vec<Seen>> {
    let (mut writer, mut watcher) =
        (Client::connect(live.address())?, Client::connect(live.address())?);
    let ttl_ms = (options.alive * 1000 / options.rate).max(1).to_string();
    let value = [b'v'; 64];
    let began = Instant::now();
    let (mut seen, mut sent) = (Vec::new(), 0_u64);
    let (mut next_look, mut bytes) = (began + LOOK, Vec::new());
    // All commands are the same but for the number of the key.
    let mut command = Vec::new();
    put(&mut command, &[&b"SET"[..], b"session:000000000000", &value, b"PX", ttl_ms.as_bytes()]);
    let digits_at = command.windows(12).position(|some| some == [b'0'; 12]).context("a number")?;
    while began.elapsed().as_secs_f64() < options.minutes * 60.0 {
        let due = began
            + Duration::from_millis(1000 / TICKS) * u32::try_from(sent * TICKS / options.rate)?;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let some = options.rate / TICKS;
        bytes.clear();
        for number in sent..sent + some {
            let digits = format!("{number:012}");
            command[digits_at..digits_at + digits.len()].copy_from_slice(digits.as_bytes());
            bytes.extend_from_slice(&command);
        }
        writer.socket().write_all(&bytes)?;
        writer.expect(&OK.repeat(usize::try_from(some)?))?;
        sent += some;
        if Instant::now() >= next_look {
            next_look += LOOK;
            let one = look(live, &mut watcher, sent)?;
            show(&one, began, options.json);
            seen.push(one);
        }
    }
    Ok(seen)
}

fn look(live: &Live, watcher: &mut Client, sent: u64) -> Result<Seen> {
    Ok(Seen {
        rss: live.figure("VmRSS")? << 10,
        data: live.data_bytes(),
        keys: watcher.call(&["DBSIZE"])?.int()?,
        expired: watcher.info("expired_keys")?,
        sent,
    })
}

fn show(seen: &Seen, began: Instant, as_json: bool) {
    let seconds = began.elapsed().as_secs();
    if as_json {
        let Seen { rss, data, keys, expired, sent } = seen;
        let line = json!({"seconds": seconds, "sent": sent, "rss": rss, "data": data,
            "dbsize": keys, "expired_keys": expired});
        println!("{line}");
        return;
    }
    println!(
        "{seconds:5} s  sent {:10}  ended {:10}  keys {:8}  memory {:5} MiB  data {:5} MiB",
        seen.sent,
        seen.expired,
        seen.keys,
        seen.rss >> 20,
        seen.data >> 20
    );
}

/// Compares the last third with the second.
fn judge(seen: &[Seen], options: &Options) -> Result<()> {
    let third = seen.len() / 3;
    ensure!(third > 0, "too short to say: it looks each {} s", LOOK.as_secs());
    #[expect(clippy::cast_precision_loss, reason = "figures to look at")]
    let growth = |figure: fn(&Seen) -> u64| {
        let mean = |part: &[Seen]| part.iter().map(figure).sum::<u64>() as f64 / part.len() as f64;
        mean(&seen[seen.len() - third..]) / mean(&seen[third..seen.len() - third])
    };
    let (memory, data) = (growth(|one| one.rss), growth(|one| one.data));
    let kept = |one: &Seen| one.sent.saturating_sub(one.expired);
    let (first, last) = (&seen[third], &seen[seen.len() - 1]);
    let seconds = LOOK.as_secs() * (seen.len() - 1 - third) as u64;
    let a_second = |from: u64, to: u64| (to - from) / seconds.max(1);
    let (came, ended) = (a_second(first.sent, last.sent), a_second(first.expired, last.expired));
    println!(
        "{}",
        if options.json {
            json!({"memory_growth": memory, "data_growth": data, "came_a_second": came,
                "ended_a_second": ended, "kept_first": kept(first), "kept_last": kept(last)})
            .to_string()
        } else {
            format!(
                "{came} keys came and {ended} were removed a second; the last third against the \
                 second: memory {memory:.2}, data {data:.2}; not yet removed {} then {}",
                kept(first),
                kept(last)
            )
        }
    );
    ensure!(memory <= MOST_GROWTH && data <= MOST_GROWTH, "what the server keeps grows");
    ensure!(kept(last) <= kept(first) + options.alive, "keys end faster than they are removed");
    Ok(())
}
