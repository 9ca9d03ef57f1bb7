//! RDMA: devices that read another machine's memory, by way of `libibverbs.so.1`.
//!
//! The library is opened when the program runs, so that a build needs neither it nor its header,
//! and a machine without it runs the program all the same. What it takes and gives is laid down in
//! `abi`; `docs/wire.md` says how two sides agree on a connection.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `abi` | structures of the library, with their golden offsets | do anything |
//! | `library` | the library's functions | be closed |
//! | `device` | devices, and memory that they may reach | let memory go before what reaches it |
//! | `pair` | queue pairs, and the queues of what became of their requests | wait without being told how long |
//! | `queue` | reads of the peer's memory | wait without a bound |
//! | `stream` | bytes to and from the peer, by sends | let a message go before its slot is free |

mod abi;
mod device;
mod library;
mod pair;
mod queue;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use device::{Device, Domain, RegisteredMemory};
pub(crate) use queue::{Queue, Read};
pub(crate) use stream::{ByteStream, MESSAGE_BYTES};
