//! A connection whose client has asked for a copy of all data: a thread writes it, and the
//! connection sends it as fast as the client takes it. Then the client only hears that the server
//! is alive.

use std::{
    io::{self, BufWriter, Write},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc::{Receiver, Sender, channel},
    time::{sleep, timeout},
};

use super::{Connection, End, poll_fn};
use crate::{
    copies::{self, SendError, Wanted},
    log::Event,
    server::Server,
};

/// Bytes of a copy that are sent together.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks that wait for the connection; the thread waits while there are more.
const CHUNKS_MAX: usize = 4;

/// How often a client is sent an empty line while its copy is measured, as Redis does it: it would
/// give the server up.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// How often a client that has its copy is sent a `PING`: Redis' `repl-ping-replica-period`.
const PING_EVERY: Duration = Duration::from_secs(10);

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A part of what is sent.
enum Part {
    Bytes(Vec<u8>),
    Done,
}

/// Where the thread writes.
struct Chunks(Sender<Part>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Part::Bytes(bytes.to_vec()));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Has a thread write the copy.
fn begin(server: &Arc<Server>, wanted: Wanted) -> io::Result<Receiver<Part>> {
    let (sender, receiver) = channel(CHUNKS_MAX);
    let server = Arc::clone(server);
    let write = move || {
        let Wanted { ending, permit: _permit } = wanted;
        let is_wanted = || !sender.is_closed();
        let to = BufWriter::with_capacity(CHUNK_BYTES, Chunks(sender.clone()));
        match copies::send(&server.databases, &ending, to, &is_wanted) {
            Ok(()) => _ = sender.blocking_send(Part::Done),
            Err(SendError::Gone) => {}
            Err(SendError::Engine(error)) => {
                let error = ("error", error.to_string().into());
                server.log.write(Event::SaveFailed, "a copy for a client failed", &[error]);
            }
        }
    };
    thread::Builder::new().name("rhumb-copy".to_owned()).spawn(write)?;
    Ok(receiver)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends the copy that the client has asked for, and then a sign of life now and then, until
    /// the client ends the connection.
    pub(super) async fn send_copy(&mut self, wanted: Wanted) -> Result<(), End> {
        let mut parts = begin(&self.server, wanted)?;
        let mut has_begun = false;
        loop {
            match timeout(LINE_EVERY, parts.recv()).await {
                Ok(Some(Part::Bytes(bytes))) => {
                    has_begun = true;
                    self.unsent.push_buffer(bytes);
                }
                Ok(Some(Part::Done)) => break,
                Ok(None) => return Err(End::Gone),
                Err(_) if has_begun => {}
                Err(_) => self.unsent.push(b"\n"),
            }
            self.send_rest().await?;
            self.session.client.info.note_active();
        }
        drop(parts);
        self.count_bytes();
        loop {
            tokio::select! {
                read = poll_fn(|cx| self.poll_read(cx)) => {
                    // What it says of how far it has come.
                    if read? == 0 {
                        return Err(End::Gone);
                    }
                    self.input.clear();
                }
                () = sleep(PING_EVERY) => self.unsent.push(PING),
            }
            self.session.client.info.note_active();
        }
    }
}
