//! Replies that wait for a commit: they are written when their commands run, and become errors if
//! the commit fails.

use std::ops::Range;

use crate::{
    commit::{CommitGroups, CommitHandle},
    db::Databases,
    fault::Fault,
    resp::Reply,
};

/// Neighbouring commands whose replies wait for the same commit.
struct Waiting {
    handle: CommitHandle,
    replies: Range<usize>,
    commands: usize,
}

/// The commits that a client's replies wait for, in the order of the replies.
#[derive(Default)]
pub(super) struct WaitingReplies(Vec<Waiting>);

impl WaitingReplies {
    /// Returns true if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has the replies of some commands, in this range, wait for a commit.
    pub(super) fn push(&mut self, handle: CommitHandle, replies: Range<usize>, commands: usize) {
        match self.0.last_mut() {
            Some(last) if last.handle.is_with(&handle) && last.replies.end == replies.start => {
                last.replies.end = replies.end;
                last.commands += commands;
            }
            _ => self.0.push(Waiting { handle, replies, commands }),
        }
    }

    /// Finishes the commits without replies: nobody is left to be told.
    pub(super) fn finish_untold(&mut self, databases: &Databases, groups: &CommitGroups) {
        for one in self.0.drain(..) {
            let _ = one.handle.finish(databases, groups);
        }
    }

    /// Finishes the commits. The replies to what failed become errors.
    pub(super) fn finish(&mut self, databases: &Databases, groups: &CommitGroups, out: &mut Reply) {
        let Some(first) = self.0.first().map(|one| one.replies.start) else { return };
        let finish =
            |one: Waiting| (one.handle.finish(databases, groups), one.replies, one.commands);
        let results: Vec<_> = self.0.drain(..).map(finish).collect();
        // Replies that were larger than the server sends are gone, and the connection ends.
        if results.iter().all(|(result, ..)| result.is_ok()) || out.overflowed() {
            return;
        }
        let written = out.split_off(first);
        let mut at = first;
        for (result, replies, commands) in results {
            let end = if result.is_ok() { replies.end } else { replies.start };
            out.raw(&written[at - first..end - first]);
            at = replies.end;
            if let Err(error) = result {
                databases.health.met(&error);
                let fault = Fault::from(error);
                (0..commands).for_each(|_| fault.write(out));
            }
        }
        out.raw(&written[at - first..]);
    }
}
