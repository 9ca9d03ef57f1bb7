//! What RDMA devices reach of a keyspace: the segments of its region, and the queue pairs of its
//! clients.
//!
//! There is a protection domain for each keyspace and each of the machine's addresses at which
//! clients attach. Segments are registered, for remote reads alone, when the first client attaches
//! there, and later ones when a client asks for them. All of it stays registered until the keyspace
//! goes, or the device: what was made of a device that the system removes is let go of, and the
//! next client that attaches has the device of that address opened again.

use std::{
    net::IpAddr,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::Duration,
};

use super::{limits::refuse_descriptor, share::Region};
use crate::{
    error::{Error, Result},
    message::{Endpoint, Part, RemoteSegment, format::REMOTE_READ_MS},
    region::HostRegion,
    socket::Stream,
    verbs::{ByteStream, Device, Domain, Queue, RegisteredMemory},
};

/// The devices that reach a keyspace.
#[derive(Default)]
pub(super) struct Reached {
    state: Mutex<ReachedState>,
}

#[derive(Default)]
struct ReachedState {
    ways: Vec<DeviceReach>,
    /// True once a client has attached, whatever has become of its device.
    was_attached: bool,
}

/// What one device reaches.
struct DeviceReach {
    address: IpAddr,
    domain: Arc<Domain>,
    control: Registered,
    leaves: Registered,
    /// The queue pairs, which sessions hold.
    queues: Vec<Weak<Mutex<Option<Queue>>>>,
    /// The connections, which have sessions of their own.
    streams: Vec<Weak<Stream>>,
}

/// The queue pair of a client, for as long as its session and its device are there.
pub(super) struct Attached {
    _queue: Arc<Mutex<Option<Queue>>>,
}

/// The segments of a part that are registered, in the order of their places.
#[derive(Default)]
struct Registered {
    memories: Vec<RegisteredMemory>,
    /// Words of all of them.
    words: usize,
}

impl Reached {
    fn lock(&self) -> MutexGuard<'_, ReachedState> {
        // Each change of it is a single step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no read is under way that began before this call, and counts. A device that has
    /// gone may have brought something just before.
    pub(super) fn wait_for_reads(&self) {
        if self.lock().was_attached {
            thread::sleep(Duration::from_millis(2 * REMOTE_READ_MS));
        }
    }

    /// Returns true if a device has gone and [`Reached::let_go`] is to be called. Waits for nobody:
    /// while memory is registered it returns false.
    pub(super) fn has_lost(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.ways.iter().any(|way| !way.is_there()))
    }

    /// Lets go of devices that have gone, of the memory that they reached, and of their queue
    /// pairs, also of those whose sessions are idle. Takes as long as the system takes to release
    /// that memory.
    pub(super) fn let_go(&self) {
        let gone: Vec<DeviceReach> =
            self.lock().ways.extract_if(.., |way| !way.is_there()).collect();
        drop(gone);
    }

    /// Connects a queue pair to that of a client, which came in at an address of this machine from
    /// another one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] without a device of that address; [`Error::Io`] if the device
    /// refuses.
    pub(super) fn attach(
        &self,
        (address, client): (IpAddr, IpAddr),
        peer: &Endpoint,
    ) -> Result<(Attached, Endpoint)> {
        let domain = self.domain(address)?;
        check_peer(&domain, client, peer)?;
        let mut queue = Queue::new(&domain)?;
        check_descriptor(queue.events())?;
        queue.connect(peer)?;
        let endpoint = queue.endpoint();
        let queue = Arc::new(Mutex::new(Some(queue)));
        self.enter(&domain, |way| {
            way.queues.retain(|queue| queue.strong_count() > 0);
            way.queues.push(Arc::downgrade(&queue));
        })?;
        Ok((Attached { _queue: queue }, endpoint))
    }

    /// As [`Reached::attach`], for a queue pair that another connection goes over.
    ///
    /// # Errors
    ///
    /// As [`Reached::attach`].
    pub(super) fn attach_calls(
        &self,
        (address, client): (IpAddr, IpAddr),
        peer: &Endpoint,
    ) -> Result<(Arc<Stream>, Endpoint)> {
        let domain = self.domain(address)?;
        check_peer(&domain, client, peer)?;
        let stream = ByteStream::new(&domain, None)?;
        check_descriptor(stream.came())?;
        stream.connect(peer)?;
        let endpoint = stream.endpoint();
        let stream = Arc::new(Stream::by_rdma(stream)?);
        self.enter(&domain, |way| {
            way.streams.retain(|stream| stream.strong_count() > 0);
            way.streams.push(Arc::downgrade(&stream));
        })?;
        Ok((stream, endpoint))
    }

    /// The domain of the device that has an address.
    fn domain(&self, address: IpAddr) -> Result<Arc<Domain>> {
        self.let_go();
        let mut state = self.lock();
        if let Some(way) = state.ways.iter().find(|way| way.address == address) {
            return Ok(Arc::clone(&way.domain));
        }
        let domain = Domain::new(&Device::with_address(address)?)?;
        state.ways.push(DeviceReach::new(address, &domain));
        state.was_attached = true;
        Ok(domain)
    }

    /// Enters what was made in a domain, if its device is still there.
    fn enter(&self, domain: &Arc<Domain>, enter: impl FnOnce(&mut DeviceReach)) -> Result<()> {
        let mut state = self.lock();
        match state.ways.iter_mut().find(|way| Arc::ptr_eq(&way.domain, domain)) {
            Some(way) => {
                enter(way);
                Ok(())
            }
            None => {
                let what = format!("the RDMA device {} has gone", domain.device().name());
                Err(Error::Unsupported(what.into()))
            }
        }
    }

    /// The segments of a part after the first `known`, at most `most`, as the device of an address
    /// reaches them; none for an address at which nobody has attached, or whose device has gone.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device cannot hold them all, by its limits or those of this process.
    pub(super) fn segments(
        &self,
        address: IpAddr,
        region: &Region,
        (part, known, most): (Part, usize, usize),
    ) -> Result<Vec<RemoteSegment>> {
        let mut state = self.lock();
        let is_it = |way: &&mut DeviceReach| way.address == address && way.is_there();
        let Some(way) = state.ways.iter_mut().find(is_it) else {
            return Ok(Vec::new());
        };
        let (registered, region) = match part {
            Part::Control => (&mut way.control, &region.control),
            Part::Leaves => (&mut way.leaves, &region.leaves),
        };
        registered.register(&way.domain, region)?;
        let memories = registered.memories.iter().skip(known).take(most);
        let segment = |memory: &RegisteredMemory| RemoteSegment {
            address: memory.address(),
            bytes: size_of_val(memory.words()) as u64,
            key: memory.remote_key(),
        };
        Ok(memories.map(segment).collect())
    }
}

/// Refuses a queue pair on another machine than the client's: the device would speak to it, or wait
/// for a machine that there is not.
fn check_peer(domain: &Domain, client: IpAddr, peer: &Endpoint) -> Result<()> {
    if domain.device().may_be_of(client, peer) {
        return Ok(());
    }
    let text = format!("a queue pair that is not at {client}, from which the client has come");
    Err(Error::InvalidArgument(text.into()))
}

/// Refuses a client if the process may not open many more descriptors.
fn check_descriptor(newest: BorrowedFd<'_>) -> Result<()> {
    match refuse_descriptor(newest.as_raw_fd()) {
        None => Ok(()),
        Some(text) => Err(Error::InvalidArgument(text.into())),
    }
}

impl DeviceReach {
    fn new(address: IpAddr, domain: &Arc<Domain>) -> Self {
        let (control, leaves, domain) = (Default::default(), Default::default(), domain.clone());
        Self { address, domain, control, leaves, queues: Vec::new(), streams: Vec::new() }
    }

    fn is_there(&self) -> bool {
        self.domain.device().is_there()
    }
}

impl Drop for DeviceReach {
    fn drop(&mut self) {
        for stream in self.streams.iter().filter_map(Weak::upgrade) {
            // Its session is told, and lets go of it.
            let _ = stream.shutdown();
        }
        for queue in self.queues.iter().filter_map(Weak::upgrade) {
            // Dropped outside of the lock. Nobody else changes it.
            let queue = queue.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(queue);
        }
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
            let memory =
                RegisteredMemory::shared(domain, owner, |region| &region.words()[begin..end])?;
            self.memories.push(memory);
            self.words = end;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Reached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reached").field("ways", &self.lock().ways.len()).finish()
    }
}
