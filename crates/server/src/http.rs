//! A small HTTP server for monitors: `/metrics`, `/healthz`, a status page at `/` and its figures
//! at `/status.json` and `/models.json`. Only reads; a request's body is never looked at.

use std::{fmt::Write, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::{
    exposition::{prometheus, status_json},
    server::Server,
};

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// How long a request may take to come in and its answer to be taken.
const REQUEST: Duration = Duration::from_secs(10);

/// Requests at a time.
const REQUESTS_MAX: usize = 32;

/// The page, which asks for `/status.json` every second.
const PAGE: &str = include_str!("status.html");

/// Serves until it is aborted.
pub(crate) async fn serve(server: Arc<Server>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            // Who is too slow is left.
            let _ = tokio::time::timeout(REQUEST, answer(&server, socket)).await;
            drop(place);
        });
    }
}

/// What is said to a request.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

async fn answer(server: &Server, mut socket: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > HEAD_BYTES_MAX || socket.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Answer { status, kind, body } = route(server, line);
    let mut reply = String::new();
    let _ = write!(
        reply,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'self' 'unsafe-inline'\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !line.starts_with(b"HEAD ") {
        reply += &body;
    }
    socket.write_all(reply.as_bytes()).await?;
    socket.shutdown().await
}

fn route(server: &Server, line: &[u8]) -> Answer {
    let text = "text/plain; charset=utf-8";
    let found = |kind, body| Answer { status: "200 OK", kind, body };
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method != b"GET" && method != b"HEAD" {
        let body = "only GET and HEAD\n".to_owned();
        return Answer { status: "405 Method Not Allowed", kind: text, body };
    }
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    match path {
        b"/metrics" => found("text/plain; version=0.0.4; charset=utf-8", prometheus(server)),
        b"/healthz" => match server.databases.engine.stats().failure {
            None => found(text, "ok\n".to_owned()),
            Some(failure) => {
                let body = format!("{failure}\n");
                Answer { status: "503 Service Unavailable", kind: text, body }
            }
        },
        b"/status.json" => found("application/json", status_json(server)),
        b"/models.json" => {
            let json = || server.models.json(&server.config.data);
            found("application/json", tokio::task::block_in_place(json))
        }
        b"/" => found("text/html; charset=utf-8", PAGE.to_owned()),
        _ => Answer { status: "404 Not Found", kind: text, body: "not here\n".to_owned() },
    }
}
