//! Queues on a server that is killed again and again: no acknowledged job is lost, and none that is
//! done comes again.

mod ledger;
mod own;
mod programs;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    ledger::{Ledger, Report},
    own::{Kind, Run},
};
use crate::{
    live::{self, Client, Live, Random},
    repository_root,
};

const USAGE: &str = "\
usage: cargo xtask queues [--server PATH | --redis] [--kills N] [--fsync WHEN] [--seed N] [--json] [QUEUE…]

Kills the server --kills times (default 5) at random moments and starts it again on its data, while jobs are
added to queues and taken from them: streams (a group, XREADGROUP, XACK, XAUTOCLAIM), lists (BLMOVE, LREM),
bullmq (Node) and celery (Python), or those that are named. Then no job whose adding was acknowledged may be
lost, none may come that nobody added, none may come again once it was acknowledged as done, and what a queue
gives out once it gives out once. Celery takes a job off its list before it notes that it has it, on any
server: each kill may cost it one job for each of its two connections.";

/// How many producers and consumers the queues have that this program runs itself.
const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;

/// A server lives this long between two kills, in milliseconds.
const LIVES_MS: (u64, u64) = (300, 3000);

/// How long jobs may take to be done after the last kill. Claims take seconds.
const DRAIN_TIME: Duration = Duration::from_secs(90);

/// The queues that this program runs itself, and those of `apps/queues/`.
const OWN: [(&str, Kind); 2] = [("streams", Kind::Stream), ("lists", Kind::List)];
const PROGRAMS: [(&str, &str); 2] = [("bullmq", "bullmq.mjs"), ("celery", "celery_killed.py")];

struct Options {
    program: live::Program,
    place: PathBuf,
    kills: u64,
    fsync: String,
    seed: u64,
    json: bool,
    names: Vec<String>,
}

/// Runs the queues; see the usage text.
///
/// # Errors
/// If an argument is unknown, the server does not start, or a queue breaks a promise.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let server_options = match options.program {
        live::Program::Rhumb(_) => ["--fsync".to_owned(), options.fsync.clone()].to_vec(),
        live::Program::Redis => {
            ["--appendonly", "yes", "--appendfsync", &options.fsync].map(str::to_owned).to_vec()
        }
    };
    let server_options: Vec<&str> = server_options.iter().map(String::as_str).collect();
    let mut live = Live::start(&options.program, &server_options)?;
    let reports = test(&mut live, &options)?;
    if !options.json {
        println!("{}", Report::HEAD);
    }
    let mut wrong = Vec::new();
    for report in &reports {
        println!("{}", if options.json { report.json(options.kills) } else { report.line() });
        report.faults.iter().take(5).for_each(|fault| println!("  {}: {fault}", report.name));
        let may_lose = if report.name == "celery" { 2 * options.kills } else { 0 };
        if !report.is_right(usize::try_from(may_lose)?) {
            wrong.push(report.name);
        }
    }
    ensure!(wrong.is_empty(), "promises are broken: {}", wrong.join(", "));
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options> {
    let binary = crate::redis_bench::release_binary()?;
    let mut options = Options {
        place: binary.with_file_name("apps"),
        program: live::Program::Rhumb(binary),
        kills: 5,
        fsync: "always".to_owned(),
        seed: 1,
        json: false,
        names: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--server" => options.program = live::Program::Rhumb(value()?.into()),
            "--redis" => options.program = live::Program::Redis,
            "--kills" => options.kills = value()?.parse().context("--kills")?,
            "--fsync" => value()?.clone_into(&mut options.fsync),
            "--seed" => options.seed = value()?.parse().context("--seed")?,
            "--json" => options.json = true,
            name if is_queue(name) => options.names.push(name.to_owned()),
            _ => bail!("{USAGE}"),
        }
    }
    Ok(options)
}

fn is_queue(name: &str) -> bool {
    OWN.iter().any(|(own, _)| *own == name) || PROGRAMS.iter().any(|(other, _)| *other == name)
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// Runs all queues at once while the server is killed; returns what became of their jobs.
fn test(live: &mut Live, options: &Options) -> Result<Vec<Report>> {
    let own: Vec<_> = OWN.into_iter().filter(|(name, _)| options.wants(name)).collect();
    let own: Vec<_> = own.into_iter().map(|(name, kind)| (name, kind, Ledger::default())).collect();
    let mut client = Client::connect(live.address())?;
    for (_, kind, _) in &own {
        kind.begin(&mut client)?;
    }
    let (mut programs, mut reports) = (Vec::new(), Vec::new());
    for (name, file) in PROGRAMS.into_iter().filter(|(name, _)| options.wants(name)) {
        let (source, ledger) = (repository_root().join("apps/queues").join(file), Arc::default());
        match programs::Program::start(&source, &options.place, live.address(), &ledger)? {
            Ok(program) => programs.push((name, program, ledger)),
            Err(why) => println!("{name} is left out: {why}"),
        }
    }
    let run = Run {
        address: live.address(),
        is_full: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
    };
    let killed = thread::scope(|scope| {
        for (_, kind, ledger) in &own {
            let run = &run;
            for number in 0..PRODUCERS {
                scope.spawn(move || run.produce(*kind, ledger, number));
            }
            for number in 0..CONSUMERS {
                scope.spawn(move || run.consume(*kind, ledger, number));
            }
        }
        let killed = kill(live, options);
        run.is_full.store(true, Ordering::Relaxed);
        let drained = killed.and_then(|()| drain(live, &own));
        run.is_over.store(true, Ordering::Relaxed);
        drained
    });
    killed?;
    for (name, _, ledger) in &own {
        reports.push(ledger.report(name));
    }
    for (name, program, ledger) in programs {
        program.finish()?;
        if name == "bullmq" {
            ledger.must_be_kept();
        }
        reports.push(ledger.report(name));
    }
    Ok(reports)
}

/// Kills the server at random moments, and starts it again.
fn kill(live: &mut Live, options: &Options) -> Result<()> {
    let mut random = Random::new(options.seed);
    for _ in 0..options.kills {
        let (least, most) = LIVES_MS;
        thread::sleep(Duration::from_millis(least + random.below(most - least)));
        live.kill()?;
        thread::sleep(Duration::from_millis(random.below(100)));
        live.start_again()?;
    }
    Ok(())
}

/// Waits until the queues are empty, and looks at what they keep.
fn drain(live: &Live, queues: &[(&'static str, Kind, Ledger)]) -> Result<()> {
    let mut client = Client::connect(live.address())?;
    for (_, kind, ledger) in queues {
        let until = Instant::now() + DRAIN_TIME;
        loop {
            let left = kind.left(&mut client, CONSUMERS)?;
            let undelivered = ledger.undelivered();
            if left == 0 && undelivered == 0 {
                break;
            }
            if Instant::now() > until {
                ledger.fault(format!("{left} jobs are left, {undelivered} came to nobody"));
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        kind.check(&mut client, ledger)?;
    }
    Ok(())
}
