//! How a command ends: the exit codes, and the one line that a failure prints.
//!
//! Every command returns a [`Failure`] and never prints its own; `main` does that, so that a
//! message is one line, on the standard error, whatever went wrong.

use std::{fmt, io, process::ExitCode};

// The codes are listed in the help of the binary.
const ABSENT: u8 = 1;
const DAMAGED: u8 = 2;
const FAILED: u8 = 3;
/// A wrong command line, as in `sysexits.h`; clap's own 2 would be taken for damage.
pub(crate) const WRONG_USAGE: u8 = 64;
/// Ended by a signal: 128 and the number of SIGINT, as a shell says of a process that it kills.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command did not do all that it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The key is not there. Says nothing: the exit code does.
    Absent,
    /// Some of many keys are not there.
    SomeAbsent(String),
    /// The database is damaged.
    Damaged(String),
    /// Anything else.
    Failed(String),
    /// The command line asks for what cannot be.
    Usage(String),
    /// Ctrl-C or SIGTERM ended it early: the message says how far it came.
    Interrupted(String),
    /// The reader of the output went away, which is its right.
    PipeClosed,
}

/// What every command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with a message.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// A failure to write the output.
    pub(crate) fn from_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::PipeClosed;
        }
        Self::Failed(format!("cannot write the output: {error}"))
    }

    /// The code that the process ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Absent | Self::SomeAbsent(_) => ABSENT,
            Self::Damaged(_) => DAMAGED,
            Self::Failed(_) => FAILED,
            Self::Usage(_) => WRONG_USAGE,
            Self::Interrupted(_) => INTERRUPTED,
            Self::PipeClosed => return ExitCode::SUCCESS,
        })
    }

    /// The message, on one line; none where the exit code says it all.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Absent | Self::PipeClosed => None,
            Self::SomeAbsent(message)
            | Self::Damaged(message)
            | Self::Failed(message)
            | Self::Usage(message)
            | Self::Interrupted(message) => {
                Some(message.split_whitespace().collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// What a command ends with that ended with `outcome` and whose output ended with `written`.
///
/// Nothing hides damage or a failure, not even a reader that went away; and an output that could
/// not be written is told even if the command has nothing worse to say than that a key is absent.
pub(crate) fn worse(outcome: Outcome, written: Outcome) -> Outcome {
    let is_mild = |failure: &Failure| {
        matches!(failure, Failure::Absent | Failure::SomeAbsent(_) | Failure::PipeClosed)
    };
    match (outcome, written) {
        (Err(failure), Err(written)) if is_mild(&failure) && !is_mild(&written) => Err(written),
        (Err(failure), _) => Err(failure),
        (Ok(()), written) => written,
    }
}

impl From<rhumb::Error> for Failure {
    fn from(error: rhumb::Error) -> Self {
        if error.is_corruption() {
            return Self::Damaged(format!("{error}; `rhumb check` lists all damage"));
        }
        Self::Failed(error.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let pipe_closed = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe);
        if pipe_closed {
            return Self::PipeClosed;
        }
        if error.chain().any(|cause| cause.is::<rhumb_bench::usage::Usage>()) {
            return Self::Usage(format!("{error:#}"));
        }
        match error.downcast::<rhumb::Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::Failed(format!("{error:#}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message().as_deref().unwrap_or("nothing to say"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        let failure = Failure::failed("first\n  second\tthird");
        assert_eq!(failure.message().as_deref(), Some("first second third"));
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::from_output(&closed), Failure::PipeClosed));
        let wrapped = anyhow::Error::new(closed).context("cannot print the table");
        assert!(matches!(Failure::from(wrapped), Failure::PipeClosed));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(Failure::from_output(&full).message().is_some());
    }

    #[test]
    fn a_closed_pipe_hides_nothing() {
        let damaged = || Err(Failure::Damaged("d".into()));
        let failed = || Err(Failure::failed("f"));
        let closed = || Err(Failure::PipeClosed);
        assert!(matches!(worse(damaged(), closed()), Err(Failure::Damaged(_))));
        assert!(matches!(worse(damaged(), failed()), Err(Failure::Damaged(_))));
        assert!(matches!(worse(Err(Failure::Absent), closed()), Err(Failure::Absent)));
        assert!(matches!(worse(Err(Failure::Absent), failed()), Err(Failure::Failed(_))));
        assert!(matches!(worse(closed(), failed()), Err(Failure::Failed(_))));
        assert!(matches!(worse(Ok(()), closed()), Err(Failure::PipeClosed)));
        assert!(worse(Ok(()), Ok(())).is_ok());
    }

    #[test]
    fn damage_has_its_own_code() {
        let damage = rhumb::Error::corrupt("000007.sst", 12, "a checksum of 1", "2");
        assert!(matches!(Failure::from(damage.clone()), Failure::Damaged(_)));
        assert!(matches!(Failure::from(anyhow::Error::new(damage)), Failure::Damaged(_)));
    }
}
