//! Requests of clients that read by RDMA: queue pairs, and where segments are.

#[cfg(all(feature = "rdma", target_os = "linux"))]
use std::sync::{Arc, Weak};

use super::{Refusal, Session};
#[cfg(not(all(feature = "rdma", target_os = "linux")))]
use crate::message::format::failure;
use crate::{
    host::pool::Pool,
    message::{Endpoint, Part},
};
#[cfg(all(feature = "rdma", target_os = "linux"))]
use crate::{
    message::{Reply, format::ITEMS_MAX},
    socket::Stream,
};

/// Queue pairs of a connection that reach one keyspace: as many as a client has threads that read
/// at once, and more than any has cores. The oldest goes for another one.
#[cfg(all(feature = "rdma", target_os = "linux"))]
const QUEUES_MAX: usize = 256;

/// Said to a client that would read by RDMA.
#[cfg(not(all(feature = "rdma", target_os = "linux")))]
const WITHOUT_RDMA: &str = "this host was built without RDMA (the feature rdma, on Linux)";

/// The connections by RDMA that belong to a connection over TCP, and end with it.
#[cfg(all(feature = "rdma", target_os = "linux"))]
#[derive(Default)]
pub(super) struct Others {
    /// Those that have sessions.
    begun: Vec<Weak<Stream>>,
    /// Those that are to have one.
    fresh: Vec<Arc<Stream>>,
}

#[cfg(all(feature = "rdma", target_os = "linux"))]
impl Others {
    /// Ends them.
    pub(super) fn end(&mut self) {
        for stream in self.begun.iter().filter_map(Weak::upgrade) {
            // Whoever reads from it is told; it goes with its session.
            let _ = stream.shutdown();
        }
    }
}

impl Session {
    /// Has the pool wait for what comes by connections that were made since the last time.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(in crate::host) fn begin_others(&mut self, pool: &Pool) {
        for stream in std::mem::take(&mut self.others.fresh) {
            self.others.begun.retain(|other| other.strong_count() > 0);
            self.others.begun.push(Arc::downgrade(&stream));
            if let Some(origin) = self.place.origin() {
                self.host.begin(pool, stream, origin, None);
            }
        }
    }

    /// There are none.
    #[cfg(not(all(feature = "rdma", target_os = "linux")))]
    pub(in crate::host) fn begin_others(&mut self, _: &Pool) {}

    /// Connects a queue pair to that of the client, for another connection.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(super) fn attach_calls(
        &mut self,
        id: u32,
        keyspace: u32,
        peer: &Endpoint,
    ) -> Result<(), Refusal> {
        let address = self.stream.local_address()?;
        let (reached, _) = self.opened(keyspace)?.share.reached()?;
        let (stream, endpoint) = reached.attach_calls(address, peer)?;
        self.others.fresh.push(stream);
        Ok(self.reply(id, &Reply::Attached { endpoint })?)
    }

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
        let (queue, endpoint) = reached.attach(address, peer)?;
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
    pub(super) fn attach_calls(&mut self, _: u32, _: u32, _: &Endpoint) -> Result<(), Refusal> {
        Err(Refusal::Reply(failure::REFUSED, WITHOUT_RDMA.into()))
    }

    /// As [`Session::attach_calls`].
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
