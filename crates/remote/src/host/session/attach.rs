//! Requests of clients that read by RDMA: queue pairs, and where segments are.

#[cfg(all(feature = "rdma", target_os = "linux"))]
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak},
};

use super::{Refusal, Session};
#[cfg(not(all(feature = "rdma", target_os = "linux")))]
use crate::message::format::failure;
#[cfg(all(feature = "rdma", target_os = "linux"))]
use crate::{
    host::limits::Origin,
    message::{
        Reply,
        format::{ITEMS_MAX, failure},
    },
    socket::Stream,
};
use crate::{
    host::pool::Pool,
    message::{Endpoint, Part},
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
    /// Those that have sessions, by the numbers of their keyspaces.
    begun: HashMap<u32, Weak<Stream>>,
    /// One that is to have a session.
    fresh: Option<(u32, Arc<Stream>)>,
}

#[cfg(all(feature = "rdma", target_os = "linux"))]
impl Others {
    /// Ends them.
    pub(super) fn end(&mut self) {
        self.begun.values().for_each(end);
    }
}

/// Ends a connection: its session is told, and lets go of it. A device that refuses has ended it.
#[cfg(all(feature = "rdma", target_os = "linux"))]
fn end(stream: &Weak<Stream>) {
    let _ = stream.upgrade().map(|stream| stream.shutdown());
}

impl Session {
    /// Returns true if a connection was made that [`Session::begin_others`] is to begin. Until then
    /// no request is answered: the client that has asked for it is about to speak there.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(super) fn has_others_to_begin(&self) -> bool {
        self.others.fresh.is_some()
    }

    /// There are none.
    #[cfg(not(all(feature = "rdma", target_os = "linux")))]
    pub(super) fn has_others_to_begin(&self) -> bool {
        false
    }

    /// Has the pool wait for what comes by a connection that was made since the last time. It takes
    /// the place of the one that the client had for the same keyspace.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(in crate::host) fn begin_others(&mut self, pool: &Pool) {
        let Some((keyspace, stream)) = self.others.fresh.take() else { return };
        let before = self.others.begun.insert(keyspace, Arc::downgrade(&stream));
        before.iter().for_each(end);
        if let Some(origin) = self.registration.origin() {
            self.host.begin(pool, stream, origin, None);
        }
    }

    /// There are none.
    #[cfg(not(all(feature = "rdma", target_os = "linux")))]
    pub(in crate::host) fn begin_others(&mut self, _: &Pool) {}

    /// The addresses of this machine and of the client's between which the connection goes.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    fn way(&self) -> Result<(IpAddr, IpAddr), Refusal> {
        match self.registration.origin() {
            Some(Origin::Address(client)) => Ok((self.stream.local_address()?, client)),
            _ => Err(Refusal::Reply(failure::REFUSED, "RDMA without an address".into())),
        }
    }

    /// Connects a queue pair to that of the client, for another connection.
    #[cfg(all(feature = "rdma", target_os = "linux"))]
    pub(super) fn attach_calls(
        &mut self,
        id: u32,
        keyspace: u32,
        peer: &Endpoint,
    ) -> Result<(), Refusal> {
        let way = self.way()?;
        let (reached, _) = self.opened(keyspace)?.share.reached()?;
        let (stream, endpoint) = reached.attach_calls(way, peer)?;
        self.others.fresh = Some((keyspace, stream));
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
        let way = self.way()?;
        let (reached, _) = self.opened(keyspace)?.share.reached()?;
        let (queue, endpoint) = reached.attach(way, peer)?;
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
