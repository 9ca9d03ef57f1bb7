//! Encrypted connections: how ciphertext goes between the system and what knows its meaning.
//!
//! Nobody waits for the other side with the lock of a [`Tls`] held, so that one thread receives
//! while another sends. Ciphertext is sent in the order in which it was made, because only a thread
//! that holds [`Stream::sending`] takes it.

use std::{
    sync::TryLockError,
    time::{Duration, Instant},
};

use rustix::{
    io::retry_on_intr,
    net::{RecvFlags, SendFlags, recv},
};

use super::{
    Identity, Roots, SEND_FLAGS, Socket, Stream, check_received, receive_error,
    tcp::{AHEAD_BYTES, check_pace},
    tls::Tls,
};
use crate::error::{Error, Result};

/// How long a handshake may take, as a call may: two round trips and some hundred microseconds of
/// either side's processor.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl Stream {
    /// Connects to a host that speaks TLS on a port of a machine, and checks that it is the one
    /// that the name stands for.
    ///
    /// # Errors
    ///
    /// As [`Stream::connect_tcp`]; [`Error::Invalid`] if its certificate is not to be trusted or it
    /// does not speak TLS; [`Error::InvalidArgument`] if a certificate cannot be for such a name.
    pub(crate) fn connect_tls(host: &str, port: u16, roots: &Roots) -> Result<Self> {
        let tls = roots.begin(host)?;
        let mut stream = Self::connect_tcp(host, port)?;
        stream.tls = Some(Box::new(tls));
        stream.set_timeouts(Some(HANDSHAKE_TIMEOUT), Some(HANDSHAKE_TIMEOUT))?;
        stream.shake_hands().map_err(|error| in_handshake(host, port, error))?;
        Ok(stream)
    }

    /// Has a connection speak TLS as a host. The handshake happens as its bytes come.
    pub(super) fn with_identity(mut self, identity: &Identity) -> Result<Self> {
        self.tls = Some(Box::new(identity.begin()?));
        Ok(self)
    }

    fn shake_hands(&self) -> Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let (until, mut bytes) = (Instant::now() + HANDSHAKE_TIMEOUT, vec![0; AHEAD_BYTES]);
        loop {
            self.send_sealed(tls, &[])?;
            if !tls.is_handshaking() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(Error::TimedOut);
            }
            let received = retry_on_intr(|| recv(&self.socket, &mut bytes[..], RecvFlags::empty()));
            let (received, _) = received.map_err(|error| receive_error(error, 0))?;
            let put = tls.put(&bytes[..check_received(received, 0)?]);
            if put.is_err() {
                // The other side is told why, if it listens.
                let _ = self.flush_some();
            }
            put?;
        }
    }

    /// Encrypts frames and sends them, after what waits to be sent. Called with `sending` held.
    pub(super) fn send_sealed(&self, tls: &Tls, mut frames: &[u8]) -> Result<()> {
        loop {
            let unsent = tls.take_unsent();
            let mut left = &unsent[..];
            while !left.is_empty() {
                left = &left[self.send_some(left, &[], SEND_FLAGS)?..];
            }
            if frames.is_empty() && !tls.has_unsent() {
                return Ok(());
            }
            frames = &frames[tls.seal(frames)?..];
        }
    }

    /// Puts decrypted bytes into `bytes`, at least one; `read` waits for bytes of the system.
    pub(super) fn read_sealed(
        &self,
        tls: &Tls,
        bytes: &mut [u8],
        read: impl Fn(&mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        let mut began = None;
        loop {
            match tls.take(bytes)? {
                0 => {}
                taken => return Ok(taken),
            }
            // A host that sends what has no bytes of a frame keeps this thread no longer than one
            // that sends a frame slowly.
            check_pace(&mut began)?;
            let came = read(bytes)?;
            let put = tls.put(&bytes[..came]);
            // What TLS itself has to say goes now, or with what the thread that sends sends next.
            let _ = self.flush_some();
            put?;
        }
    }

    /// [`Stream::take_some`] where bytes are encrypted: 0 if those that came are no part of a
    /// frame. Does not wait within a handshake. `bytes` has room for a call's worth.
    pub(super) fn take_sealed(
        &self,
        tls: &Tls,
        bytes: &mut [u8],
        waits: bool,
    ) -> Result<Option<usize>> {
        let at_hand = tls.take(bytes)?;
        if at_hand > 0 {
            return Ok(Some(at_hand));
        }
        let Some(came) = self.take_raw(bytes, waits && !tls.is_handshaking())? else {
            return Ok(None);
        };
        let put = tls.put(&bytes[..came]);
        let flushed = self.flush_some();
        put.and(flushed)?;
        tls.take(bytes).map(Some)
    }

    /// [`Stream::put_some`] where bytes are encrypted. What is taken may wait to be sent.
    pub(super) fn put_sealed(&self, tls: &Tls, bytes: &[u8]) -> Result<Option<usize>> {
        if !self.flush_some()? {
            return Ok(None);
        }
        let sealed = tls.seal(bytes)?;
        self.flush_some()?;
        Ok(Some(sealed))
    }

    /// Sends what was taken and waits, without waiting itself; returns true if nothing is left.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the other side has gone; [`Error::Io`].
    pub(crate) fn flush_some(&self) -> Result<bool> {
        let Some(tls) = &self.tls else { return Ok(true) };
        let _sending = match self.sending.try_lock() {
            Ok(sending) => sending,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The thread that sends takes it along.
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        let flags = SEND_FLAGS | SendFlags::DONTWAIT;
        tls.flush(|bytes| match self.send_some(bytes, &[], flags) {
            Err(Error::TimedOut) => Ok(None),
            sent => sent.map(Some),
        })
    }

    /// Returns true if something that was taken waits to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unsent())
    }

    /// Returns true if bytes have come that [`Stream::take_some`] has not given out yet, and of
    /// which the system does not tell.
    pub(crate) fn has_plain(&self) -> bool {
        if let Socket::Rdma(stream) = &self.socket {
            return stream.has_some();
        }
        self.tls.as_ref().is_some_and(|tls| tls.has_plain())
    }

    /// Bytes that are kept for the other side.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.kept_bytes())
    }

    /// Tells the other side that the connection ends by intent, if that can be done at once.
    pub(super) fn say_goodbye(&self) {
        if let Some(tls) = &self.tls {
            tls.say_goodbye();
            // One that has gone needs no goodbye.
            let _ = self.flush_some();
        }
    }
}

/// Says with whom a handshake failed.
fn in_handshake(host: &str, port: u16, error: Error) -> Error {
    let with = format!("shake hands (TLS) with port {port} of {host}");
    match error {
        Error::Invalid(what) => Error::invalid(format!("port {port} of {host}: {what}")),
        Error::Closed => {
            let text = "the other side ends the connection; does it speak TLS at this port?";
            Error::io(with, std::io::Error::new(std::io::ErrorKind::UnexpectedEof, text))
        }
        Error::TimedOut => Error::io(with, std::io::Error::from(std::io::ErrorKind::TimedOut)),
        Error::Io { source, .. } => Error::Io { operation: with.into(), source },
        other => other,
    }
}
