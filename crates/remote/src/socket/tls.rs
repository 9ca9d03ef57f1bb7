//! TLS by rustls: only with the feature `tls`, because its cryptography compiles C.
//!
//! What a connection knows of its encryption neither reads nor writes: `sealed.rs` does. A record
//! that has not come whole is kept here, and not in rustls, so that its bytes are counted.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, MutexGuard, PoisonError},
};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig,
    ServerConnection,
    client::Resumption,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::NoServerSessionStorage,
};

use crate::{
    error::{Error, Result},
    message::{
        Reply,
        format::{GREETING_BYTES_MAX, HEAD_BYTES, LENGTH_BYTES, failure},
        frame_len,
    },
    primitive::Mutex,
};

/// The bytes of a record before its content: type, version and length (RFC 8446, section 5.1).
const RECORD_HEAD_BYTES: usize = 5;

/// The most bytes of an encrypted record's content: 2^14 and what a cipher of TLS 1.2 may add (RFC
/// 5246, section 6.2.3).
const RECORD_BYTES_MAX: usize = (16 << 10) + (2 << 10);

/// The most bytes of the other side's handshake. A chain of certificates has some thousands, and a
/// client's part without one some hundreds.
const HANDSHAKE_BYTES_MAX: usize = 32 << 10;

/// Bytes that are encrypted at once: two records, so that a call of the system for each does not
/// matter. What a slow client has a host keep of them is little more.
const SEALED_BYTES: usize = 32 << 10;

/// Said to a client that greets a TLS port in the clear.
const SPEAK_TLS: &str = "this port speaks TLS: its address begins with tcps:";

fn unusable(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::InvalidArgument(format!("cannot use {}: {error}", path.display()).into())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, error))?;
    if certificates.is_empty() {
        return Err(unusable(path, "there is no certificate in it"));
    }
    Ok(certificates)
}

/// A host's certificate and its key.
#[derive(Clone)]
pub(crate) struct Identity(Arc<ServerConfig>);

impl Identity {
    /// Reads a chain of certificates and the key of its first, both PEM.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] that names the file that cannot be read or does not fit.
    pub(crate) fn load(chain: &Path, key: &Path) -> Result<Self> {
        let certificates = certificates(chain)?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(certificates, secret)
            })
            .map_err(|error| unusable(chain, error))?;
        // Connections last, so that nothing need be kept for those that come again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// The state of a new connection.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if rustls refuses the settings.
    pub(super) fn begin(&self) -> Result<Tls> {
        let connection = ServerConnection::new(Arc::clone(&self.0));
        let connection = connection.map_err(|error| Error::InvalidArgument(text(&error).into()))?;
        Ok(Tls::new(connection.into(), true))
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is nobody's to read.
        f.write_str("Identity")
    }
}

/// The authorities whose certificates a client trusts.
#[derive(Clone)]
pub(crate) struct Roots(Arc<ClientConfig>);

impl Roots {
    /// Reads the certificates of authorities, PEM.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] that names the file that cannot be read or does not fit, and if
    /// there is none.
    pub(crate) fn load(paths: &[PathBuf]) -> Result<Self> {
        if paths.is_empty() {
            let text = "a host over TLS needs the certificate of an authority that is trusted \
                        (root_certificates, --cacert FILE)";
            return Err(Error::InvalidArgument(text.into()));
        }
        let mut roots = RootCertStore::empty();
        for path in paths {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| unusable(path, text(&error)))?;
            }
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::InvalidArgument(text(&error).into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// The state of a new connection to a host of this name or IP address.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if it is neither.
    pub(super) fn begin(&self, host: &str) -> Result<Tls> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::InvalidArgument(format!("no certificate is for the name {host:?}").into())
        })?;
        let connection = ClientConnection::new(Arc::clone(&self.0), name);
        let connection = connection.map_err(|error| Error::InvalidArgument(text(&error).into()))?;
        Ok(Tls::new(connection.into(), false))
    }
}

impl std::fmt::Debug for Roots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Roots")
    }
}

/// What a connection knows of its encryption.
pub(super) struct Tls {
    state: Mutex<TlsState>,
}

struct TlsState {
    connection: Connection,
    /// True for a host that has heard nothing yet.
    is_new_host: bool,
    /// Bytes of a record that has not come whole.
    partial: Vec<u8>,
    /// Decrypted bytes, of which the first `taken` were taken.
    plain: Vec<u8>,
    taken: usize,
    /// Bytes for the other side, of which the first `sent` were sent.
    unsent: Vec<u8>,
    sent: usize,
    /// Bytes of the other side's handshake.
    handshake_bytes: usize,
    /// True once the other side has said that it sends nothing more.
    is_ended: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    fn new(connection: Connection, is_new_host: bool) -> Self {
        let mut state = TlsState {
            connection,
            is_new_host,
            partial: Vec::new(),
            plain: Vec::new(),
            taken: 0,
            unsent: Vec::new(),
            sent: 0,
            handshake_bytes: 0,
            is_ended: false,
        };
        // A client speaks first.
        state.collect();
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, TlsState> {
        // Nothing that panics is called while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true until both sides know each other's keys.
    pub(super) fn is_handshaking(&self) -> bool {
        self.state().connection.is_handshaking()
    }

    /// Takes bytes that came from the other side. There may be something to be sent after that,
    /// also after an error.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if they are not what they must be.
    pub(super) fn put(&self, bytes: &[u8]) -> Result<()> {
        let state = &mut *self.state();
        let put = state.put(bytes);
        state.collect();
        put
    }

    /// Moves decrypted bytes to `out`; returns their number.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after the last ones, once the other side has said that they are.
    pub(super) fn take(&self, out: &mut [u8]) -> Result<usize> {
        let state = &mut *self.state();
        let plain = &state.plain[state.taken..];
        if plain.is_empty() && state.is_ended {
            return Err(Error::Closed);
        }
        let taken = plain.len().min(out.len());
        out[..taken].copy_from_slice(&plain[..taken]);
        state.taken += taken;
        if state.taken == state.plain.len() {
            (state.plain, state.taken) = (Vec::new(), 0);
        }
        Ok(taken)
    }

    /// Returns true if [`Tls::take`] has bytes to give.
    pub(super) fn has_plain(&self) -> bool {
        !self.state().plain.is_empty()
    }

    /// Encrypts some first bytes of `plain`; returns their number, which is 0 for none alone. They
    /// are to be sent then.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if rustls takes none.
    pub(super) fn seal(&self, plain: &[u8]) -> Result<usize> {
        let state = &mut *self.state();
        let some = &plain[..plain.len().min(SEALED_BYTES)];
        let sealed = state.connection.writer().write(some);
        let sealed = sealed.map_err(|error| Error::io("encrypt a frame", error))?;
        state.collect();
        if sealed == 0 && !some.is_empty() {
            return Err(Error::Closed);
        }
        Ok(sealed)
    }

    /// Returns true if there are bytes to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        !self.state().unsent.is_empty()
    }

    /// The bytes that are to be sent, which the caller sends.
    pub(super) fn take_unsent(&self) -> Vec<u8> {
        let state = &mut *self.state();
        let mut unsent = std::mem::take(&mut state.unsent);
        unsent.drain(..std::mem::take(&mut state.sent));
        unsent
    }

    /// Has `send` send what is to be sent; returns true if nothing is left. `send` returns how many
    /// first bytes it has sent, or `None` if there is no room now, and does not wait.
    ///
    /// # Errors
    ///
    /// Those of `send`.
    pub(super) fn flush(
        &self,
        mut send: impl FnMut(&[u8]) -> Result<Option<usize>>,
    ) -> Result<bool> {
        let state = &mut *self.state();
        while state.sent < state.unsent.len() {
            match send(&state.unsent[state.sent..])? {
                Some(sent) => state.sent += sent,
                None => return Ok(false),
            }
        }
        (state.unsent, state.sent) = (Vec::new(), 0);
        Ok(true)
    }

    /// Has the other side be told that the connection ends by intent.
    pub(super) fn say_goodbye(&self) {
        let state = &mut *self.state();
        state.connection.send_close_notify();
        state.collect();
    }

    /// Bytes that are kept for the other side. What rustls itself keeps besides is some kilobytes.
    pub(super) fn kept_bytes(&self) -> usize {
        let state = self.state();
        let handshake = if state.connection.is_handshaking() { state.handshake_bytes } else { 0 };
        state.partial.len() + state.plain.len() + state.unsent.len() + handshake
    }
}

impl TlsState {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if std::mem::take(&mut self.is_new_host)
            && let Some(refusal) = refuse_plain(bytes)
        {
            self.unsent = refusal;
            return Err(Error::invalid("a client that does not speak TLS"));
        }
        if self.connection.is_handshaking() {
            self.handshake_bytes += bytes.len();
            if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
                return Err(Error::invalid(format!(
                    "a handshake (TLS) of over {HANDSHAKE_BYTES_MAX} bytes"
                )));
            }
        }
        let mut before = std::mem::take(&mut self.partial);
        let mut left = bytes;
        if !before.is_empty() {
            before.extend_from_slice(bytes);
            left = &before;
        }
        while let Some(len) = record_len(left)
            && len <= left.len()
        {
            let (record, others) = left.split_at(len);
            self.put_record(record).map_err(|error| Error::invalid(text(&error)))?;
            left = others;
        }
        self.partial = left.to_vec();
        Ok(())
    }

    /// Takes a whole record, or what is none.
    fn put_record(&mut self, mut record: &[u8]) -> Result<(), rustls::Error> {
        while !record.is_empty() && !self.is_ended {
            let read = self.connection.read_tls(&mut record);
            if read.map_err(|error| rustls::Error::General(error.to_string()))? == 0 {
                break;
            }
            let state = self.connection.process_new_packets()?;
            let (begin, bytes) = (self.plain.len(), state.plaintext_bytes_to_read());
            self.plain.resize(begin + bytes, 0);
            let read = self.connection.reader().read_exact(&mut self.plain[begin..]);
            read.map_err(|error| rustls::Error::General(error.to_string()))?;
            self.is_ended = state.peer_has_closed();
        }
        Ok(())
    }

    /// Takes what the connection has for the other side.
    fn collect(&mut self) {
        while self.connection.wants_write() {
            // A vector takes everything.
            let written: io::Result<usize> = self.connection.write_tls(&mut self.unsent);
            if !matches!(written, Ok(1..)) {
                break;
            }
        }
    }
}

/// The length of the record that `bytes` begin with, its head included; `None` if that has not
/// come. What is no record has the length of all that came: rustls says what is wrong with it.
fn record_len(bytes: &[u8]) -> Option<usize> {
    let [kind, rest @ ..] = bytes else { return None };
    // Types of content, and the major version of all versions (RFC 8446, section 5.1).
    let is_record = (20..=23).contains(kind) && rest.first().is_none_or(|major| *major == 3);
    if !is_record {
        return Some(bytes.len());
    }
    let length = u16::from_be_bytes([*bytes.get(3)?, *bytes.get(4)?]);
    if usize::from(length) > RECORD_BYTES_MAX {
        return Some(bytes.len());
    }
    Some(RECORD_HEAD_BYTES + usize::from(length))
}

/// The answer to a client that greets the host in the clear; `None` if these bytes are no greeting.
fn refuse_plain(bytes: &[u8]) -> Option<Vec<u8>> {
    let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let (length, rest) = head.split_first_chunk::<LENGTH_BYTES>()?;
    if frame_len(*length).ok()? > GREETING_BYTES_MAX {
        return None;
    }
    let id = u32::from_le_bytes(*rest.last_chunk()?);
    let mut refusal = Vec::new();
    let reply = Reply::Failed { code: failure::REFUSED, text: SPEAK_TLS };
    reply.encode(id, &mut refusal).ok().map(|()| refusal)
}

/// What went wrong, for people.
fn text(error: &rustls::Error) -> String {
    use CertificateError as Wrong;
    let what = match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => "its certificate has expired",
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                "its certificate is not valid yet"
            }
            Wrong::UnknownIssuer => "its certificate is of no authority that is trusted here",
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "its certificate is for another name"
            }
            _ => "its certificate cannot be trusted",
        },
        rustls::Error::InvalidMessage(_) => "what it sends is not TLS",
        rustls::Error::AlertReceived(_) => "it refuses the connection (TLS)",
        _ => return format!("TLS: {error}"),
    };
    format!("{what} ({error})")
}
