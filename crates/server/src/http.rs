//! A small HTTP server for monitors: `/metrics`, the health at `/healthz`, `/readyz` and `/livez`,
//! a status page at `/` and its figures at `/status.json`, `/history.json` and `/models.json`. Only
//! reads; a request's body is never looked at.

use std::{fmt::Write, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::{
    exposition::prometheus,
    server::Server,
    status::{history_json, status_json},
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
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                crate::accept::accept_failed(&server, &error).await;
                continue;
            }
        };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            // A client that is too slow is left.
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
        // The process runs and answers: one that cannot write must not be killed for it.
        b"/livez" => found(text, "ok\n".to_owned()),
        b"/healthz" | b"/readyz" => match server.health_reasons() {
            reasons if reasons.is_empty() => found(text, "ok\n".to_owned()),
            reasons => {
                let body = reasons.join("\n") + "\n";
                Answer { status: "503 Service Unavailable", kind: text, body }
            }
        },
        b"/status.json" => found("application/json", status_json(server)),
        b"/history.json" => found("application/json", history_json(server)),
        b"/models.json" => {
            let json = || server.models.json(&server.config.data);
            found("application/json", tokio::task::block_in_place(json))
        }
        b"/" => found("text/html; charset=utf-8", PAGE.to_owned()),
        _ => Answer { status: "404 Not Found", kind: text, body: "not here\n".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::PAGE;

    /// The least contrast of text and ground that WCAG 2.1 (criterion 1.4.3) allows.
    const CONTRAST_MIN: f64 = 4.5;

    /// The relative luminance of a colour, as WCAG 2.1 defines it.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let byte = u8::from_str_radix(&colour[at..at + 2], 16).expect("two digits");
            let value = f64::from(byte) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn texts_can_be_read_in_light_and_in_dark() {
        let schemes: Vec<HashMap<&str, &str>> = PAGE
            .split(":root {")
            .skip(1)
            .map(|rest| {
                let rules = rest.split('}').next().unwrap();
                let colours = rules.split("--").skip(1).filter_map(|rule| rule.split_once(": "));
                colours.map(|(name, rest)| (name, &rest[..7])).collect()
            })
            .collect();
        assert_eq!(schemes.len(), 2);
        for colours in schemes {
            for (text, ground) in [
                ("text", "ground"),
                ("text", "panel"),
                ("text", "bad-ground"),
                ("dim", "ground"),
                ("dim", "panel"),
                ("good", "ground"),
                ("bad", "ground"),
                ("bad", "bad-ground"),
                ("bar", "ground"),
                ("second", "ground"),
            ] {
                let found = contrast(colours[text], colours[ground]);
                assert!(found >= CONTRAST_MIN, "{text} on {ground}: {found:.2}");
            }
        }
    }
}
