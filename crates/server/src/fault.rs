//! Why a command did nothing, and what its client is told.

use std::{borrow::Cow, time::Duration};

use crate::{db::Databases, encode::Kind, ranks::Learning, resp::Reply};

/// Why a command did nothing; the client is told, or the command is run again in another way.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The error's text, its code first.
    Text(Cow<'static, str>),
    /// The engine failed.
    Engine(rhumb::Error),
    /// There is nothing to take: the command is run again when one of its keys was written.
    Wait(Box<Wait>),
    /// It takes longer than a worker's other clients are to wait: it is run again beside them.
    TakesLong,
    /// The order of a sorted set is to be learned first, while the command's keys are not locked.
    Learn(Box<Learning>),
}

/// The error for a write where settings ask for replicas, of which there are none.
pub(crate) const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";

/// What a client waits for that has sent a blocking command.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// The keys, of the client's database. None if only the time counts.
    pub(crate) keys: Vec<Vec<u8>>,
    /// The type that the command takes from: a key of another one is in the way, and the client
    /// goes on to wait.
    pub(crate) kind: Kind,
    /// How long, at most; `None` without end.
    pub(crate) timeout: Option<Duration>,
    /// Writes the reply if nothing came in time.
    pub(crate) on_timeout: fn(&mut Reply),
    /// The group whose entries the command takes. It answers, with its error, when the key or the
    /// group is gone, or the key has another type.
    pub(crate) group: Option<Vec<u8>>,
    /// The arguments to run the command with again, if they are not those of the client: those of
    /// `XREAD` have the identifier in the place of `$`.
    pub(crate) again: Option<Vec<Vec<u8>>>,
}

impl Wait {
    /// A wait for one of these keys, which runs the command again as it was sent.
    pub(crate) fn new(
        (keys, kind): (Vec<Vec<u8>>, Kind),
        timeout: Option<Duration>,
        on_timeout: fn(&mut Reply),
    ) -> Self {
        Self { keys, kind, timeout, on_timeout, group: None, again: None }
    }
}

impl From<Wait> for Fault {
    fn from(wait: Wait) -> Self {
        Self::Wait(Box::new(wait))
    }
}

impl From<rhumb::Error> for Fault {
    fn from(error: rhumb::Error) -> Self {
        match error {
            rhumb::Error::TooLong { .. } => Self::TakesLong,
            error => Self::Engine(error),
        }
    }
}

impl From<&'static str> for Fault {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl Fault {
    /// Writes the error reply of a command that failed, and remembers what the engine met.
    pub(crate) fn report(&self, databases: &Databases, out: &mut Reply) {
        if let Self::Engine(error) = self {
            databases.health.met(error);
        }
        self.write(out);
    }

    /// Writes the error reply.
    pub(crate) fn write(&self, out: &mut Reply) {
        match self {
            Self::Text(text) => out.error(text),
            Self::Engine(rhumb::Error::InvalidArgument(what)) => out.error(&format!("ERR {what}")),
            Self::Engine(error) => out.error(&failure(error)),
            // Where a command may not wait.
            Self::Wait(wait) => (wait.on_timeout)(out),
            Self::TakesLong | Self::Learn(_) => out.error("ERR the command takes too long here"),
        }
    }
}

/// What a client is told when the engine fails. Programs know Redis's text for writes that fail.
/// Where the files are is not for clients.
fn failure(error: &rhumb::Error) -> String {
    use rhumb::Error;
    match error {
        Error::WritesStopped(cause) => {
            let cause = why(cause);
            format!("MISCONF Errors writing to the AOF file: {cause} (writes are stopped)")
        }
        Error::Io(failure) if !is_reading(failure.operation) => {
            format!("MISCONF Errors writing to the AOF file: {}", why(error))
        }
        _ => format!("ERR the server cannot read its data: {}", why(error)),
    }
}

/// The verbs of operations that change nothing.
fn is_reading(operation: &str) -> bool {
    ["list", "map", "open", "read", "stat"].iter().any(|verb| operation.starts_with(verb))
}

/// The cause of a failure, without a path.
fn why(error: &rhumb::Error) -> String {
    match error {
        rhumb::Error::Io(failure) => {
            let text = failure.source.to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
        rhumb::Error::Corrupt(_) => "a file is damaged".to_owned(),
        rhumb::Error::WritesStopped(cause) => why(cause),
        rhumb::Error::InvalidArgument(what) => what.clone().into_owned(),
        _ => "the engine refuses it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use rhumb::Error;

    use super::*;

    #[test]
    fn clients_are_told_what_failed_and_no_path() {
        let (no_space, not_readable) = (28, 5);
        let io = |operation, code| {
            Error::io(operation, "/secret/path", io::Error::from_raw_os_error(code))
        };
        let full = io("write", no_space);
        let cases = [
            (full.clone(), "MISCONF Errors writing to the AOF file: No space left on device"),
            (
                Error::WritesStopped(Arc::new(full)),
                "MISCONF Errors writing to the AOF file: No space left on device (writes are stopped)",
            ),
            (io("read", not_readable), "ERR the server cannot read its data: Input/output error"),
            (
                Error::corrupt("/secret/path", 7, "this", "that"),
                "ERR the server cannot read its data: a file is damaged",
            ),
        ];
        for (error, expected) in cases {
            let mut out = Reply::new(1 << 10);
            Fault::from(error).write(&mut out);
            assert_eq!(String::from_utf8_lossy(out.bytes()), format!("-{expected}\r\n"));
        }
    }
}
