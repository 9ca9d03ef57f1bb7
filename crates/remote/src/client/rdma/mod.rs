//! Clients that read their host's memory by RDMA.
//!
//! Such a client is one over TCP that has, for each keyspace, queue pairs beside the connection:
//! what predicts leaves is the same cache, and what the host must be asked goes the same way, or by
//! sends if it is short. Reads of leaves go by a queue pair, and the host has no part in them.
//!
//! Reads have no order between their lines. A read counts only if
//!
//! 1. what it brought proves itself ([`unordered`](super::unordered)),
//! 2. the host was there: its heartbeat has changed within a lease,
//! 3. the host serves all keys: their generation came along and is 0. A host that gives keys away
//!    waits for longer than a read may take before it changes what they were in.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `attachment` | queue pairs of a keyspace, reads of its region, hints of hot records | take what came for proven |
//! | `fabric` | pieces for clients that keep models | the same |
//! | `sends` | short calls, by sends | repeat a write |

mod attachment;
mod fabric;
mod sends;

pub(in crate::client) use attachment::{Remote, RemoteReads};
pub(in crate::client) use fabric::RemoteFabric;
