//! Rhumb as a subject: reads of the host's memory, the same reads as calls, the memory's own
//! speed, and an index in the client's process.

use std::{net::SocketAddr, ops::Bound, path::PathBuf, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use rhumb::index::Index;
use rhumb_remote::{Address, Client, Counts, Host, Keyspace, Preset, ShareOptions};
use serde_json::{Value, json};

use super::{
    batch::{Answers, Batch},
    divided::{self, Divided},
    options::{self, Data, Fabric, RemoteOptions},
    subject::{Counters, OnPair, OnValue, Place, Server, Session, Subject, load_some},
    workload::Workload,
};
use crate::random::mix;

/// The name of the keeper, and of the keyspace that it shares.
pub(super) const NAME: &str = "rhumb";

/// How a subject reads what the host shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    OneSided,
    Calls,
    Limit,
}

/// A subject of the host's.
#[derive(Debug)]
pub struct Shared {
    name: &'static str,
    options: &'static str,
    way: Way,
}

/// Reads look into the host's memory; writes are calls.
pub const RHUMB: Shared = Shared {
    name: "rhumb",
    options: "reads look into the host's memory, writes are calls",
    way: Way::OneSided,
};

/// Reads are calls, too.
pub const CALL: Shared =
    Shared { name: "call", options: "reads and writes are calls", way: Way::Calls };

/// Reads of random lines of the same memory.
pub const LIMIT: Shared = Shared {
    name: "limit",
    options: "a random line of the same memory, whose place depends on the line before",
    way: Way::Limit,
};

/// An index in each client's own memory.
#[derive(Debug)]
pub struct InProcess;

/// Where a host of a run listens.
pub(super) fn socket(place: &Place<'_>, server: usize) -> PathBuf {
    place.directory.join(format!("rhumb-{server}.sock"))
}

/// The file that says where a host listens for clients over TCP.
pub(super) fn port(place: &Place<'_>, server: usize) -> PathBuf {
    place.directory.join(format!("rhumb-{server}.port"))
}

/// What one host has of the keyspace.
fn open(place: &Place<'_>, server: usize) -> Result<Keyspace> {
    Ok(Client::connect(address(place, server)?.to_string())?.keyspace(NAME)?)
}

/// Where clients of a run come to a host.
pub(super) fn address(place: &Place<'_>, server: usize) -> Result<Address> {
    let scheme = match place.data.fabric {
        Fabric::Shm => return Ok(Address::Unix(socket(place, server))),
        Fabric::Tcp => "tcp",
        Fabric::Rdma => "rdma",
    };
    let listens_at = std::fs::read_to_string(port(place, server)).context("no host has begun")?;
    Ok(format!("{scheme}:{listens_at}").parse()?)
}

impl Subject for Shared {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self) -> String {
        self.options.to_owned()
    }

    fn keeper(&self) -> Option<&'static str> {
        Some(NAME)
    }

    fn servers(&self, options: &RemoteOptions) -> usize {
        options.servers
    }

    fn performs(&self, workload: Workload) -> bool {
        self.way != Way::Limit || workload.is_gets()
    }

    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Server>> {
        let preset = match place.data.preset {
            options::Preset::Xstore => Preset::XStore,
            options::Preset::Finestore => Preset::FineStore,
            options::Preset::Rhumb => Preset::Rhumb,
        };
        let options = ShareOptions::default().entry_bytes(place.data.entry_bytes()).preset(preset);
        let (data, server) = (place.data, place.server);
        let options = options.checksums(data.fabric == Fabric::Rdma);
        let mut host = Host::listen(socket(place, server))
            .listen_tcp(SocketAddr::new(data.address, 0))
            .allow_open(!data.address.is_loopback())
            .share(NAME, options);
        if let Some(served) = divided::served(data, server) {
            host = host.serve(NAME, served);
        }
        let host = host.start()?;
        let address = host.tcp_addresses().first().context("it listens")?;
        std::fs::write(port(place, server), address.to_string()).context("cannot say where")?;
        let mut session = OneSided::new(open(place, server)?);
        let is_own = |key: &[u8]| divided::has(data, server, key);
        let records = load_some(&mut session, data, is_own).context("cannot load the host")?;
        Ok(Box::new(Running { host, server, servers: data.servers, records }))
    }

    fn connect(&self, place: &Place<'_>) -> Result<Box<dyn Session>> {
        if place.data.servers > 1 {
            if self.way == Way::Limit {
                bail!("--servers: the limit is of one host's memory: leave the subject limit out");
            }
            return Ok(Box::new(Divided::new(place, self.way == Way::Calls)?));
        }
        let keyspace = open(place, 0)?;
        Ok(match self.way {
            Way::OneSided => Box::new(OneSided::new(keyspace)),
            Way::Calls => Box::new(OneSided::new(keyspace.by_calls())),
            Way::Limit if place.data.fabric != Fabric::Shm => {
                bail!("--fabric tcp and rdma map no memory: leave the subject limit out")
            }
            Way::Limit => Box::new(Limit { keyspace, state: 1, steps: 0 }),
        })
    }
}

struct Running {
    host: Host,
    server: usize,
    servers: usize,
    records: usize,
}

impl Server for Running {
    fn describe(&self) -> (String, Value) {
        let stats = self.host.stats(NAME).unwrap_or_default();
        let per_key = |bytes: u64| bytes as f64 / self.records.max(1) as f64;
        let host = match self.servers {
            1 => String::new(),
            servers => format!(", host {} of {servers}", self.server + 1),
        };
        let text = format!(
            "rhumb{host}: {} entries in {} leaves of {} bytes and {} runs; {} MiB mapped ({:.1} bytes a \
             key), {} MiB of it in large pages",
            stats.entries,
            stats.leaves,
            stats.leaf_bytes,
            stats.runs,
            stats.mapped_bytes >> 20,
            per_key(stats.mapped_bytes),
            stats.huge_bytes >> 20,
        );
        let object = json!({
            "host": NAME, "server": self.server, "suite": "remote", "entries": stats.entries, "leaves": stats.leaves,
            "leaf_bytes": stats.leaf_bytes, "runs": stats.runs,
            "mapped_bytes": stats.mapped_bytes, "huge_bytes": stats.huge_bytes,
        });
        (text, object)
    }
}

/// One-sided reads that are no looks at mapped leaves: pieces of the region, or messages that name
/// a leaf.
pub(super) fn apart(counts: &Counts) -> u64 {
    match counts.region_reads {
        0 if counts.bytes_sent > 0 => counts.reads,
        pieces => pieces,
    }
}

/// A keyspace that is shared; its handle reads by looks or by calls.
pub(in crate::suite) struct OneSided {
    keyspace: Keyspace,
    /// The handle while reads are not counted, or one that counts them.
    used: Keyspace,
}

impl OneSided {
    pub(in crate::suite) fn new(keyspace: Keyspace) -> Self {
        Self { used: keyspace.clone(), keyspace }
    }
}

impl Session for OneSided {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.used.get_into(key, value)?)
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_value: OnValue<'_>) -> Result<()> {
        Ok(self.used.multi_get_with(keys, on_value)?)
    }

    fn scan(&mut self, from: &[u8], limit: usize, on_pair: OnPair<'_>) -> Result<()> {
        let range = self.used.range::<&[u8]>((Bound::Included(from), Bound::Unbounded));
        let mut range = range.limit(limit);
        while let Some(pair) = range.next_ref() {
            let (key, value) = pair?;
            on_pair(key, value);
        }
        Ok(())
    }

    fn insert_all(&mut self, entries: &[(&[u8], &[u8])]) -> Result<()> {
        let mut batch = self.used.batch();
        entries.iter().for_each(|(key, value)| batch.insert(&self.used, key, value));
        Ok(batch.commit()?)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.used.insert(key, value)?)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.used.remove(key)?)
    }

    fn counters(&self) -> Counters {
        let (used, counts) = (&self.used, self.used.counts());
        let apart = apart(&counts);
        Counters {
            calls: used.calls(),
            trips: counts.round_trips,
            reads: used.looks() + apart,
            bytes: counts.bytes_sent + counts.bytes_received,
        }
    }

    fn cache_bytes(&self) -> u64 {
        self.used.counts().cache_bytes
    }

    fn count(&mut self, is_counting: bool) -> Result<()> {
        self.used = if is_counting { self.keyspace.counted() } else { self.keyspace.clone() };
        Ok(())
    }
}

/// Dependent reads of random lines, one for each key that is asked for.
struct Limit {
    keyspace: Keyspace,
    state: u64,
    steps: u64,
}

impl Session for Limit {
    fn get(&mut self, _key: &[u8], _value: &mut Vec<u8>) -> Result<bool> {
        bail!("the limit finds no keys")
    }

    fn multi_get(&mut self, _keys: &[&[u8]], _on_value: OnValue<'_>) -> Result<()> {
        bail!("the limit finds no keys")
    }

    fn scan(&mut self, _from: &[u8], _limit: usize, _on_pair: OnPair<'_>) -> Result<()> {
        bail!("the limit finds no keys")
    }

    fn insert(&mut self, _key: &[u8], _value: &[u8]) -> Result<()> {
        bail!("the limit writes nothing")
    }

    fn remove(&mut self, _key: &[u8]) -> Result<()> {
        bail!("the limit writes nothing")
    }

    fn counters(&self) -> Counters {
        Counters { reads: self.steps, ..Counters::default() }
    }

    fn answers(&self) -> bool {
        false
    }

    fn perform(&mut self, batch: &Batch, _answers: &mut Answers) -> Result<()> {
        let steps = batch.operations.len() as u64;
        // Mixed, so that a walk that has come upon its own path leaves it.
        self.state = mix(self.state ^ self.keyspace.probe(self.state, steps));
        self.steps += steps;
        Ok(())
    }
}

impl Subject for InProcess {
    fn name(&self) -> &'static str {
        "index"
    }

    fn options(&self) -> String {
        "rhumb::Index in the client's own memory, of byte strings and values behind pointers"
            .to_owned()
    }

    fn keeper(&self) -> Option<&'static str> {
        None
    }

    fn performs(&self, _workload: Workload) -> bool {
        true
    }

    fn start(&self, _place: &Place<'_>) -> Result<Box<dyn Server>> {
        bail!("an index in a client's process has no host")
    }

    fn connect(&self, place: &Place<'_>) -> Result<Box<dyn Session>> {
        let index = Index::new();
        let count = index.bulk_load(entries(place.data))?;
        ensure!(count == place.data.records, "{count} of {} were loaded", place.data.records);
        Ok(Box::new(Indexed { index, answers: Vec::new(), pairs: Vec::new() }))
    }
}

/// The records in ascending order.
fn entries(data: &Data) -> impl Iterator<Item = (Vec<u8>, Arc<[u8]>)> {
    let mut ranks = data.set.order[..data.records].to_vec();
    ranks.sort_unstable();
    let mut value = Vec::new();
    ranks.into_iter().map(move |rank| {
        let key = data.set.keys.get(rank as usize);
        data.values.fill(key, 0, &mut value);
        (key.to_vec(), Arc::from(&value[..]))
    })
}

struct Indexed {
    index: Index<Vec<u8>, Arc<[u8]>>,
    answers: Vec<Option<Arc<[u8]>>>,
    pairs: Vec<(Vec<u8>, Arc<[u8]>)>,
}

impl Session for Indexed {
    #[inline]
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.index.get(key);
        if let Some(found) = &found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], on_value: OnValue<'_>) -> Result<()> {
        self.answers.clear();
        self.index.multi_get(keys, &mut self.answers);
        self.answers
            .iter()
            .enumerate()
            .for_each(|(index, value)| on_value(index, value.as_deref()));
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: usize, on_pair: OnPair<'_>) -> Result<()> {
        self.pairs.clear();
        let range = (Bound::Included(from), Bound::Unbounded);
        self.index.range::<(Bound<&[u8]>, Bound<&[u8]>)>(range).read_into(limit, &mut self.pairs);
        self.pairs.iter().for_each(|(key, value)| on_pair(key, value));
        Ok(())
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.index.insert(key.to_vec(), Arc::from(value));
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.index.remove(key);
        Ok(())
    }
}
