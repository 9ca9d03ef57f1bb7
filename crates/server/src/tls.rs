//! TLS, by rustls: only with the feature `tls`, because its cryptography compiles C.
//!
//! A client that does not end its handshake within `limits.handshake-seconds` is closed by the same
//! watch as one that does not say its password.

use std::{io, path::Path, sync::Arc};

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::{
    clients::ClientInfo, config::Config, config_error::ConfigError, connection, server::Server,
    worker_state::WorkerState, workers::Assign,
};

fn unreadable(path: &Path, error: impl std::fmt::Display) -> ConfigError {
    ConfigError(format!("cannot use {}: {error}", path.display()))
}

/// What makes a TLS connection of a socket, with the certificate and the key that `config` names.
///
/// # Errors
///
/// If one of the files is not named, cannot be read, or does not fit the other.
pub(crate) fn acceptor(config: &Config) -> Result<TlsAcceptor, ConfigError> {
    let (Some(cert), Some(key)) = (&config.tls_cert, &config.tls_key) else {
        return Err(ConfigError("TLS needs both --tls-cert and --tls-key".to_owned()));
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(cert, error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
    let settings = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
        .map_err(|error| unreadable(cert, error))?;
    Ok(TlsAcceptor::from(Arc::new(settings)))
}

/// Accepts until it is aborted.
pub(crate) async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    assign: Assign,
) {
    loop {
        let (socket, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                crate::accept::accept_failed(&server, &error).await;
                continue;
            }
        };
        crate::accept::prepare(&socket);
        let to = socket.local_addr().map_or(String::new(), |address| address.to_string());
        // Past the limit the socket is closed: no error can be said before the handshake.
        let Some(info) = crate::accept::enter(&server, from.to_string(), to) else { continue };
        let (id, serving, acceptor) = (info.id, Arc::clone(&server), acceptor.clone());
        let serve = |socket, worker| serve_one(serving, acceptor, socket, info, worker);
        if assign.serve(socket, serve).is_err() {
            server.clients.leave(id);
        }
    }
}

async fn serve_one(
    server: Arc<Server>,
    acceptor: TlsAcceptor,
    socket: io::Result<TcpStream>,
    info: Arc<ClientInfo>,
    worker: Arc<WorkerState>,
) {
    let handshake = async { acceptor.accept(socket?).await };
    let stream = tokio::select! {
        biased;
        () = info.killed() => None,
        stream = handshake => stream.ok(),
    };
    match stream {
        Some(stream) => connection::serve(server, stream, info, worker).await,
        None => server.clients.leave(info.id),
    }
}
