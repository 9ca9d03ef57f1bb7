//! What a service manager is told: that clients can come, and that the server ends. Does nothing
//! where there is no manager.

use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable in which the manager names its socket.
const SOCKET: &str = "NOTIFY_SOCKET";

fn tell(state: &str) -> std::io::Result<()> {
    let Some(name) = std::env::var_os(SOCKET) else { return Ok(()) };
    let address = address(&name.to_string_lossy())?;
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// The address of a manager's socket: a path, or a name in Linux' own space, which begins with `@`.
#[cfg(target_os = "linux")]
fn address(name: &str) -> std::io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// The address of a manager's socket: a path.
#[cfg(not(target_os = "linux"))]
fn address(name: &str) -> std::io::Result<SocketAddr> {
    SocketAddr::from_pathname(name)
}

/// Clients can come. A manager that cannot be told finds out by itself.
pub(crate) fn ready() {
    let _ = tell("READY=1");
}

/// The server ends.
pub(crate) fn stopping() {
    let _ = tell("STOPPING=1");
}
