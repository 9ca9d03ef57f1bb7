//! Queues of other languages: programs that say a line for each thing that happens to a job.
//!
//! | line | means |
//! | --- | --- |
//! | `tried NAME` `added NAME` | a producer sends a job; its call has returned |
//! | `began NAME` `done NAME` | a consumer was given a job; the queue has it as done |
//! | `kept NAME` | a job that the queue has as done at the end |
//! | `fault TEXT` | something is wrong |
//! | `end` | no job is left, and the program ends |
//!
//! A line on its input has the program add no more jobs.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use anyhow::{Context, Result};

use super::ledger::Ledger;

/// A program that runs.
pub(super) struct Program {
    process: Child,
    reader: Option<JoinHandle<()>>,
    ledger: Arc<Ledger>,
}

impl Program {
    /// Starts a program of `apps/queues/`; says why not if its packages cannot be had.
    pub(super) fn start(
        source: &Path,
        place: &Path,
        address: SocketAddr,
        ledger: &Arc<Ledger>,
    ) -> Result<std::result::Result<Self, String>> {
        let mut command = match crate::apps::prepared(source, place)? {
            Ok(command) => command,
            Err(why) => return Ok(Err(why)),
        };
        let mut process = command
            .env("REDIS_URL", format!("redis://{address}/0"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", source.display()))?;
        let lines = BufReader::new(process.stdout.take().context("its output")?).lines();
        let of_thread = Arc::clone(ledger);
        let reader = thread::spawn(move || {
            if !lines.map_while(Result::ok).any(|line| note(&of_thread, &line)) {
                of_thread.fault("the program ended early".to_owned());
            }
        });
        Ok(Ok(Self { process, reader: Some(reader), ledger: Arc::clone(ledger) }))
    }

    /// Has it add no more jobs, and waits until none is left.
    pub(super) fn finish(mut self) -> Result<()> {
        if let Some(mut input) = self.process.stdin.take() {
            // It may have ended, which its reader has seen.
            let _ = input.write_all(b"stop\n");
        }
        if let Some(reader) = self.reader.take() {
            // The program gives up by itself if jobs stay.
            let _ = reader.join();
        }
        let status = self.process.wait()?;
        if !status.success() {
            self.ledger.fault(format!("the program ended with {status}"));
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Notes what a line says; returns true if it is the last one.
fn note(ledger: &Ledger, line: &str) -> bool {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "tried" => ledger.tried(rest),
        "added" => ledger.added(rest),
        // Its lines are in the order in which things happened to it.
        "began" => ledger.delivered(rest, Instant::now(), false),
        "done" => ledger.done(rest),
        "kept" => ledger.kept(rest),
        "fault" => ledger.fault(rest.to_owned()),
        "end" => return true,
        _ => {}
    }
    false
}
