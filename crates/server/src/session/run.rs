//! Runs of neighbouring commands in a pipeline, which are run together.

use super::refusal::are_keys_short;
use crate::{
    command::{self, COMMANDS, Command, Flags, Pipelining},
    execute::Call,
    resp::{Args, Frames},
};

/// How many commands are run together, at most.
pub(super) const RUN_MAX: usize = 256;

/// How many keys a run names, at most, unless its first command names more.
const KEYS_MAX: usize = 1024;

/// A command's place in the table, and the command.
pub(super) type Found = (usize, &'static Command);

/// The commands that a client has sent and that were parsed.
#[derive(Clone, Copy)]
pub(super) struct Pipeline<'a> {
    buffer: &'a [u8],
    frames: &'a Frames,
}

impl<'a> Pipeline<'a> {
    /// The commands of `frames`, whose bytes are in `buffer`.
    pub(super) fn new(buffer: &'a [u8], frames: &'a Frames) -> Self {
        Self { buffer, frames }
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.frames.len()
    }

    /// The command at `at`, with its arguments.
    #[inline]
    pub(super) fn at(self, at: usize) -> Args<'a> {
        self.frames.command(self.buffer, at)
    }
}

/// Finds commands by name; first it looks at the one that was found last.
#[derive(Default)]
pub(super) struct Finder {
    last: Option<Found>,
}

impl Finder {
    /// The command of this name, in any case.
    #[inline]
    pub(super) fn find(&mut self, name: &[u8]) -> Option<Found> {
        match self.last {
            Some((_, last)) if name.eq_ignore_ascii_case(last.name.as_bytes()) => self.last,
            _ => {
                let found = command::find(name);
                self.last = found.or(self.last);
                found
            }
        }
    }
}

/// Neighbours that are run together.
pub(super) struct Run {
    /// Where the first one is in the pipeline.
    from: usize,
    len: usize,
    keys: usize,
    /// Their places in the table.
    places: [u16; RUN_MAX],
}

impl Run {
    /// Gathers the commands from `from` on that are as `is_one` says, at most `most` of them.
    pub(super) fn gather(
        pipeline: Pipeline<'_>,
        from: usize,
        most: usize,
        finder: &mut Finder,
        is_one: impl Fn(Found, Args<'_>) -> bool,
    ) -> Self {
        let mut run = Self { from, len: 0, keys: 0, places: [0; RUN_MAX] };
        for at in from..pipeline.len().min(from + most.min(RUN_MAX)) {
            let args = pipeline.at(at);
            let Some(found) = finder.find(args.at(0)) else { break };
            let (place, command) = found;
            if !is_one(found, args) {
                break;
            }
            let keys = command::keys_of(command, args).count();
            if run.len > 0 && run.keys + keys > KEYS_MAX {
                break;
            }
            run.places[run.len] = place as u16;
            run.len += 1;
            run.keys += keys;
        }
        run
    }

    /// How many commands.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many keys they name together.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Returns true if nothing follows in the pipeline.
    pub(super) fn is_last(&self, pipeline: Pipeline<'_>) -> bool {
        self.from + self.len == pipeline.len()
    }

    /// The commands with their arguments.
    pub(super) fn calls<'a>(
        &'a self,
        pipeline: Pipeline<'a>,
    ) -> impl Iterator<Item = Call<'a>> + Clone {
        let all = (self.from..).zip(&self.places[..self.len]);
        all.map(move |(at, place)| (COMMANDS.at((*place).into()), pipeline.at(at)))
    }

    /// The first `ran` commands by their places in the table: equal neighbours with their number.
    pub(super) fn counts(&self, ran: usize) -> impl Iterator<Item = (usize, usize)> {
        let same = self.places[..ran].chunk_by(|one, other| one == other);
        same.map(|places| (usize::from(places[0]), places.len()))
    }
}

/// Returns true for a call that shares one read with its neighbours.
pub(super) fn is_shared_read(command: &'static Command, args: Args<'_>) -> bool {
    command.pipelining == Pipelining::SharedRead
        && command.takes(args.len())
        && (command.flags.has(Flags::LONG_KEYS) || are_keys_short(command, args))
}

/// Returns true for a call that only overwrites strings.
pub(super) fn is_overwrite(command: &'static Command, args: Args<'_>) -> bool {
    command.overwrites(args.len())
        && command.takes(args.len())
        && (command.flags.has(Flags::LONG_KEYS) || are_keys_short(command, args))
}
