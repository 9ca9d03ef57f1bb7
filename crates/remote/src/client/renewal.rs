//! What clients report to their hosts: how gets went, every few seconds and at the end.
//!
//! Nobody waits for a report. A get looks at the clock once in 64 times, and if a report is due it
//! sends one, on a Unix socket without waiting for the answer, which the next call takes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    connection::{ClientInner, HostRoute, Link, is_broken, unexpected},
    counts::Counters,
};
use crate::{
    clock,
    error::{Error, Result},
    message::{Frame, Reply, Request, format::RENEWED_MAX},
    socket::Stream,
};

/// The time between two reports, in milliseconds: as often as figures are looked at, and seldom
/// enough to cost nothing.
const EVERY_MS: u64 = if cfg!(test) { 200 } else { 10_000 };

/// When the next report is due.
#[derive(Debug)]
pub(super) struct Schedule {
    due_ms: AtomicU64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { due_ms: AtomicU64::new(clock::now_ms() + EVERY_MS) }
    }
}

impl Schedule {
    /// Returns true if a report is due, to one thread alone.
    fn is_due(&self) -> bool {
        let (now, due) = (clock::now_ms(), self.due_ms.load(Ordering::Relaxed));
        let next = now + EVERY_MS;
        now >= due
            && self.due_ms.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl ClientInner {
    /// Reports, if it is time to. What keeps it from arriving keeps the next call too.
    pub(super) fn report_if_due(&self) {
        if self.schedule.is_due() {
            self.report();
        }
    }

    #[cold]
    fn report(&self) {
        match &self.way {
            HostRoute::Unix { link, .. } => {
                // A call is under way otherwise: there is another time.
                if let Ok(mut link) = link.try_lock() {
                    let _ = link.report(|name| self.counters_of(name));
                }
            }
            HostRoute::Tcp { link, .. } => link.report(|name| self.counters_of(name)),
        }
    }

    fn counters_of(&self, name: &[u8]) -> Option<Arc<Counters>> {
        self.counters().get(name).map(Arc::clone)
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        self.report();
    }
}

impl Link {
    /// Sends a report, unless the answer to the last one is not there yet.
    fn report(&mut self, counters_of: impl Fn(&[u8]) -> Option<Arc<Counters>>) -> Result<()> {
        if self.process != std::process::id() {
            return Ok(());
        }
        self.take_answers()?;
        if self.renewal.is_some() {
            return Ok(());
        }
        let mut gets = Vec::new();
        for opened in self.opened.iter().take(RENEWED_MAX) {
            let Some(counters) = counters_of(&opened.name) else { continue };
            let mapped = counters.mapped_gets();
            let models = opened.mapped.models();
            let totals = models.map_or(mapped, |models| models.get_counts(mapped.call));
            gets.extend(counters.report(totals).map(|counts| (opened.mapped.number, counts)));
        }
        let Some(stream) = self.stream.as_ref().filter(|_| !gets.is_empty()) else { return Ok(()) };
        self.next_id = self.next_id.wrapping_add(1).max(1);
        self.out.clear();
        Request::Renew { epoch: 0, gets }.encode(self.next_id, &mut self.out)?;
        stream.send(&self.out, &[])?;
        self.renewal = Some(self.next_id);
        Ok(())
    }

    /// Takes what the host has sent without being asked, and its answer to the last report.
    fn take_answers(&mut self) -> Result<()> {
        while self.renewal.is_some() && self.stream.as_ref().is_some_and(Stream::has_some) {
            let taken = self.take_answer();
            if taken.as_ref().is_err_and(is_broken) {
                self.lose();
            }
            taken?;
        }
        Ok(())
    }

    fn take_answer(&mut self) -> Result<()> {
        let Some(stream) = &self.stream else { return Err(Error::Closed) };
        self.fds = stream.receive(&mut self.frame)?.fds.into();
        self.take_unasked()
    }

    /// Takes note of a frame that is no answer to a call.
    pub(super) fn take_unasked(&mut self) -> Result<()> {
        let frame = Frame::parse(&self.frame)?;
        match Reply::decode(&frame)? {
            // Each has some, so that a connection has no more of them than a region can hold.
            Reply::Segments { keyspace, part, sizes } if frame.id == 0 && !sizes.is_empty() => {
                let opened = self.opened.get(keyspace as usize);
                let opened =
                    opened.ok_or_else(|| Error::invalid("segments of no open keyspace"))?;
                opened.mapped.attach(part, &sizes, &mut self.fds)
            }
            Reply::Renewed { .. } if self.renewal == Some(frame.id) => {
                self.renewal = None;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }
}
