//! What RDMA devices reach of a keyspace: the segments of its region, and the queue pairs of its
//! clients.
//!
//! There is a protection domain for each keyspace and each of the machine's addresses at which
//! clients attach. Segments are registered, for remote reads alone, when the first client attaches
//! there, and later ones when a client asks for them. All of it stays registered until the keyspace
//! goes.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::share::Region;
use crate::{
    error::Result,
    message::{Endpoint, Part, RemoteSegment, format::REMOTE_READ_MS},
    region::HostRegion,
    verbs::{ByteStream, Device, Domain, Memory, Queue},
};

/// The devices that reach a keyspace.
#[derive(Default)]
pub(super) struct Reached {
    ways: Mutex<Vec<Way>>,
}

/// What one device reaches.
struct Way {
    address: IpAddr,
    domain: Arc<Domain>,
    control: Registered,
    leaves: Registered,
}

/// The segments of a part that are registered, in the order of their places.
#[derive(Default)]
struct Registered {
    memories: Vec<Memory>,
    /// Words of all of them.
    words: usize,
}

impl Reached {
    fn lock(&self) -> MutexGuard<'_, Vec<Way>> {
        // Each change of it is a single step.
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no read is under way that began before this call, and counts.
    pub(super) fn wait_for_reads(&self) {
        if !self.lock().is_empty() {
            thread::sleep(Duration::from_millis(2 * REMOTE_READ_MS));
        }
    }

    /// Connects a queue pair to that of a client, which came in at an address of this machine.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) without a device of that address;
    /// [`Error::Io`](crate::Error::Io) if the device refuses.
    pub(super) fn attach(&self, address: IpAddr, peer: &Endpoint) -> Result<Queue> {
        let mut queue = Queue::new(&self.domain(address)?)?;
        queue.connect(peer)?;
        Ok(queue)
    }

    /// As [`Reached::attach`], for a queue pair that calls go over.
    ///
    /// # Errors
    ///
    /// As [`Reached::attach`].
    pub(super) fn attach_calls(&self, address: IpAddr, peer: &Endpoint) -> Result<ByteStream> {
        let stream = ByteStream::new(&self.domain(address)?, None)?;
        stream.connect(peer)?;
        Ok(stream)
    }

    /// The domain of the device that has an address.
    fn domain(&self, address: IpAddr) -> Result<Arc<Domain>> {
        let mut ways = self.lock();
        if let Some(way) = ways.iter().find(|way| way.address == address) {
            return Ok(Arc::clone(&way.domain));
        }
        let domain = Domain::new(&Device::with_address(address)?)?;
        let (control, leaves) = Default::default();
        ways.push(Way { address, domain: Arc::clone(&domain), control, leaves });
        Ok(domain)
    }

    /// The segments of a part after the first `known`, at most `most`, as the device of an address
    /// reaches them; none for an address at which nobody has attached.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if the device cannot hold them all, by its limits or those
    /// of this process.
    pub(super) fn segments(
        &self,
        address: IpAddr,
        region: &Region,
        (part, known, most): (Part, usize, usize),
    ) -> Result<Vec<RemoteSegment>> {
        let mut ways = self.lock();
        let Some(way) = ways.iter_mut().find(|way| way.address == address) else {
            return Ok(Vec::new());
        };
        let (registered, region) = match part {
            Part::Control => (&mut way.control, &region.control),
            Part::Leaves => (&mut way.leaves, &region.leaves),
        };
        registered.register(&way.domain, region)?;
        let memories = registered.memories.iter().skip(known).take(most);
        let segment = |memory: &Memory| RemoteSegment {
            address: memory.address(),
            bytes: size_of_val(memory.words()) as u64,
            key: memory.remote_key(),
        };
        Ok(memories.map(segment).collect())
    }
}

impl Registered {
    /// Registers what a region has grown by.
    fn register(&mut self, domain: &Arc<Domain>, region: &Arc<HostRegion>) -> Result<()> {
        for segment in region.segments().iter().skip(self.memories.len()) {
            let (begin, end) = (self.words, self.words + segment.bytes() as usize / 8);
            // One that is listed and not mapped yet is for the next time.
            if end > region.words().len() {
                break;
            }
            let owner = Arc::clone(region);
            let memory = Memory::shared(domain, owner, |region| &region.words()[begin..end])?;
            self.memories.push(memory);
            self.words = end;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Reached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reached").field("ways", &self.lock().len()).finish()
    }
}
