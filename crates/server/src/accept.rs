//! What every way in does with a connection that comes, whether plain, encrypted or HTTP.

use std::{io, sync::Arc, time::Duration};

use tokio::net::TcpStream;

use crate::{
    clients::ClientInfo,
    log::{Event, LogLevel},
    server::Server,
};

/// How long to wait after an accept that failed: there are too many files open, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The system keeps at most this number of bytes for a client besides those that are on their way
/// to it: else one that takes nothing costs megabytes that no limit here counts.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 256 << 10;

/// Settings of a client's socket. It serves without them as well.
pub(crate) fn prepare(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES);
}

/// Says that no connection can be accepted, and waits.
pub(crate) async fn accept_failed(server: &Server, error: &io::Error) {
    server.log.write(Event::AcceptFailed, &format!("cannot accept a connection: {error}"), &[]);
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Enters a connection; none, which the log tells of, if there are too many.
pub(crate) fn enter(server: &Server, from: String, to: String) -> Option<Arc<ClientInfo>> {
    let most = server.limits.read().clients;
    let client = from.clone();
    let entered = server.clients.enter(most, from, to);
    if entered.is_none() {
        let fields = [("client", client.into()), ("limit", most.into())];
        server.log.write(Event::ClientRefused, "there are as many clients as may be", &fields);
    } else if server.log.is_on(LogLevel::Debug) {
        server.log.write(Event::Connected, "a client came", &[("client", client.into())]);
    }
    entered
}
