//! What the commands that a script calls are counted with: kept until the script is not begun
//! again, so that none counts twice.

use std::time::Duration;

use crate::command_stats::CommandStats;

/// How many codes of errors a script has told apart: as many as the server has.
const CODES_MAX: usize = 128;

/// How the calls of one command ended.
#[derive(Default)]
struct Calls {
    slot: usize,
    calls: u64,
    time: Duration,
    rejected: u64,
    failed: u64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    /// With an error as its reply.
    Failed,
    /// It was refused before it was run.
    Rejected,
}

/// The calls of one script. A script calls few commands, so that they are looked for one by one.
#[derive(Default)]
pub(super) struct ScriptCounts {
    calls: Vec<Calls>,
    codes: Vec<(String, u64)>,
}

impl ScriptCounts {
    /// Counts a call of the command of a slot.
    pub(super) fn count(&mut self, slot: usize, took: Duration, ended: Ended) {
        let at = self.calls.iter().position(|calls| calls.slot == slot);
        let at = at.unwrap_or_else(|| {
            self.calls.push(Calls { slot, ..Calls::default() });
            self.calls.len() - 1
        });
        let calls = &mut self.calls[at];
        if ended == Ended::Rejected {
            calls.rejected += 1;
            return;
        }
        calls.calls += 1;
        calls.time += took;
        calls.failed += u64::from(ended == Ended::Failed);
    }

    /// Counts an error by its code.
    #[cold]
    pub(super) fn count_error(&mut self, code: &str) {
        if let Some((_, count)) = self.codes.iter_mut().find(|(known, _)| known == code) {
            *count += 1;
        } else if self.codes.len() < CODES_MAX {
            self.codes.push((code.to_owned(), 1));
        }
    }

    /// Adds all calls to those of the server.
    pub(super) fn add_to(&mut self, stats: &CommandStats) {
        for Calls { slot, calls, time, rejected, failed } in self.calls.drain(..) {
            if calls > 0 {
                let each = time / u32::try_from(calls).unwrap_or(u32::MAX);
                stats.count(slot, usize::try_from(calls).unwrap_or(usize::MAX), each);
            }
            stats.count_rejected(slot, rejected);
            stats.count_failed(slot, failed);
        }
        stats.count_errors(self.codes.drain(..));
    }
}
