//! Devices, the protection domains of what is shared by them, and memory that they may reach.
//!
//! A *protection domain* holds memory and queues together: a queue of one domain reaches no memory
//! of another. There is one for each keyspace, so that a client of one cannot read another.
//!
//! 1. What a device may reach stays where it is for as long as it is registered: a
//!    [`RegisteredMemory`] keeps what owns it.
//! 2. A thing of the library outlives whatever was made of it: a device its domains, a domain its
//!    memory and its queues. Each holds the one before.
#![allow(unsafe_code, reason = "calls a C library, and lets a device reach memory")]

use std::{
    any::Any,
    ffi::{CStr, c_int},
    fs, io,
    net::IpAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    ptr::NonNull,
    sync::Arc,
};

use rustix::process::{Resource, getrlimit};

use super::{
    abi::{
        Context, DeviceAttributes, ETHERNET, Gid, MemoryRegion, PORT_ACTIVE, PortAttributes,
        ProtectionDomain, access,
    },
    library::Library,
};
use crate::{
    error::{Error, Result},
    message::Endpoint,
    primitive::AtomicU64,
};

/// Where the system describes devices.
const SYSFS: &str = "/sys/class/infiniband";

/// Where the system lists the devices that programs may open.
const OPENED_SYSFS: &str = "/sys/class/infiniband_verbs";

/// Ports of a device that are looked at: no card has more.
const PORTS_MAX: u8 = 4;

/// Names of a port that are looked at: a card has one for each address and version, and room for
/// 16 to 256.
const GIDS_MAX: i32 = 256;

/// A port of a device that was opened.
pub(crate) struct Device {
    library: &'static Library,
    context: NonNull<Context>,
    name: String,
    port: u8,
    gid_index: u8,
    gid: Gid,
    attributes: PortAttributes,
    limits: DeviceAttributes,
    sign: Option<Sign>,
    /// The process that opened it.
    process: u32,
}

// SAFETY: the library's functions may be called by several threads at once (`man ibv_open_device`,
// and README of rdma-core: "libibverbs is thread safe").
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// The device whose port has an address of this machine.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] without the library, or if no port in use has the address.
    pub(crate) fn with_address(address: IpAddr) -> Result<Arc<Self>> {
        let library = Library::get()?;
        let wanted = gid_of(address);
        let (mut seen, mut fallback) = (Vec::new(), None);
        for (name, context) in Opened::all(library)? {
            for port in 1..=PORTS_MAX {
                let Some(attributes) = context.port(port) else { break };
                if attributes.state != PORT_ACTIVE {
                    seen.push(format!("{name} port {port}, which is down"));
                    continue;
                }
                seen.push(format!("{name} port {port}"));
                let gids = 0..attributes.gids.clamp(0, GIDS_MAX);
                let is_it = |index: &i32| {
                    context.gid(port, *index) == Some(wanted) && is_routed(&name, port, *index)
                };
                match gids.into_iter().find(is_it) {
                    Some(index) => {
                        return context.into_device(name, (port, index, wanted), attributes);
                    }
                    // The number of the port is its address, whatever the machine's is.
                    None if attributes.link_layer != ETHERNET && fallback.is_none() => {
                        fallback = Some((name.clone(), port));
                    }
                    None => {}
                }
            }
        }
        match fallback {
            Some((name, port)) => Self::open(library, &name, port),
            None => Err(Error::Unsupported(no_device(address, &seen).into())),
        }
    }

    fn open(library: &'static Library, wanted: &str, port: u8) -> Result<Arc<Self>> {
        for (name, context) in Opened::all(library)? {
            if name == wanted
                && let Some(attributes) = context.port(port)
                && let Some(gid) = context.gid(port, 0)
            {
                return context.into_device(name, (port, 0, gid), attributes);
            }
        }
        Err(Error::Unsupported(format!("the RDMA device {wanted} has gone").into()))
    }

    /// What the system calls it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns false once the system has removed it, whether another one of its name is there or
    /// not: nothing that was made of it is of use then. Looks at one file. Where the system has no
    /// list of devices, each is taken to be there.
    ///
    /// Most drivers end all that programs have of a device that is removed, and their calls fail.
    /// With the others (`rdma_rxe` of Linux 6.1) the device works on, and its removal waits until
    /// the last program has closed it. Either way it leaves the list first.
    pub(crate) fn is_there(&self) -> bool {
        self.sign.as_ref().is_none_or(Sign::is_there)
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    /// Returns true in the process that opened it. A forked child leaves what it has inherited
    /// alone: the kernel would end what the parent uses.
    pub(super) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    pub(super) fn context(&self) -> NonNull<Context> {
        self.context
    }

    pub(super) fn port(&self) -> u8 {
        self.port
    }

    pub(super) fn gid_index(&self) -> u8 {
        self.gid_index
    }

    /// Returns true if other machines reach it by its name alone.
    pub(super) fn is_ethernet(&self) -> bool {
        self.attributes.link_layer == ETHERNET
    }

    pub(super) fn limits(&self) -> &DeviceAttributes {
        &self.limits
    }

    /// Returns true if an endpoint may be of a machine that has an address: on Ethernet its port
    /// has the address's name.
    pub(crate) fn may_be_of(&self, address: IpAddr, peer: &Endpoint) -> bool {
        !self.is_ethernet() || peer.gid == gid_of(address)
    }

    /// What others need to reach a queue of this number.
    pub(super) fn endpoint(&self, queue: u32, sequence: u32) -> Endpoint {
        let narrow = |number: c_int| u8::try_from(number.clamp(1, 255)).unwrap_or(1);
        Endpoint {
            gid: self.gid,
            lid: self.attributes.lid,
            mtu: self.attributes.active_mtu as u8,
            reads_in: narrow(self.limits.reads_in),
            queue,
            sequence,
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).field("port", &self.port).finish()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: by invariant 2 nothing that was made of it is left.
            unsafe { (self.library.close_device)(self.context.as_ptr()) };
        }
    }
}

/// What tells a device from the one that takes its name after it: its entry in the system's list,
/// which has a number that the system gives to no other file.
struct Sign {
    path: PathBuf,
    number: u64,
}

impl Sign {
    /// The sign of the device that has a name now.
    fn of(name: &str) -> Option<Self> {
        let is_it = |path: &PathBuf| {
            fs::read_to_string(path.join("ibdev")).is_ok_and(|found| found.trim() == name)
        };
        let mut paths = fs::read_dir(OPENED_SYSFS).ok()?.flatten().map(|entry| entry.path());
        Self::at(paths.find(is_it)?)
    }

    fn at(path: PathBuf) -> Option<Self> {
        let number = fs::metadata(&path).ok()?.ino();
        Some(Self { path, number })
    }

    fn is_there(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.number)
    }
}

/// A device that was opened to be looked at.
struct Opened {
    library: &'static Library,
    context: NonNull<Context>,
    sign: Option<Sign>,
}

impl Opened {
    /// All devices, with their names.
    fn all(library: &'static Library) -> Result<Vec<(String, Self)>> {
        let mut count = 0;
        // SAFETY: the function takes a place for a number, and returns a list of as many devices.
        let list = unsafe { (library.get_device_list)(&raw mut count) };
        let Some(list) = NonNull::new(list) else {
            return Err(Error::io("list RDMA devices", io::Error::last_os_error()));
        };
        let mut opened = Vec::new();
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has that many devices, which are valid until it is freed.
            let device = unsafe { *list.as_ptr().add(index) };
            // SAFETY: the device is valid, and its name is a text that lives as long.
            let name = unsafe { CStr::from_ptr((library.get_device_name)(device)) };
            let name = name.to_string_lossy().into_owned();
            // One that is replaced before it is opened does not have this sign, and is opened
            // again.
            let sign = Sign::of(&name);
            // SAFETY: the device is valid. One that cannot be opened is none to use.
            let context = NonNull::new(unsafe { (library.open_device)(device) });
            opened.extend(context.map(|context| (name, Self { library, context, sign })));
        }
        // SAFETY: it is the list that was returned, and none of it is used any more.
        unsafe { (library.free_device_list)(list.as_ptr()) };
        Ok(opened)
    }

    fn port(&self, port: u8) -> Option<PortAttributes> {
        let mut attributes = PortAttributes::default();
        // SAFETY: the function fills a part of what it is given, which has room for all of it.
        let refused =
            unsafe { (self.library.query_port)(self.context.as_ptr(), port, &raw mut attributes) };
        (refused == 0).then_some(attributes)
    }

    fn gid(&self, port: u8, index: c_int) -> Option<Gid> {
        let mut gid = Gid::default();
        // SAFETY: the function fills the sixteen bytes that it is given.
        let refused =
            unsafe { (self.library.query_gid)(self.context.as_ptr(), port, index, &raw mut gid) };
        (refused == 0).then_some(gid)
    }

    fn into_device(
        mut self,
        name: String,
        (port, gid_index, gid): (u8, c_int, Gid),
        attributes: PortAttributes,
    ) -> Result<Arc<Device>> {
        let mut limits = DeviceAttributes::default();
        // SAFETY: the function fills what it is given, which is as long as it expects.
        let refused =
            unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut limits) };
        if refused != 0 {
            let error = io::Error::from_raw_os_error(refused);
            return Err(Error::io(format!("ask what the RDMA device {name} can do"), error));
        }
        let (library, context, sign) = (self.library, self.context, self.sign.take());
        // The device closes it from here on.
        std::mem::forget(self);
        let gid_index = u8::try_from(gid_index).unwrap_or(0);
        let process = std::process::id();
        Ok(Arc::new(Device {
            library,
            context,
            name,
            port,
            gid_index,
            gid,
            attributes,
            limits,
            sign,
            process,
        }))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nothing was made of it.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

/// The name of a port that has an address.
fn gid_of(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns true for a name by which a port is reached over UDP. Where the system does not say,
/// every name is taken for one.
fn is_routed(device: &str, port: u8, index: c_int) -> bool {
    let file = format!("{device}/ports/{port}/gid_attrs/types/{index}");
    let kind = fs::read_to_string(Path::new(SYSFS).join(file));
    kind.map_or(true, |kind| kind.trim() == "RoCE v2")
}

fn no_device(address: IpAddr, seen: &[String]) -> String {
    let others = if seen.is_empty() {
        "there is none at all".to_owned()
    } else {
        format!("there are: {}", seen.join(", "))
    };
    let address = match address {
        IpAddr::V6(address) => address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
        address => address,
    };
    format!("no RDMA device has the address {address} of this machine; {others}")
}

/// Memory and queues that belong together.
pub(crate) struct Domain {
    device: Arc<Device>,
    raw: NonNull<ProtectionDomain>,
}

// SAFETY: as of `Device`.
unsafe impl Send for Domain {}
// SAFETY: as of `Device`.
unsafe impl Sync for Domain {}

impl Domain {
    /// An empty domain.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device has no more.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        // SAFETY: the device is open.
        let raw = unsafe { (device.library.alloc_pd)(device.context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let what = format!("make a protection domain of the RDMA device {}", device.name);
            Error::io(what, io::Error::last_os_error())
        })?;
        Ok(Arc::new(Self { device: Arc::clone(device), raw }))
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn raw(&self) -> NonNull<ProtectionDomain> {
        self.raw
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.device.is_own() {
            // SAFETY: by invariant 2 nothing of the domain is left.
            unsafe { (self.device.library.dealloc_pd)(self.raw.as_ptr()) };
        }
    }
}

/// Words that a device may reach.
pub(crate) struct RegisteredMemory {
    domain: Arc<Domain>,
    raw: NonNull<MemoryRegion>,
    first: NonNull<AtomicU64>,
    len: usize,
    /// What the words are part of.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: as of `Device`; the words are atomics.
unsafe impl Send for RegisteredMemory {}
// SAFETY: as above.
unsafe impl Sync for RegisteredMemory {}

/// Whom a device reads or writes memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Others, who may only read.
    Others,
    /// This side, into which what was read or received is written.
    Own,
}

impl RegisteredMemory {
    /// Lets others read words. `owner` is what the words are part of: they are there, at the same
    /// place, until it is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the device cannot hold them; the text names the limit if it is one.
    pub(crate) fn shared<T: Any + Send + Sync>(
        domain: &Arc<Domain>,
        owner: T,
        words: impl FnOnce(&T) -> &[AtomicU64],
    ) -> Result<Self> {
        Self::register(domain, Box::new(owner), words, Reach::Others)
    }

    /// Words of this side that a queue writes what it brings into.
    ///
    /// # Errors
    ///
    /// As [`RegisteredMemory::shared`].
    pub(crate) fn own(domain: &Arc<Domain>, len: usize) -> Result<Self> {
        let words: Box<[AtomicU64]> = (0..len).map(|_| AtomicU64::new(0)).collect();
        Self::register(domain, Box::new(words), |words| words, Reach::Own)
    }

    fn register<T: Any + Send + Sync>(
        domain: &Arc<Domain>,
        owner: Box<T>,
        words: impl FnOnce(&T) -> &[AtomicU64],
        reach: Reach,
    ) -> Result<Self> {
        let words = words(&owner);
        let (first, len) = (NonNull::from(words).cast::<AtomicU64>(), words.len());
        let (bytes, library) = (size_of_val(words), domain.device.library);
        let access = match reach {
            Reach::Others => access::REMOTE_READ,
            Reach::Own => access::LOCAL_WRITE,
        };
        // SAFETY: the words are there until their owner is dropped, which is after they are not
        // registered any more. The device alone writes them, as other processes do that map the
        // same memory; here they are seen as atomics.
        let raw =
            unsafe { (library.reg_mr)(domain.raw.as_ptr(), first.as_ptr().cast(), bytes, access) };
        let raw = NonNull::new(raw).ok_or_else(|| not_registered(&domain.device, bytes))?;
        Ok(Self { domain: Arc::clone(domain), raw, first, len, _owner: owner })
    }

    /// The words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the owner, which this holds, has them at this place.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }

    /// Where the words begin, as this process and its peers name it.
    pub(crate) fn address(&self) -> u64 {
        self.first.as_ptr().addr() as u64
    }

    /// What peers show to read the words.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: it is registered.
        unsafe { self.raw.as_ref() }.remote_key
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: it is registered.
        unsafe { self.raw.as_ref() }.local_key
    }
}

impl std::fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredMemory").field("words", &self.len).finish_non_exhaustive()
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        if self.domain.device.is_own() {
            // SAFETY: it is registered. Afterwards no device reaches the words, and their owner is
            // dropped.
            unsafe { (self.domain.device.library.dereg_mr)(self.raw.as_ptr()) };
        }
    }
}

/// Why memory was not registered, with the limit that is met most.
fn not_registered(device: &Device, bytes: usize) -> Error {
    let error = io::Error::last_os_error();
    let limit = match getrlimit(Resource::Memlock).current {
        Some(limit) => format!("{limit} bytes"),
        None => "none".to_owned(),
    };
    let name = &device.name;
    let what = format!(
        "let the RDMA device {name} reach {bytes} bytes (this process may lock: {limit}, by \
         RLIMIT_MEMLOCK)"
    );
    Error::io(what, error)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn a_machine_without_devices_says_so() {
        let error = no_device("10.0.0.7".parse().unwrap(), &[]);
        assert!(error.contains("10.0.0.7") && error.contains("none at all"), "{error}");
        let mapped = IpAddr::V6("::ffff:10.0.0.7".parse::<Ipv6Addr>().unwrap());
        let error = no_device(mapped, &["rxe0 port 1".to_owned()]);
        assert!(error.contains("address 10.0.0.7 ") && error.contains("rxe0"), "{error}");
    }

    #[test]
    fn what_has_left_the_list_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("uverbs0");
        assert!(Sign::at(path.clone()).is_none());
        fs::create_dir(&path).unwrap();
        let sign = Sign::at(path.clone()).unwrap();
        assert!(sign.is_there());
        // Another one, which was made while the first was still there.
        fs::create_dir(place.path().join("next")).unwrap();
        fs::rename(&path, place.path().join("before")).unwrap();
        assert!(!sign.is_there());
        fs::rename(place.path().join("next"), &path).unwrap();
        assert!(!sign.is_there());
    }

    #[test]
    fn names_of_ports_are_addresses() {
        let gid = gid_of("10.0.2.15".parse().unwrap());
        assert_eq!(gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 2, 15]);
    }
}
