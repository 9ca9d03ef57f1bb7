//! Frames over a Unix socket, with descriptors beside them, and over TCP, without.
//!
//! Calls block, but for those of `parts.rs`, which a host uses. A [`Stream`] may be shared by
//! threads: one receives while another sends, and frames of several senders do not mix. A stream
//! that was cut off within a frame, in either direction, is closed, because nobody can tell where
//! the next frame begins.
//!
//! Descriptors belong to the frame whose bytes they came with. The system delivers them with the
//! first byte that they were sent with, but may glue bytes that came without any before it. So a
//! read of a Unix socket never asks for a byte beyond the frame that it is in: two calls for a
//! short frame. Over TCP, where nothing comes beside the bytes, a read takes what is there: one
//! call for several short frames.
//!
//! Over TCP the bytes may be encrypted (`tls.rs`, `sealed.rs`). Between machines that have RDMA a
//! connection may go by sends in place of TCP (`verbs`).

mod listener;
mod parts;
#[cfg(not(all(feature = "rdma", target_os = "linux")))]
#[path = "without_rdma.rs"]
mod rdma;
mod sealed;
mod tcp;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{IpAddr, Shutdown, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    cmsg_space,
    io::{Errno, retry_on_intr},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
    },
};

#[cfg(not(all(feature = "rdma", target_os = "linux")))]
use self::rdma::ByteStream;
pub(crate) use self::{
    listener::Listener,
    tcp::TcpPort,
    tls::{Identity, Roots},
};
use self::{tcp::Ahead, tls::Tls};
#[cfg(all(feature = "rdma", target_os = "linux"))]
use crate::verbs::ByteStream;
use crate::{
    error::{Error, Result},
    message::{
        format::{LENGTH_BYTES, SEGMENTS_MAX},
        frame_len,
    },
    primitive::Mutex,
};

/// The most descriptors beside a frame: one for each segment that it may announce.
const FDS_MAX: usize = SEGMENTS_MAX;

/// The most bytes by which a frame's buffer grows before they have come. A peer that announces a
/// long frame and sends nothing makes this side keep this much, and a longer frame costs a call for
/// each.
const STEP_BYTES: usize = 64 << 10;

/// Received descriptors are closed in a program that this one starts.
#[cfg(not(target_vendor = "apple"))]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
/// This system has no such flag: [`take_fds`] sets it on each descriptor.
#[cfg(target_vendor = "apple")]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();

/// A peer that has gone is an error and not a signal.
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
/// This system has no such flag: [`Stream::new`] sets an option of the socket.
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: SendFlags = SendFlags::empty();

/// The user at the other end of a connection, as the system knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The effective user when the connection was made.
    pub(crate) uid: u32,
    /// The effective group when the connection was made.
    pub(crate) gid: u32,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// A user of this machine.
    User(Peer),
    /// An address, which may be another machine's.
    Address(IpAddr),
}

/// What came beside a frame.
#[derive(Debug)]
pub(crate) struct Received {
    /// The descriptors, in the order in which they were sent. At most 16; dropping one closes it.
    pub(crate) fds: Vec<OwnedFd>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    /// What the bytes on the socket mean, where they are encrypted.
    tls: Option<Box<Tls>>,
    /// Held while a frame is sent. True once one was cut off.
    sending: Mutex<bool>,
    /// Held while a frame is received.
    receiving: Mutex<Receiving>,
}

/// Where clients connect.
#[derive(Debug)]
pub(crate) enum Door {
    /// A socket in the file system.
    Unix(Listener),
    /// A port.
    Tcp(TcpPort),
}

impl Door {
    /// Waits for a client; says from where it comes.
    ///
    /// # Errors
    ///
    /// As [`Listener::accept`].
    pub(crate) fn accept(&self) -> Result<(Stream, Other)> {
        match self {
            Self::Unix(listener) => {
                listener.accept().map(|(stream, peer)| (stream, Other::User(peer)))
            }
            Self::Tcp(port) => {
                port.accept().map(|(stream, address)| (stream, Other::Address(address)))
            }
        }
    }

    /// Wakes threads that wait in [`accept`](Self::accept), and refuses new connections from now
    /// on.
    ///
    /// # Errors
    ///
    /// As [`Listener::shutdown`].
    pub(crate) fn shutdown(&self) -> Result<()> {
        match self {
            Self::Unix(listener) => listener.shutdown(),
            Self::Tcp(port) => port.shutdown(),
        }
    }
}

/// What carries the bytes of a connection.
#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
    #[cfg_attr(
        not(all(feature = "rdma", target_os = "linux")),
        expect(dead_code, reason = "there is none")
    )]
    Rdma(Box<ByteStream>),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
            Self::Rdma(stream) => stream.came(),
        }
    }
}

/// The state of the direction in which frames come.
#[derive(Debug, Default)]
struct Receiving {
    /// True once a frame was cut off.
    is_cut: bool,
    /// Bytes that came with those of the frames before; none on a Unix socket.
    ahead: Ahead,
}

/// What came of a frame so far.
#[derive(Default)]
struct Partial {
    /// Bytes that came; the frame's buffer may be longer.
    filled: usize,
    fds: Vec<OwnedFd>,
    /// When the first of them came, where there is a limit on the time of a frame.
    began: Option<Instant>,
}

impl Stream {
    /// Connects to the host that listens on `path`. Waits while the host's queue is full.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if nobody listens there, or this user may not connect.
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        loop {
            match UnixStream::connect(path) {
                Ok(socket) => return Self::new(Socket::Unix(socket)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::io(format!("connect to {}", path.display()), error));
                }
            }
        }
    }

    fn new(socket: Socket) -> Result<Self> {
        #[cfg(target_vendor = "apple")]
        rustix::net::sockopt::set_socket_nosigpipe(&socket, true)
            .map_err(|error| Error::io("prepare a connection", error))?;
        Ok(Self { socket, tls: None, sending: Mutex::new(false), receiving: Mutex::default() })
    }

    /// A connection by RDMA, which stands for one over TCP.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(crate) fn by_rdma(stream: ByteStream) -> Result<Self> {
        Self::new(Socket::Rdma(Box::new(stream)))
    }

    /// Returns true if the other side may be on another machine, so that no descriptors come: over
    /// TCP, and by RDMA.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.socket, Socket::Tcp(_) | Socket::Rdma(_))
    }

    /// The address of this machine that the other side reaches.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Unsupported`] for a Unix socket, which has none.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(crate) fn local_address(&self) -> Result<std::net::IpAddr> {
        let Socket::Tcp(socket) = &self.socket else {
            return Err(Error::Unsupported("RDMA over a connection that is not TCP's".into()));
        };
        let address = socket.local_addr();
        let address =
            address.map_err(|error| Error::io("ask for a connection's address", error))?;
        Ok(address.ip().to_canonical())
    }

    /// The user at the other end.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a system that does not tell.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn peer(&self) -> Result<Peer> {
        let peer = rustix::net::sockopt::socket_peercred(&self.socket)
            .map_err(|error| Error::io("ask who is at the other end", error))?;
        Ok(Peer { uid: peer.uid.as_raw(), gid: peer.gid.as_raw() })
    }

    /// The user at the other end.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a system that does not tell.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn peer(&self) -> Result<Peer> {
        Err(Error::Unsupported("this system does not tell which user is at the other end".into()))
    }

    /// Sends one whole frame, its length included, and descriptors with its first byte. They stay
    /// the caller's. Waits until the system has taken all of it, which is not when it is read.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if `frame` is not one frame, or `fds` are over 16;
    /// [`Error::Closed`] if the other side has gone; [`Error::TimedOut`]; [`Error::Io`].
    pub(crate) fn send(&self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let announced = frame.first_chunk::<LENGTH_BYTES>().map(|length| frame_len(*length));
        if !matches!(announced, Some(Ok(len)) if len == frame.len()) {
            return Err(Error::InvalidArgument("what is sent is not one whole frame".into()));
        }
        if fds.len() > FDS_MAX {
            let text = format!("{} descriptors: a frame carries at most {FDS_MAX}", fds.len());
            return Err(Error::InvalidArgument(text.into()));
        }
        if !fds.is_empty() && self.is_tcp() {
            return Err(Error::InvalidArgument("descriptors do not go over TCP".into()));
        }
        self.send_frames(frame, fds)
    }

    /// Sends whole frames, one after the other, and descriptors with the first byte. What `frames`
    /// is made of is the caller's to know.
    ///
    /// # Errors
    ///
    /// As [`Stream::send`].
    pub(crate) fn send_frames(&self, frames: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut is_cut = lock(&self.sending);
        if *is_cut {
            return Err(Error::Closed);
        }
        if let Some(tls) = &self.tls {
            let sent = self.send_sealed(tls, frames);
            if sent.is_err() {
                // What was encrypted and not sent is missed by what comes after it.
                *is_cut = true;
                let _ = self.shutdown();
            }
            return sent;
        }
        let mut sent = 0;
        while sent < frames.len() {
            let with = if sent == 0 { fds } else { &[] };
            match self.send_some(&frames[sent..], with, SEND_FLAGS) {
                Ok(bytes) => sent += bytes,
                Err(error) => {
                    // By RDMA a part may have gone.
                    if sent > 0 || matches!(self.socket, Socket::Rdma(_)) {
                        *is_cut = true;
                        // The error that led here is the one to report.
                        let _ = self.shutdown();
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Sends some first bytes of `bytes`, at least one, with all of `fds`.
    fn send_some(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> Result<usize> {
        if let Socket::Rdma(stream) = &self.socket {
            if flags.contains(SendFlags::DONTWAIT) {
                return stream.put(bytes)?.ok_or(Error::TimedOut);
            }
            return stream.send(bytes).map(|()| bytes.len());
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(fds));
            debug_assert!(fits, "the space is for the most descriptors");
        }
        let bytes = [IoSlice::new(bytes)];
        retry_on_intr(|| sendmsg(&self.socket, &bytes, &mut control, flags)).map_err(|error| {
            match error {
                Errno::AGAIN => Error::TimedOut,
                Errno::PIPE | Errno::CONNRESET => Error::Closed,
                other => Error::io("send a frame", other),
            }
        })
    }

    /// Waits for one frame and leaves it in `frame`, its length included and nothing else. After an
    /// error `frame` holds what came of it. It grows to at most twice the bytes that came and 128
    /// KiB.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the other side closed the connection between two frames;
    /// [`Error::Invalid`] for a length that no frame has, before anything is allocated, and for
    /// over 16 descriptors; [`Error::TimedOut`]; and [`Error::Io`], also if the connection ends
    /// within a frame. Descriptors that came are closed then, and after any error but a time-out
    /// between two frames the connection is closed.
    pub(crate) fn receive(&self, frame: &mut Vec<u8>) -> Result<Received> {
        frame.clear();
        let mut receiving = lock(&self.receiving);
        if receiving.is_cut {
            return Err(Error::Closed);
        }
        let mut partial = Partial::default();
        let result = self.receive_frame(frame, &mut partial, &mut receiving.ahead);
        frame.truncate(partial.filled);
        match result {
            Ok(()) => Ok(Received { fds: partial.fds }),
            Err(Error::TimedOut) if partial.filled == 0 => Err(Error::TimedOut),
            Err(error) => {
                receiving.is_cut = true;
                // The error that led here is the one to report.
                let _ = self.shutdown();
                Err(error)
            }
        }
    }

    fn receive_frame(
        &self,
        frame: &mut Vec<u8>,
        partial: &mut Partial,
        ahead: &mut Ahead,
    ) -> Result<()> {
        frame.resize(LENGTH_BYTES, 0);
        self.fill(frame, partial, ahead)?;
        let mut length = [0; LENGTH_BYTES];
        length.copy_from_slice(frame);
        let len = frame_len(length)?;
        while partial.filled < len {
            frame.resize(len.min(partial.filled + STEP_BYTES), 0);
            self.fill(frame, partial, ahead)?;
        }
        Ok(())
    }

    /// Receives all of `frame` after what came of it.
    fn fill(&self, frame: &mut [u8], partial: &mut Partial, ahead: &mut Ahead) -> Result<()> {
        while partial.filled < frame.len() {
            let filled = partial.filled;
            let bytes = match &self.socket {
                Socket::Unix(_) => {
                    self.receive_some(&mut frame[filled..], filled, &mut partial.fds)?
                }
                Socket::Tcp(_) | Socket::Rdma(_) => {
                    let mut read = |bytes: &mut [u8]| self.read_some(bytes, filled);
                    ahead.take(&mut frame[filled..], &mut read)?
                }
            };
            partial.filled += bytes;
            if self.is_tcp() && partial.filled < frame.len() {
                tcp::check_pace(&mut partial.began)?;
            }
        }
        Ok(())
    }

    /// Receives some bytes, at least one, of a frame of which `filled` came before.
    fn receive_some(
        &self,
        bytes: &mut [u8],
        filled: usize,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(bytes)];
        let received =
            retry_on_intr(|| recvmsg(&self.socket, &mut bytes, &mut control, RECEIVE_FLAGS));
        let received = received.map_err(|error| receive_error(error, filled))?;
        take_fds(&mut control, received.flags.contains(ReturnFlags::CTRUNC), fds)?;
        check_received(received.bytes, filled)
    }

    /// [`Stream::receive_some`] where no descriptors come.
    fn read_some(&self, bytes: &mut [u8], filled: usize) -> Result<usize> {
        if let Socket::Rdma(stream) = &self.socket {
            return match stream.receive(bytes) {
                Err(Error::Closed) => check_received(0, filled),
                received => received,
            };
        }
        let read = |bytes: &mut [u8]| {
            let received = retry_on_intr(|| recv(&self.socket, &mut *bytes, RecvFlags::empty()));
            let (received, _) = received.map_err(|error| receive_error(error, filled))?;
            check_received(received, filled)
        };
        match &self.tls {
            None => read(bytes),
            Some(tls) => self.read_sealed(tls, bytes, read),
        }
    }

    /// Bounds how long one call of the system waits, in each direction; none means for ever. A
    /// frame that comes or goes in several pieces may take this long for each.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a time is zero, or the system refuses it.
    pub(crate) fn set_timeouts(
        &self,
        receive: Option<Duration>,
        send: Option<Duration>,
    ) -> Result<()> {
        let set = match &self.socket {
            Socket::Unix(socket) => {
                socket.set_read_timeout(receive).and_then(|()| socket.set_write_timeout(send))
            }
            Socket::Tcp(socket) => {
                socket.set_read_timeout(receive).and_then(|()| socket.set_write_timeout(send))
            }
            Socket::Rdma(stream) => {
                stream.set_timeouts(receive, send);
                Ok(())
            }
        };
        set.map_err(|error| Error::io("set a connection's timeouts", error))
    }

    /// Ends the connection in both directions. Threads that wait in [`receive`](Self::receive) or
    /// [`send`](Self::send) return an error. What was sent before still arrives.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the system refuses. A connection that has ended already is none.
    pub(crate) fn shutdown(&self) -> Result<()> {
        self.say_goodbye();
        let ended = match &self.socket {
            Socket::Unix(socket) => socket.shutdown(Shutdown::Both),
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Socket::Rdma(stream) => return stream.shutdown(),
        };
        match ended {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => {
                Err(Error::io("end a connection", error))
            }
            _ => Ok(()),
        }
    }
}

/// The error if nothing more can be received of a frame of which `filled` bytes came.
fn receive_error(error: Errno, filled: usize) -> Error {
    match error {
        Errno::AGAIN => Error::TimedOut,
        Errno::CONNRESET if filled == 0 => Error::Closed,
        other => Error::io("receive a frame", other),
    }
}

/// Takes note of the end of a connection.
fn check_received(bytes: usize, filled: usize) -> Result<usize> {
    match (bytes, filled) {
        (0, 0) => Err(Error::Closed),
        (0, _) => {
            let text = format!("the connection ended after {filled} bytes of a frame");
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, text);
            Err(Error::io("receive a frame", source))
        }
        (bytes, _) => Ok(bytes),
    }
}

/// Moves received descriptors to `fds`.
fn take_fds(
    control: &mut RecvAncillaryBuffer<'_>,
    is_truncated: bool,
    fds: &mut Vec<OwnedFd>,
) -> Result<()> {
    let mut fresh = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fresh.extend(received);
        }
    }
    #[cfg(target_vendor = "apple")]
    for fd in &fresh {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| Error::io("keep a descriptor from other programs", error))?;
    }
    // The space is for 16: if fewer came and the rest was cut off, the system would open no more.
    if is_truncated && fresh.len() < FDS_MAX {
        return Err(Error::io("receive descriptors", Errno::MFILE));
    }
    fds.append(&mut fresh);
    if is_truncated || fds.len() > FDS_MAX {
        return Err(Error::invalid(format!("over {FDS_MAX} descriptors came with a frame")));
    }
    Ok(())
}

/// A thread that panicked in here left a state that is right: it is set as soon as it is true.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
