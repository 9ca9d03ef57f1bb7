//! Producers and consumers that speak to the server themselves: a stream with a group, and a list
//! whose consumers keep what they work on in lists of their own.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};

use super::ledger::Ledger;
use crate::live::{Client, Value};

/// How long a consumer waits for a job.
const WAIT_SECONDS: &str = "0.2";
const WAIT_MS: &str = "200";

/// An entry that was given to a consumer this long ago, and is not acknowledged, is given to
/// another one.
const CLAIM_MS: &str = "3000";

/// How often a consumer looks for such entries.
const CLAIM_EACH: Duration = Duration::from_secs(1);

/// How long clients try to connect: longer than a server takes to start.
const CONNECT_TIME: Duration = Duration::from_secs(90);

/// The pause of a producer between two jobs.
const PAUSE: Duration = Duration::from_millis(2);

/// What the threads of a test share.
pub(super) struct Run {
    pub(super) address: SocketAddr,
    /// No more jobs are added.
    pub(super) is_full: AtomicBool,
    /// Consumers end.
    pub(super) is_over: AtomicBool,
}

/// A kind of queue.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Stream,
    List,
}

impl Run {
    fn connect(&self) -> Result<Client> {
        let until = Instant::now() + CONNECT_TIME;
        loop {
            match Client::connect(self.address) {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Calls `step` with a connection until `ended`; connects again after each failure.
    fn with_connections(
        &self,
        ledger: &Ledger,
        ended: &AtomicBool,
        mut begin: impl FnMut(&mut Client) -> Result<()>,
        mut step: impl FnMut(&mut Client) -> Result<()>,
    ) {
        while !ended.load(Ordering::Relaxed) {
            let mut client = match self.connect() {
                Ok(client) => client,
                Err(error) => return ledger.fault(format!("cannot connect: {error}")),
            };
            let mut done = begin(&mut client);
            while done.is_ok() && !ended.load(Ordering::Relaxed) {
                done = step(&mut client);
            }
            if let Err(error) = done
                && let Some(refused) = error.downcast_ref::<Refused>()
                && !refused.0.starts_with("LOADING")
            {
                ledger.fault(refused.0.clone());
                thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// Adds jobs named after the producer until the test is full of them.
    pub(super) fn produce(&self, kind: Kind, ledger: &Ledger, producer: usize) {
        let (mut number, mut last) = (0_u64, (0_u64, 0_u64));
        self.with_connections(
            ledger,
            &self.is_full,
            |_| Ok(()),
            |client| {
                let job = format!("{producer}-{number}");
                number += 1;
                ledger.tried(&job);
                match kind {
                    Kind::Stream => {
                        let id = call(client, &["XADD", "stream", "*", "job", &job])?;
                        let id = stream_id(&id.text().unwrap_or_default());
                        if id <= last {
                            ledger.fault(format!("entry {id:?} came after {last:?}"));
                        }
                        last = id;
                    }
                    Kind::List => {
                        call(client, &["LPUSH", "list", &job])?;
                    }
                }
                ledger.added(&job);
                thread::sleep(PAUSE);
                Ok(())
            },
        );
    }

    /// Takes jobs until the test is over.
    pub(super) fn consume(&self, kind: Kind, ledger: &Ledger, consumer: usize) {
        match kind {
            Kind::Stream => self.consume_stream(ledger, &format!("consumer-{consumer}")),
            Kind::List => self.consume_list(ledger, &format!("working-{consumer}")),
        }
    }

    fn consume_stream(&self, ledger: &Ledger, name: &str) {
        let mut claimed = Instant::now();
        self.with_connections(
            ledger,
            &self.is_over,
            |_| Ok(()),
            |client| {
                let asked = Instant::now();
                let read = ["XREADGROUP", "GROUP", "group", name, "COUNT", "10", "BLOCK", WAIT_MS];
                let reply = call(client, &[&read[..], &["STREAMS", "stream", ">"]].concat())?;
                for stream in reply.elements() {
                    take_entries(client, ledger, (asked, true), stream.elements().get(1))?;
                }
                if claimed.elapsed() > CLAIM_EACH {
                    claimed = Instant::now();
                    let claim = ["XAUTOCLAIM", "stream", "group", name, CLAIM_MS, "0"];
                    let reply = call(client, &claim)?;
                    take_entries(client, ledger, (claimed, false), reply.elements().get(1))?;
                }
                Ok(())
            },
        );
    }

    fn consume_list(&self, ledger: &Ledger, working: &str) {
        // The last job of each producer that was given to this consumer.
        let mut last: HashMap<String, u64> = HashMap::new();
        let finish = |client: &mut Client, job: &str| -> Result<()> {
            if call(client, &["LREM", working, "1", job])?.int()? == 1 {
                ledger.done(job);
            }
            Ok(())
        };
        self.with_connections(
            ledger,
            &self.is_over,
            |client| {
                // What it had begun when the connection ended.
                let asked = Instant::now();
                for job in call(client, &["LRANGE", working, "0", "-1"])?.elements() {
                    let job = job.text().unwrap_or_default();
                    ledger.delivered(&job, asked, false);
                    finish(client, &job)?;
                }
                Ok(())
            },
            |client| {
                let asked = Instant::now();
                let take = ["BLMOVE", "list", working, "RIGHT", "LEFT", WAIT_SECONDS];
                let Some(job) = call(client, &take)?.text() else { return Ok(()) };
                ledger.delivered(&job, asked, true);
                if let Some((producer, Ok(number))) =
                    job.split_once('-').map(|(producer, number)| (producer, number.parse()))
                    && let Some(before) = last.insert(producer.to_owned(), number)
                    && before >= number
                {
                    ledger.fault(format!("{job} came after {before}"));
                }
                finish(client, &job)
            },
        );
    }
}

impl Kind {
    /// Makes what the queue needs.
    pub(super) fn begin(self, client: &mut Client) -> Result<()> {
        if matches!(self, Self::Stream) {
            call(client, &["XGROUP", "CREATE", "stream", "group", "0", "MKSTREAM"])?;
        }
        Ok(())
    }

    /// How many jobs the server says are left.
    pub(super) fn left(self, client: &mut Client, consumers: usize) -> Result<i64> {
        match self {
            Self::Stream => {
                let pending = call(client, &["XPENDING", "stream", "group"])?;
                ensure!(!pending.elements().is_empty(), "XPENDING gave {pending:?}");
                pending.elements()[0].int()
            }
            Self::List => {
                let lists = (0..consumers).map(|consumer| format!("working-{consumer}"));
                let lists = lists.chain(["list".to_owned()]);
                lists.map(|list| call(client, &["LLEN", &list])?.int()).sum()
            }
        }
    }

    /// Looks at what must be there at the end.
    pub(super) fn check(self, client: &mut Client, ledger: &Ledger) -> Result<()> {
        if let Self::Stream = self {
            let len = call(client, &["XLEN", "stream"])?.int()?;
            let all = call(client, &["XRANGE", "stream", "-", "+"])?;
            let jobs = all.elements().iter().filter_map(job_of).collect::<Vec<_>>();
            if jobs.len() as i64 != len {
                ledger.fault(format!("XLEN is {len}, and there are {} entries", jobs.len()));
            }
            ledger.must_hold(&jobs);
        }
        Ok(())
    }
}

/// An error of the server as an error of the call.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn call(client: &mut Client, arguments: &[&str]) -> Result<Value> {
    match client.call(arguments)? {
        Value::Error(text) => bail!(Refused(format!("{}: {text}", arguments[0]))),
        reply => Ok(reply),
    }
}

fn stream_id(text: &str) -> (u64, u64) {
    let parts = text.split_once('-').unwrap_or_default();
    (parts.0.parse().unwrap_or(0), parts.1.parse().unwrap_or(0))
}

/// The job that an entry holds.
fn job_of(entry: &Value) -> Option<String> {
    entry.elements().get(1)?.elements().get(1)?.text()
}

/// Does and acknowledges the jobs of some entries, which were asked for at a time: for the first
/// time, or to take them from another consumer.
fn take_entries(
    client: &mut Client,
    ledger: &Ledger,
    (asked, is_first): (Instant, bool),
    entries: Option<&Value>,
) -> Result<()> {
    for entry in entries.map(Value::elements).unwrap_or_default() {
        let (Some(id), Some(job)) = (entry.elements().first().and_then(Value::text), job_of(entry))
        else {
            ledger.fault(format!("an entry without a job: {entry:?}"));
            continue;
        };
        ledger.delivered(&job, asked, is_first);
        if call(client, &["XACK", "stream", "group", &id])?.int()? == 1 {
            ledger.done(&job);
        }
    }
    Ok(())
}
