//! The items of a stream: its entries in nodes of packed elements, what there is to be known of
//! it, and its groups.

use std::io::Read;

use super::{
    error::RdbError,
    format::{ENTRY_REMOVED, ENTRY_SAME_FIELDS, TYPE_STREAM_LISTPACKS_2, TYPE_STREAM_LISTPACKS_3},
    packed::{Packed, Packing},
    source::Source,
};

/// The identifier of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

impl StreamId {
    /// The identifier in 16 bytes, big-endian.
    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        let all = u128::from_be_bytes(bytes);
        Self { ms: (all >> 64) as u64, seq: all as u64 }
    }

    /// The identifier as 16 bytes, big-endian.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }
}

/// What there is to be known of a stream as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamInfo {
    /// How many entries it has.
    pub(crate) length: u64,
    pub(crate) last: StreamId,
    pub(crate) first: StreamId,
    /// The greatest identifier of those that were removed.
    pub(crate) removed_max: StreamId,
    /// How many entries were ever added.
    pub(crate) added: u64,
}

/// A part of a stream, in the order in which they come: entries, the stream as a whole, and for
/// each group what is pending in it, then its consumers, each with the entries that it holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StreamItem {
    Entry {
        id: StreamId,
        fields: Vec<(Vec<u8>, Vec<u8>)>,
    },
    Info(StreamInfo),
    Group {
        name: Vec<u8>,
        last: StreamId,
        /// How many entries the group has read; none if nobody knows.
        read: Option<u64>,
    },
    Pending {
        id: StreamId,
        delivered_ms: u64,
        deliveries: u64,
    },
    Consumer {
        name: Vec<u8>,
        seen_ms: u64,
        active_ms: u64,
    },
    Held(StreamId),
}

/// A node: entries with their identifiers after a first one.
#[derive(Debug)]
struct Node {
    packed: Packed,
    first: StreamId,
    fields: Vec<Vec<u8>>,
    /// Entries that are left, those that were removed included.
    left: u64,
}

/// What is left of a stream.
#[derive(Debug)]
pub(crate) struct StreamReader {
    version: u8,
    nodes: u64,
    node: Option<Node>,
    is_described: bool,
    /// Entries that were read.
    entries: u64,
    first: StreamId,
    last: Option<StreamId>,
    /// The last identifier that was given.
    given: StreamId,
    groups: u64,
    pending: u64,
    consumers: Option<u64>,
    held: u64,
}

impl StreamReader {
    /// The items of a stream that comes next.
    pub(crate) fn begin(type_byte: u8, source: &mut Source<impl Read>) -> Result<Self, RdbError> {
        let version = match type_byte {
            TYPE_STREAM_LISTPACKS_3 => 3,
            TYPE_STREAM_LISTPACKS_2 => 2,
            _ => 1,
        };
        Ok(Self {
            version,
            nodes: source.length()?,
            node: None,
            is_described: false,
            entries: 0,
            first: StreamId::default(),
            last: None,
            given: StreamId::default(),
            groups: 0,
            pending: 0,
            consumers: None,
            held: 0,
        })
    }

    /// The next item; none after the last.
    pub(crate) fn next(
        &mut self,
        source: &mut Source<impl Read>,
    ) -> Result<Option<StreamItem>, RdbError> {
        if !self.is_described {
            if let Some(entry) = self.entry(source)? {
                return Ok(Some(entry));
            }
            self.is_described = true;
            return self.info(source).map(|info| Some(StreamItem::Info(info)));
        }
        if self.pending > 0 {
            self.pending -= 1;
            let id = StreamId::from_bytes(source.array()?);
            let (delivered_ms, deliveries) = (source.u64_le()?, source.length()?);
            if self.pending == 0 {
                self.consumers = Some(source.length()?);
            }
            return Ok(Some(StreamItem::Pending { id, delivered_ms, deliveries }));
        }
        if self.held > 0 {
            self.held -= 1;
            return Ok(Some(StreamItem::Held(StreamId::from_bytes(source.array()?))));
        }
        if let Some(left) = self.consumers.filter(|left| *left > 0) {
            self.consumers = Some(left - 1);
            let (name, seen_ms) = (source.string()?, source.u64_le()?);
            let active_ms = if self.version >= 3 { source.u64_le()? } else { seen_ms };
            self.held = source.length()?;
            return Ok(Some(StreamItem::Consumer { name, seen_ms, active_ms }));
        }
        if self.groups == 0 {
            return Ok(None);
        }
        self.groups -= 1;
        let (name, last) = (source.string()?, id(source)?);
        let read =
            if self.version >= 2 { Some(source.length()?) } else { self.entries_up_to(last) };
        self.pending = source.length()?;
        self.consumers = if self.pending == 0 { Some(source.length()?) } else { None };
        // A count of -1 says that nobody knows.
        Ok(Some(StreamItem::Group { name, last, read: read.filter(|read| *read != u64::MAX) }))
    }

    /// How many entries a stream of the first version has up to this one, if that can be told: it
    /// does not say how many were removed, and counts as if none was.
    fn entries_up_to(&self, id: StreamId) -> Option<u64> {
        if self.entries == 0 || id < self.first {
            return Some(0);
        }
        match id {
            _ if id == self.given => Some(self.entries),
            _ if id == self.first => Some(1),
            _ => None,
        }
    }

    fn info(&mut self, source: &mut Source<impl Read>) -> Result<StreamInfo, RdbError> {
        let (length, last) = (source.length()?, id(source)?);
        if length != self.entries {
            return Err(source.damaged("a stream has not as many entries as it says"));
        }
        if self.last.is_some_and(|entry| entry > last) {
            return Err(source.damaged("a stream's last identifier is before its last entry"));
        }
        let mut info = StreamInfo {
            length,
            last,
            first: self.first,
            removed_max: StreamId::default(),
            added: length,
        };
        if self.version >= 2 {
            (info.first, info.removed_max) = (id(source)?, id(source)?);
            info.added = source.length()?;
        }
        self.given = last;
        self.groups = source.length()?;
        Ok(info)
    }

    /// The next entry of the nodes.
    fn entry(&mut self, source: &mut Source<impl Read>) -> Result<Option<StreamItem>, RdbError> {
        loop {
            if let Some(node) = &mut self.node {
                if let Some((id, fields)) = node.next().map_err(|what| source.damaged(what))? {
                    if self.last.is_some_and(|last| last >= id) {
                        return Err(source.damaged("a stream's identifiers do not ascend"));
                    }
                    if self.entries == 0 {
                        self.first = id;
                    }
                    (self.last, self.entries) = (Some(id), self.entries + 1);
                    return Ok(Some(StreamItem::Entry { id, fields }));
                }
                self.node = None;
            }
            if self.nodes == 0 {
                return Ok(None);
            }
            self.nodes -= 1;
            let first = source.string()?;
            let first = first.try_into().map_err(|_| source.damaged("a node of no identifier"))?;
            let first = StreamId::from_bytes(first);
            let node = Node::begin(source.string()?, first);
            self.node = Some(node.map_err(|what| source.damaged(what))?);
        }
    }
}

fn id(source: &mut Source<impl Read>) -> Result<StreamId, RdbError> {
    Ok(StreamId { ms: source.length()?, seq: source.length()? })
}

fn count(packed: &mut Packed) -> Result<u64, &'static str> {
    u64::try_from(packed.next_integer()?).map_err(|_| "a stream's node has a count below 0")
}

const ENDS: &str = "a stream's node ends too early";

impl Node {
    /// The first entry of a node names the fields that most have.
    fn begin(bytes: Vec<u8>, first: StreamId) -> Result<Self, &'static str> {
        let mut packed = Packed::new(bytes, Packing::Listpack)?;
        let (here, removed) = (count(&mut packed)?, count(&mut packed)?);
        let left = here.checked_add(removed).ok_or("a stream's node has too many entries")?;
        let mut fields = Vec::new();
        for _ in 0..count(&mut packed)? {
            fields.push(packed.next()?.ok_or(ENDS)?);
        }
        packed.next_integer()?;
        Ok(Self { packed, first, fields, left })
    }

    #[expect(clippy::type_complexity, reason = "an identifier and its pairs")]
    fn next(&mut self) -> Result<Option<(StreamId, Vec<(Vec<u8>, Vec<u8>)>)>, &'static str> {
        while self.left > 0 {
            self.left -= 1;
            let flags = self.packed.next_integer()?;
            let id = StreamId {
                ms: self.first.ms.wrapping_add_signed(self.packed.next_integer()?),
                seq: self.first.seq.wrapping_add_signed(self.packed.next_integer()?),
            };
            let mut fields = Vec::new();
            if flags & ENTRY_SAME_FIELDS != 0 {
                for field in &self.fields {
                    fields.push((field.clone(), self.packed.next()?.ok_or(ENDS)?));
                }
            } else {
                for _ in 0..count(&mut self.packed)? {
                    let field = self.packed.next()?.ok_or(ENDS)?;
                    fields.push((field, self.packed.next()?.ok_or(ENDS)?));
                }
            }
            // How many elements it has, to be read backwards.
            self.packed.next_integer()?;
            if flags & ENTRY_REMOVED == 0 {
                return Ok(Some((id, fields)));
            }
        }
        match self.packed.next()? {
            None => Ok(None),
            Some(_) => Err("a stream's node has more entries than it says"),
        }
    }
}
