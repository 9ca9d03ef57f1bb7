//! Connections over TCP: how they are made, and bytes that come ahead of the frame that is wanted.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use rustix::{io::Errno, net::sockopt};

use super::{Identity, Socket, Stream};
use crate::error::{Error, Result};

/// How long a client waits for one address of a host to answer: the system itself would wait for
/// two minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a frame may take from its first byte to its last: the longest frame over a link of 5
/// Mbit/s. A peer that sends a byte now and then keeps a connection for no longer.
const FRAME_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_secs(3) } else { Duration::from_secs(30) };

/// How long a connection is silent before the system asks if the other machine is there, and the
/// time between two such questions: a machine that lost its power is noticed after a minute.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Questions without an answer after which a connection ends: the loss of three packets in a row
/// ends none.
const KEEPALIVE_PROBES: u32 = 3;

/// Bytes that a connection reads ahead: some hundreds of short requests, each of which would take a
/// call of the system otherwise.
pub(super) const AHEAD_BYTES: usize = 16 << 10;

/// Bytes that came with those of earlier frames.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Empty until something came.
    bytes: Vec<u8>,
    /// Those between the two are still to be taken.
    begin: usize,
    end: usize,
}

impl Ahead {
    /// Puts bytes that are next into `out`, at least one: what `read` puts into what it is given,
    /// if none are at hand. What is large is read into `out` itself.
    pub(super) fn take(
        &mut self,
        out: &mut [u8],
        read: &mut impl FnMut(&mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        if self.begin == self.end {
            if out.len() >= AHEAD_BYTES {
                return read(out);
            }
            self.bytes.resize(AHEAD_BYTES, 0);
            (self.begin, self.end) = (0, 0);
            self.end = read(&mut self.bytes)?;
        }
        let len = out.len().min(self.end - self.begin);
        out[..len].copy_from_slice(&self.bytes[self.begin..self.begin + len]);
        self.begin += len;
        Ok(len)
    }
}

/// Refuses a frame that takes too long. `began` is when a part of it had come first.
pub(super) fn check_pace(began: &mut Option<Instant>) -> Result<()> {
    let now = Instant::now();
    if now.duration_since(*began.get_or_insert(now)) > FRAME_TIMEOUT {
        return Err(Error::TimedOut);
    }
    Ok(())
}

impl Stream {
    /// Connects to a host on a port of a machine, at the first of the machine's addresses that
    /// answers.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the name is not known, or nobody listens there.
    pub(crate) fn connect_tcp(host: &str, port: u16) -> Result<Self> {
        let failed = |error| Error::io(format!("connect to port {port} of {host}"), error);
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(socket) => return Self::new_tcp(socket),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    fn new_tcp(socket: TcpStream) -> Result<Self> {
        prepare(&socket).map_err(|error| Error::io("prepare a connection", error))?;
        Self::new(Socket::Tcp(socket))
    }
}

/// Has short frames sent at once, and a machine that has gone noticed.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    Ok(())
}

/// A port that clients on other machines connect to.
#[derive(Debug)]
pub(crate) struct TcpPort {
    socket: TcpListener,
    address: SocketAddr,
    /// How those that connect are spoken to, where that is encrypted.
    identity: Option<Identity>,
}

impl TcpPort {
    /// Listens on an address, for clients that speak TLS if there is an identity; the port 0 stands
    /// for any that is free.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if another program listens there, or it is no address of this machine.
    pub(crate) fn bind(address: SocketAddr, identity: Option<Identity>) -> Result<Self> {
        let failed = |error| Error::io(format!("listen on {address}"), error);
        let socket = TcpListener::bind(address).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, address, identity })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a client; says from which address it comes.
    ///
    /// # Errors
    ///
    /// As [`Listener::accept`](super::Listener::accept).
    pub(crate) fn accept(&self) -> Result<(Stream, IpAddr)> {
        let (socket, address) = self.socket.accept().map_err(|error| {
            // What the system answers for a socket that was shut down.
            if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
                return Error::Closed;
            }
            Error::io("accept a connection", error)
        })?;
        let mut stream = Stream::new_tcp(socket)?;
        if let Some(identity) = &self.identity {
            stream = stream.with_identity(identity)?;
        }
        Ok((stream, address.ip().to_canonical()))
    }

    /// Wakes threads that wait in [`accept`](Self::accept), and refuses new connections from now
    /// on.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] on systems other than Linux, which have no such call for a listener.
    pub(crate) fn shutdown(&self) -> Result<()> {
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both)
            .map_err(|error| Error::io("stop listening", error))
    }
}
