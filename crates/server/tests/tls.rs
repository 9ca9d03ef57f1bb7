//! TLS: `cargo test -p rhumb-server --features tls --test tls`, which compiles C.
//!
//! Needs `openssl` on the machine, which makes the certificates; without it nothing is tested, and
//! a line says so.
#![cfg(feature = "tls")]

mod common;

use std::{
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use common::{Client, Value, config, encode, wait_until};
use rhumb_server::{Config, Limits, Running, ServeError};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

/// A new certificate for localhost, signed by itself, and its key; none if there is no openssl.
fn certificate(dir: &Path, name: &str) -> Option<(PathBuf, PathBuf)> {
    let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output();
    let Ok(output) = output else {
        println!("skipped: there is no openssl on this machine");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((cert, key))
}

fn settings(dir: &tempfile::TempDir, (cert, key): (PathBuf, PathBuf)) -> Config {
    Config {
        tls_listen: Some(([127, 0, 0, 1], 0).into()),
        tls_cert: Some(cert),
        tls_key: Some(key),
        ..config(dir)
    }
}

/// A session with the server, whose certificate must be the one in this file.
fn session(
    address: SocketAddr,
    trusted: &Path,
) -> StreamOwned<ClientConnection, std::net::TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(client), name).unwrap();
    StreamOwned::new(connection, Client::socket(address))
}

#[test]
fn clients_speak_through_tls() {
    let dir = tempfile::tempdir().unwrap();
    let Some(files) = certificate(dir.path(), "server") else { return };
    let trusted = files.0.clone();
    let server = Running::start(settings(&dir, files)).unwrap();
    let address = server.tls_address().unwrap();
    let mut client = Client::over(session(address, &trusted));
    assert_eq!(client.run("SET a 1"), Value::ok());
    assert_eq!(client.run("GET a"), Value::bulk("1"));
    assert!(matches!(client.run("HELLO 3"), Value::Map(_)));
    // The same data as without.
    let mut plain = Client::connect(server.address());
    assert_eq!(plain.run("GET a"), Value::bulk("1"));
    // Far more than the buffers of the socket, both ways, and nothing is left.
    let large = vec![b'x'; 20 << 20];
    assert_eq!(client.call_bytes(&[b"SET", b"large", &large]), Value::ok());
    for _ in 0..3 {
        client.send_raw(&encode(&[b"GET", b"large"])).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(client.reply() == Some(Value::bulk(&large)));
    }
    let many = encode(&[b"INCR", b"n"]).repeat(10_000);
    client.send_raw(&many).unwrap();
    (1..=10_000).for_each(|n| assert_eq!(client.reply(), Some(Value::Int(n))));
    server.stop().unwrap();
}

#[test]
fn other_machines_read_what_is_shared_through_tls() {
    let dir = tempfile::tempdir().unwrap();
    let Some((cert, key)) = certificate(dir.path(), "server") else { return };
    let password = dir.path().join("password");
    std::fs::write(&password, "sesame\n").unwrap();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = Config {
        share: vec!["db0".to_owned(), "users".to_owned()],
        share_tls_listen: Some(free),
        tls_cert: Some(cert.clone()),
        tls_key: Some(key),
        requirepass_file: Some(password),
        ..config(&dir)
    };
    let bare = Config { tls_key: None, ..config.clone() };
    assert!(matches!(Running::start(bare), Err(ServeError::Config(_))));
    let exchanged = Config { tls_key: Some(cert.clone()), ..config.clone() };
    assert!(matches!(Running::start(exchanged), Err(ServeError::Config(_))));
    let server = Running::start(config).unwrap();
    let mut client = Client::connect(server.address());
    client.run("AUTH sesame");
    client.run("SET greeting hello");
    let address = format!("tcps:localhost:{}", free.port());
    let builder = || rhumb_remote::Client::builder(&address).root_certificates(&cert);
    assert!(builder().token("open").connect().is_err());
    let remote = builder().token("sesame").connect().unwrap();
    assert_eq!(remote.strings(0).unwrap().get("greeting").unwrap().unwrap(), b"hello");
    let users = remote.keyspace("users").unwrap();
    let large = vec![7; 5 << 20];
    users.insert("ada", &large).unwrap();
    assert!(users.get("ada").unwrap() == Some(large));
    // A client that speaks without it is told.
    let plain = rhumb_remote::Client::connect(format!("tcp:{free}")).unwrap_err();
    assert!(plain.to_string().contains("tcps:"), "{plain}");
}

#[test]
fn who_does_not_speak_tls_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(files) = certificate(dir.path(), "server") else { return };
    let Some((other, _)) = certificate(dir.path(), "other") else { return };
    let trusted = files.0.clone();
    let limits = Limits { handshake_seconds: 1, stall_seconds: 1, ..Limits::default() };
    let server = Running::start(Config { limits, ..settings(&dir, files) }).unwrap();
    let address = server.tls_address().unwrap();
    // Silence, a command in the clear, half a handshake; and a client that trusts someone else.
    let mut silent = Client::socket(address);
    let mut plain = Client::socket(address);
    plain.write_all(b"SET a 1\r\n").unwrap();
    let mut half = Client::socket(address);
    half.write_all(&[22, 3, 1, 2, 0, 1, 0]).unwrap();
    let mut stranger = session(address, &other);
    assert_eq!(stranger.write_all(b"PING\r\n").unwrap_err().kind(), ErrorKind::InvalidData);
    for socket in [&mut silent, &mut plain, &mut half] {
        // An alert of TLS may come before the end; a reset is one too.
        let _ = socket.read_to_end(&mut Vec::new()).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        });
    }
    let mut healthy = Client::over(session(address, &trusted));
    assert_eq!(healthy.run("EXISTS a"), Value::Int(0));
    drop(stranger);
    wait_until(|| healthy.run("CLIENT LIST").text().lines().count() == 1);
}

#[test]
fn wrong_certificates_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some((cert, key)) = certificate(dir.path(), "server") else { return };
    let Some((_, other)) = certificate(dir.path(), "other") else { return };
    let missing = dir.path().join("missing");
    let refused = |cert: &PathBuf, key: &PathBuf| {
        let started = Running::start(settings(&dir, (cert.clone(), key.clone())));
        matches!(started, Err(ServeError::Config(_)))
    };
    assert!(refused(&cert, &missing));
    assert!(refused(&missing, &key));
    assert!(refused(&cert, &other), "a key of another certificate");
    assert!(refused(&key, &cert), "the files are exchanged");
    assert!(!refused(&cert, &key));
}
