//! The host's way to use a connection: bytes as they come and as they go. No call waits for longer
//! than it is told, so that a thread serves many connections.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    net::{RecvFlags, SendFlags, recv},
};

use super::{SEND_FLAGS, Socket, Stream};
use crate::error::{Error, Result};

impl Stream {
    /// Takes bytes that came; `None` if there are none. If it `waits`, they have the time to come
    /// that [`Stream::set_timeouts`] has set. Descriptors beside them are closed by the system.
    /// There may be 0 bytes where they are encrypted, because not all that comes is part of a
    /// frame. `bytes` has room.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the other side has gone; [`Error::Invalid`] for what is not encrypted
    /// as it must be; [`Error::Io`].
    pub(crate) fn take_some(&self, bytes: &mut [u8], waits: bool) -> Result<Option<usize>> {
        match &self.tls {
            None => self.take_raw(bytes, waits),
            Some(tls) => self.take_sealed(tls, bytes, waits),
        }
    }

    /// Takes bytes of the system, at least one.
    pub(super) fn take_raw(&self, bytes: &mut [u8], waits: bool) -> Result<Option<usize>> {
        if let Socket::Rdma(stream) = &self.socket {
            return if waits { stream.take_soon(bytes) } else { stream.take(bytes) };
        }
        let flags = if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match retry_on_intr(|| recv(&self.socket, &mut *bytes, flags)) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Err(Error::Closed),
            Ok((taken, _)) => Ok(Some(taken)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(Error::io("receive a frame", error)),
        }
    }

    /// Takes some first bytes of `bytes`, at least one, with all of `fds`, to send them; `None` if
    /// the system takes none now. Does not wait. Where bytes are encrypted, what was taken is sent
    /// once [`Stream::flush_some`] has said so.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the other side has gone; [`Error::Io`].
    pub(crate) fn put_some(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Option<usize>> {
        if let Some(tls) = &self.tls {
            return self.put_sealed(tls, bytes);
        }
        match self.send_some(bytes, fds, SEND_FLAGS | SendFlags::DONTWAIT) {
            Err(Error::TimedOut) => Ok(None),
            sent => sent.map(Some),
        }
    }

    /// Returns true if the other side has ended the connection, whatever is still to be read. A
    /// stream by RDMA does not know.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(crate) fn has_hung_up(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        !matches!(self.socket, Socket::Rdma(_)) && matches!(poll(&mut fds, Some(&now)), Ok(1))
    }

    /// Returns true if something has come, or the connection has ended.
    pub(crate) fn has_some(&self) -> bool {
        if let Socket::Rdma(stream) = &self.socket {
            return stream.has_some();
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&now)), Ok(1))
    }

    /// Waits until [`Stream::put_some`] finds room, or the time is over.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn wait_for_room(&self, time: Duration) -> Result<()> {
        if let Socket::Rdma(stream) = &self.socket {
            return stream.wait_for_room(time);
        }
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io("wait for a client", error)),
        }
    }
}

impl Stream {
    /// Returns true if the other side has not acknowledged all that [`Stream::put_some`] took, and
    /// the system does not see to it by itself.
    pub(crate) fn is_sending(&self) -> bool {
        matches!(&self.socket, Socket::Rdma(stream) if stream.is_sending())
    }

    /// Sees to it that what was put in arrives if the other side is there, although the connection
    /// is about to be ended. Waits for a moment at most.
    pub(crate) fn finish(&self) {
        if let Socket::Rdma(stream) = &self.socket {
            stream.finish();
        }
    }

    /// What to watch until something has come, after a [`Stream::take_some`] that found nothing, or
    /// until there is room, after a [`Stream::put_some`] that found none; and if that is told by
    /// there being something to read.
    pub(crate) fn watched(&self, for_room: bool) -> (BorrowedFd<'_>, bool) {
        match &self.socket {
            Socket::Rdma(stream) if for_room => (stream.has_room(), true),
            socket => (socket.as_fd(), !for_room),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
