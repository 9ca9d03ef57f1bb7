//! Clients that are shown every command that is run.

use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::RwLock;

use crate::{
    clients::ClientInfo,
    outbox::{Message, MessageLimits},
};

/// The clients that said `MONITOR`.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    count: AtomicUsize,
    clients: RwLock<Vec<Arc<ClientInfo>>>,
}

impl Monitors {
    /// Returns true if there is a monitor.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Registers a client.
    pub(crate) fn add(&self, info: &Arc<ClientInfo>) {
        let mut clients = self.clients.write();
        clients.push(Arc::clone(info));
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// Takes a client's registration back.
    pub(crate) fn remove(&self, id: u64) {
        let mut clients = self.clients.write();
        clients.retain(|info| info.id != id);
        self.count.store(clients.len(), Ordering::Relaxed);
    }

    /// Shows a command that a client sends to a database.
    pub(crate) fn show<'a>(
        &self,
        limits: &Arc<MessageLimits>,
        database: usize,
        from: &str,
        args: impl Iterator<Item = &'a [u8]>,
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, micros) = (now.as_secs(), now.subsec_micros());
        let mut line = format!("+{seconds}.{micros:06} [{database} {from}]");
        for argument in args {
            line.push_str(" \"");
            push_quoted(&mut line, argument);
            line.push('"');
        }
        line.push_str("\r\n");
        let message = Message::new(line.as_bytes(), limits);
        self.clients.read().iter().for_each(|info| info.leave(&message));
    }
}

/// Writes bytes so that they are one line of printable characters.
fn push_quoted(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'\\' | b'"' => line.extend(['\\', char::from(*byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(*byte)),
            other => {
                let _ = write!(line, "\\x{other:02x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_as_one_printable_line() {
        let mut line = String::new();
        push_quoted(&mut line, b"a \"b\"\\\r\n\t\x07\x08\x00\xff~");
        assert_eq!(line, r#"a \"b\"\\\r\n\t\a\b\x00\xff~"#);
    }
}
