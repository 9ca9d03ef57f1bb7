//! Streams to bytes.

use super::{
    format::{ENTRY_SAME_FIELDS, PACKED_END},
    packed::back_length,
    stream::{StreamId, StreamInfo, StreamItem},
    write::{push_id, push_length, push_string},
};

/// Entries of one node, as Redis has them by default.
const NODE_ENTRIES_MAX: u64 = 100;

/// Bytes after which a node takes no more entries, as Redis has it by default.
const NODE_BYTES_MAX: usize = 4096;

/// Elements that are packed as Redis packs those of a stream's node.
#[derive(Default)]
struct Pack {
    bytes: Vec<u8>,
    elements: u64,
}

impl Pack {
    fn end_element(&mut self, start: usize) {
        let (back, len) = back_length(self.bytes.len() - start);
        self.bytes.extend_from_slice(&back[..len]);
        self.elements += 1;
    }

    fn integer(&mut self, integer: i64) {
        let start = self.bytes.len();
        match integer {
            0..=127 => self.bytes.push(integer as u8),
            -4096..=4095 => {
                let bits = (integer & 0x1FFF) as u16 | 0xC000;
                self.bytes.extend_from_slice(&bits.to_be_bytes());
            }
            _ => {
                self.bytes.push(0xF4);
                self.bytes.extend_from_slice(&integer.to_le_bytes());
            }
        }
        self.end_element(start);
    }

    fn string(&mut self, bytes: &[u8]) {
        let (start, len) = (self.bytes.len(), bytes.len());
        match len {
            0..0x40 => self.bytes.push(0x80 | len as u8),
            0x40..0x1000 => self.bytes.extend_from_slice(&(0xE000 | len as u16).to_be_bytes()),
            _ => {
                self.bytes.push(0xF0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(bytes);
        self.end_element(start);
    }

    /// The header, these elements after `front`, and the end.
    fn finish(self, front: Self) -> Vec<u8> {
        let len = 7 + front.bytes.len() + self.bytes.len();
        let elements = u16::try_from(front.elements + self.elements).unwrap_or(u16::MAX);
        let mut out = Vec::with_capacity(len);
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.extend_from_slice(&elements.to_le_bytes());
        out.extend_from_slice(&front.bytes);
        out.extend_from_slice(&self.bytes);
        out.push(PACKED_END);
        out
    }
}

type Pairs = [(Vec<u8>, Vec<u8>)];

/// A node that takes entries.
struct Node {
    first: StreamId,
    fields: Vec<Vec<u8>>,
    entries: u64,
    pack: Pack,
}

impl Node {
    fn new(first: StreamId, pairs: &Pairs) -> Self {
        let fields = pairs.iter().map(|(field, _)| field.clone()).collect();
        Self { first, fields, entries: 0, pack: Pack::default() }
    }

    fn push(&mut self, id: StreamId, pairs: &Pairs) {
        let pack = &mut self.pack;
        let names = pairs.iter().map(|(field, _)| field);
        let is_same = names.eq(self.fields.iter());
        pack.integer(if is_same { ENTRY_SAME_FIELDS } else { 0 });
        pack.integer(id.ms.wrapping_sub(self.first.ms).cast_signed());
        pack.integer(id.seq.wrapping_sub(self.first.seq).cast_signed());
        if !is_same {
            pack.integer(pairs.len() as i64);
        }
        for (field, value) in pairs {
            if !is_same {
                pack.string(field);
            }
            pack.string(value);
        }
        // What comes before this, to be read backwards.
        let elements = if is_same { pairs.len() + 3 } else { 2 * pairs.len() + 4 };
        pack.integer(elements as i64);
        self.entries += 1;
    }

    fn finish(self, out: &mut Vec<u8>) {
        let mut front = Pack::default();
        front.integer(self.entries as i64);
        front.integer(0);
        front.integer(self.fields.len() as i64);
        self.fields.iter().for_each(|field| front.string(field));
        front.integer(0);
        push_string(out, &self.first.to_bytes());
        push_string(out, &self.pack.finish(front));
    }
}

/// Things that follow their number.
#[derive(Default)]
struct Counted {
    bytes: Vec<u8>,
    count: u64,
}

impl Counted {
    fn push_to(&self, out: &mut Vec<u8>) {
        push_length(out, self.count);
        out.extend_from_slice(&self.bytes);
    }
}

/// A stream's items to bytes. All of the stream's bytes are in memory.
#[derive(Default)]
pub(crate) struct StreamBytes {
    nodes: Counted,
    node: Option<Node>,
    info: StreamInfo,
    groups: Counted,
    /// Of the present group: there is one, what is pending in it, its consumers.
    is_in_group: bool,
    pending: Counted,
    consumers: Counted,
    /// What the present consumer holds.
    held: Option<Counted>,
}

impl StreamBytes {
    /// Adds an item; they come as [`StreamItem`] says.
    pub(crate) fn push(&mut self, item: &StreamItem) {
        match item {
            StreamItem::Entry { id, fields } => self.entry(*id, fields),
            StreamItem::Info(info) => self.info = *info,
            StreamItem::Group { name, last, read } => {
                self.end_group();
                self.is_in_group = true;
                self.groups.count += 1;
                push_string(&mut self.groups.bytes, name);
                push_id(&mut self.groups.bytes, *last);
                // -1 where nobody knows.
                push_length(&mut self.groups.bytes, read.unwrap_or(u64::MAX));
            }
            StreamItem::Pending { id, delivered_ms, deliveries } => {
                self.pending.count += 1;
                self.pending.bytes.extend_from_slice(&id.to_bytes());
                self.pending.bytes.extend_from_slice(&delivered_ms.to_le_bytes());
                push_length(&mut self.pending.bytes, *deliveries);
            }
            StreamItem::Consumer { name, seen_ms, .. } => {
                self.end_consumer();
                self.held = Some(Counted::default());
                self.consumers.count += 1;
                push_string(&mut self.consumers.bytes, name);
                self.consumers.bytes.extend_from_slice(&seen_ms.to_le_bytes());
            }
            StreamItem::Held(id) => {
                let held = self.held.get_or_insert_default();
                held.count += 1;
                held.bytes.extend_from_slice(&id.to_bytes());
            }
        }
    }

    fn entry(&mut self, id: StreamId, pairs: &Pairs) {
        let is_full = |node: &Node| {
            node.entries >= NODE_ENTRIES_MAX || node.pack.bytes.len() >= NODE_BYTES_MAX
        };
        if self.node.as_ref().is_some_and(is_full) {
            self.end_node();
        }
        self.node.get_or_insert_with(|| Node::new(id, pairs)).push(id, pairs);
    }

    fn end_node(&mut self) {
        if let Some(node) = self.node.take() {
            self.nodes.count += 1;
            node.finish(&mut self.nodes.bytes);
        }
    }

    fn end_consumer(&mut self) {
        if let Some(held) = self.held.take() {
            held.push_to(&mut self.consumers.bytes);
        }
    }

    fn end_group(&mut self) {
        self.end_consumer();
        if std::mem::take(&mut self.is_in_group) {
            std::mem::take(&mut self.pending).push_to(&mut self.groups.bytes);
            std::mem::take(&mut self.consumers).push_to(&mut self.groups.bytes);
        }
    }

    /// Appends the stream.
    pub(crate) fn finish(mut self, out: &mut Vec<u8>) {
        self.end_node();
        self.end_group();
        self.nodes.push_to(out);
        push_length(out, self.info.length);
        push_id(out, self.info.last);
        push_id(out, self.info.first);
        push_id(out, self.info.removed_max);
        push_length(out, self.info.added);
        self.groups.push_to(out);
    }
}
