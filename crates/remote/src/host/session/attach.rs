//! Requests of clients that read by RDMA: queue pairs, and where segments are.

use super::{Refusal, Session};
#[cfg(not(all(feature = "rdma", target_os = "linux")))]
use crate::message::format::failure;
use crate::message::{Endpoint, Part};
#[cfg(all(feature = "rdma", target_os = "linux"))]
use crate::message::{Reply, format::ITEMS_MAX};

/// Queue pairs of a connection that reach one keyspace: as many as a client has threads that read
/// at once, and more than any has cores. The oldest goes for another one.
#[cfg(all(feature = "rdma", target_os = "linux"))]
const QUEUES_MAX: usize = 256;

/// Said to a client that would read by RDMA.
#[cfg(not(all(feature = "rdma", target_os = "linux")))]
const WITHOUT_RDMA: &str = "this host was built without RDMA (the feature rdma, on Linux)";

impl Session {
    /// Connects a queue pair to that of the client.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(super) fn attach(
        &mut self,
        id: u32,
        keyspace: u32,
        peer: &Endpoint,
    ) -> Result<(), Refusal> {
        let address = self.stream.local_address()?;
        let opened = self.opened(keyspace)?;
        let (reached, _) = opened.share.reached()?;
        let queue = reached.attach(address, peer)?;
        let endpoint = queue.endpoint();
        let queues = &mut self.opened[keyspace as usize].queues;
        if queues.len() == QUEUES_MAX {
            // Those that have failed at the client's side are the oldest.
            queues.pop_front();
        }
        queues.push_back(queue);
        Ok(self.reply(id, &Reply::Attached { endpoint })?)
    }

    /// Tells of segments as the client's queue pairs reach them.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(super) fn remote_segments(
        &mut self,
        id: u32,
        keyspace: u32,
        (part, known): (Part, u32),
    ) -> Result<(), Refusal> {
        let address = self.stream.local_address()?;
        let (reached, region) = self.opened(keyspace)?.share.reached()?;
        let segments = reached.segments(address, region, (part, known as usize, ITEMS_MAX))?;
        Ok(self.reply(id, &Reply::RemoteSegments { segments })?)
    }

    /// Refuses what needs RDMA.
    #[cfg(not(all(feature = "rdma", target_os = "linux")))]
    pub(super) fn attach(&mut self, _: u32, _: u32, _: &Endpoint) -> Result<(), Refusal> {
        Err(Refusal::Reply(failure::REFUSED, WITHOUT_RDMA.into()))
    }

    /// As [`Session::attach`].
    #[cfg(not(all(feature = "rdma", target_os = "linux")))]
    pub(super) fn remote_segments(
        &mut self,
        _: u32,
        _: u32,
        _: (Part, u32),
    ) -> Result<(), Refusal> {
        Err(Refusal::Reply(failure::REFUSED, WITHOUT_RDMA.into()))
    }
}
