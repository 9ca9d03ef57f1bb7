//! What a host answers.

use super::{
    Answer, Endpoint, RemoteSegment, check_greeting,
    codec::{
        Frame, Input, check_len, put_answer, put_bytes, put_count, put_frame, put_guard, put_key,
        put_option, put_optional_key, put_sizes,
    },
    format::{FRAME_BYTES_MAX, ITEMS_MAX, SERVER_BYTES_MAX, TEXT_BYTES_MAX, reply as kind},
    put_greeting,
    rdma::SEGMENT_BYTES,
};
use crate::error::Result;

/// What a host answers to the request whose id the frame carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// The host's first frame.
    Hello {
        /// A bit for each thing that the host offers. Version 1 has none; unknown ones are ignored.
        features: u64,
    },
    /// A keyspace is open. On a Unix socket the segments' descriptors come with the frame.
    Opened {
        /// The keyspace's number in this connection.
        keyspace: u32,
        /// The header and the directory.
        control: PartInfo,
        /// The leaves.
        leaves: PartInfo,
        /// How long the client may read without renewing, in milliseconds.
        lease_ms: u32,
    },
    /// A region has further segments, after those that the client knows. Their descriptors come
    /// with the frame. It may come without a request and has the id 0 then.
    Segments {
        /// The keyspace's number.
        keyspace: u32,
        /// Which part of the region has grown.
        part: Part,
        /// At most 16 sizes in bytes, in the order of the descriptors.
        sizes: Vec<u64>,
    },
    /// The value of a key, if it is there.
    Value(Option<&'a [u8]>),
    /// The values of several keys, in the order of the request.
    Values(Vec<Option<&'a [u8]>>),
    /// Keys and values of a range, in the order of the scan.
    Pairs {
        /// At most [`ITEMS_MAX`] keys with their values.
        pairs: Vec<(&'a [u8], &'a [u8])>,
        /// True if the range or the limit reaches further: ask again from the last key.
        more: bool,
    },
    /// A write is visible and as durable as the host promises.
    Done {
        /// Its sequence number.
        seq: u64,
    },
    /// A compare-and-swap is decided.
    Swapped {
        /// True if the value was as expected, so that the new one was written.
        swapped: bool,
        /// The sequence number of the write, or that of what was compared.
        seq: u64,
    },
    /// The lease begins anew.
    Renewed {
        /// The model epoch of the host.
        epoch: u64,
        /// The sequence number up to which writes are visible.
        seq: u64,
    },
    /// What the host of an assembly answers, as the assembly defines it.
    Consulted(&'a [u8]),
    /// A keyspace is open whose clients keep models, and this one reads its region piece by piece.
    Shown {
        /// The keyspace's number in this connection.
        keyspace: u32,
        /// What the control part begins with, which says how it is made.
        header: [u64; HEADER_WORDS],
    },
    /// Pieces of a region, in the order of the request.
    Pieces {
        /// The guard of each piece; none if it could not be read.
        guards: Vec<Option<u64>>,
        /// Those that could be read, side by side.
        bytes: &'a [u8],
    },
    /// The request failed.
    Failed {
        /// One of `format::failure`. One that the client does not know is a failure too.
        code: u16,
        /// What went wrong, for people. Encoding cuts it to 1024 bytes.
        text: &'a str,
    },
    /// A keyspace is open whose region the client cannot map.
    Described {
        /// The keyspace's number in this connection.
        keyspace: u32,
        /// Bytes of a leaf, with `format::HAS_CHECKSUMS`.
        leaf_bytes: u32,
        /// Entries that a leaf has room for.
        room: u32,
        /// The model epoch.
        epoch: u64,
    },
    /// What was found of one key.
    Read {
        /// The model epoch, read before anything else.
        epoch: u64,
        /// What the host says.
        answer: Answer<'a>,
    },
    /// What was found of several keys, in the order of the request.
    ReadMany {
        /// The model epoch, read before anything else.
        epoch: u64,
        /// What the host says of each.
        answers: Vec<Answer<'a>>,
    },
    /// Entries of the directory's top, in the order of their keys.
    Top {
        /// The model epoch, read before anything else.
        epoch: u64,
        /// Low keys of blocks, and the units that they are in.
        blocks: Vec<(&'a [u8], u32)>,
        /// True if there are more after these.
        more: bool,
    },
    /// A block of the directory.
    Block {
        /// The model epoch, read before anything else.
        epoch: u64,
        /// The lowest key that the block may have; empty for the first block.
        low: &'a [u8],
        /// The low key of the next block, if there is one.
        high: Option<&'a [u8]>,
        /// The block, with room for its entries alone.
        image: &'a [u8],
    },
    /// The keys belong to another host. Nothing was written.
    Moved {
        /// The epoch of the host's routing table; 0 if it has none.
        epoch: u64,
    },
    /// Which keys the host serves.
    Routing {
        /// The generation of what follows, as in the region's header.
        generation: u64,
        /// Ranges in the order of their keys: the first key, and the end if there is one.
        ranges: Vec<(&'a [u8], Option<&'a [u8]>)>,
        /// The routing table, if it is as new as was asked for.
        table: Option<Table<'a>>,
    },
    /// A queue pair of the host's is connected to the client's.
    Attached {
        /// The host's queue pair.
        endpoint: Endpoint,
    },
    /// Segments of a part of a region, in the order of their places, as RDMA reaches them.
    RemoteSegments {
        /// At most [`ITEMS_MAX`] segments.
        segments: Vec<RemoteSegment>,
    },
}

/// A routing table, as it comes from a host: nothing of it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<'a> {
    /// From 1 on.
    pub(crate) epoch: u64,
    /// The first key of each range, and the address of its host.
    pub(crate) ranges: Vec<(&'a [u8], &'a str)>,
}

/// Words of a control part that say how a region is made.
pub(crate) const HEADER_WORDS: usize = 4;

/// The fewest bytes of an answer: how it was found, and if there is a value.
const ANSWER_BYTES_MIN: usize = 1 + 1;
/// The fewest bytes of a range: an empty key's length, and if there is an end.
const RANGE_BYTES_MIN: usize = 1 + 1;
/// The fewest bytes of a range of a table: the lengths of an empty key and an empty address.
const ROUTE_BYTES_MIN: usize = 1 + 1;
/// The fewest bytes of an entry of a top: an empty key's length, and a unit.
const TOP_BYTES_MIN: usize = 1 + 4;

/// The parts of a region, each with an address space of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The header and the directory.
    Control,
    /// The leaves.
    Leaves,
}

/// What a client must know of a part of a region before it maps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartInfo {
    /// The most that it can grow to, in bytes.
    pub(crate) capacity_bytes: u64,
    /// At most 16 sizes of segments in bytes, in the order of the descriptors. Further ones come as
    /// `Segments`.
    pub(crate) segments: Vec<u64>,
}

impl PartInfo {
    fn put(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&self.capacity_bytes.to_le_bytes());
        put_sizes(&self.segments, out)
    }

    fn read(input: &mut Input<'_>) -> Result<Self> {
        Ok(Self { capacity_bytes: input.u64("a budget")?, segments: input.sizes()? })
    }
}

/// The first whole characters of `text`, as many as a failure may carry.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Appends a table, or the epoch 0 for none.
fn put_table(table: Option<&Table<'_>>, out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(&table.map_or(0, |table| table.epoch).to_le_bytes());
    let Some(table) = table else { return Ok(()) };
    put_count(table.ranges.len(), out)?;
    for (low, server) in &table.ranges {
        put_key(low, out)?;
        check_len("an address's length", server.len(), SERVER_BYTES_MAX)?;
        put_bytes(server.as_bytes(), out);
    }
    Ok(())
}

fn read_table<'a>(input: &mut Input<'a>) -> Result<Option<Table<'a>>> {
    let epoch = input.u64("a table's epoch")?;
    if epoch == 0 {
        return Ok(None);
    }
    let range =
        |input: &mut Input<'a>| Ok((input.key()?, input.text(SERVER_BYTES_MAX, "an address")?));
    let ranges = input.items(ITEMS_MAX, ROUTE_BYTES_MIN, "a number of ranges", range)?;
    Ok(Some(Table { epoch, ranges }))
}

impl<'a> Reply<'a> {
    /// Appends the reply's frame; `id` is the request's. O(bytes). After an error `out` is as it
    /// was.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a key, a list or the whole is
    /// longer than a message may have.
    pub(crate) fn encode(&self, id: u32, out: &mut Vec<u8>) -> Result<()> {
        put_frame(self.kind(), id, out, |out| self.put_body(out))
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => kind::HELLO,
            Self::Opened { .. } => kind::OPENED,
            Self::Segments { .. } => kind::SEGMENTS,
            Self::Value(_) => kind::VALUE,
            Self::Values(_) => kind::VALUES,
            Self::Pairs { .. } => kind::PAIRS,
            Self::Done { .. } => kind::DONE,
            Self::Swapped { .. } => kind::SWAPPED,
            Self::Renewed { .. } => kind::RENEWED,
            Self::Consulted(_) => kind::CONSULTED,
            Self::Shown { .. } => kind::SHOWN,
            Self::Pieces { .. } => kind::PIECES,
            Self::Failed { .. } => kind::FAILED,
            Self::Described { .. } => kind::DESCRIBED,
            Self::Read { .. } => kind::READ,
            Self::ReadMany { .. } => kind::READ_MANY,
            Self::Top { .. } => kind::TOP,
            Self::Block { .. } => kind::BLOCK,
            Self::Moved { .. } => kind::MOVED,
            Self::Routing { .. } => kind::ROUTING,
            Self::Attached { .. } => kind::ATTACHED,
            Self::RemoteSegments { .. } => kind::REMOTE_SEGMENTS,
        }
    }

    fn put_body(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Hello { features } => {
                put_greeting(out);
                out.extend_from_slice(&features.to_le_bytes());
            }
            Self::Opened { keyspace, control, leaves, lease_ms } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                control.put(out)?;
                leaves.put(out)?;
                out.extend_from_slice(&lease_ms.to_le_bytes());
            }
            Self::Segments { keyspace, part, sizes } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                out.push((*part == Part::Leaves).into());
                put_sizes(sizes, out)?;
            }
            Self::Value(value) => put_option(*value, out),
            Self::Values(values) => {
                put_count(values.len(), out)?;
                values.iter().for_each(|value| put_option(*value, out));
            }
            Self::Pairs { pairs, more } => {
                put_count(pairs.len(), out)?;
                for (key, value) in pairs {
                    put_key(key, out)?;
                    put_bytes(value, out);
                }
                out.push((*more).into());
            }
            Self::Done { seq } => out.extend_from_slice(&seq.to_le_bytes()),
            Self::Swapped { swapped, seq } => {
                out.push((*swapped).into());
                out.extend_from_slice(&seq.to_le_bytes());
            }
            Self::Renewed { epoch, seq } => {
                out.extend_from_slice(&epoch.to_le_bytes());
                out.extend_from_slice(&seq.to_le_bytes());
            }
            Self::Consulted(answer) => put_bytes(answer, out),
            Self::Failed { code, text } => {
                out.extend_from_slice(&code.to_le_bytes());
                put_bytes(cut(text).as_bytes(), out);
            }
            _ => self.put_look(out)?,
        }
        Ok(())
    }

    /// The bodies of what clients are told that cannot map a region.
    fn put_look(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Described { keyspace, leaf_bytes, room, epoch } => {
                for number in [keyspace, leaf_bytes, room] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.extend_from_slice(&epoch.to_le_bytes());
            }
            Self::Read { epoch, answer } => {
                out.extend_from_slice(&epoch.to_le_bytes());
                put_answer(answer, out);
            }
            Self::ReadMany { epoch, answers } => {
                out.extend_from_slice(&epoch.to_le_bytes());
                put_count(answers.len(), out)?;
                answers.iter().for_each(|answer| put_answer(answer, out));
            }
            Self::Top { epoch, blocks, more } => {
                out.extend_from_slice(&epoch.to_le_bytes());
                put_count(blocks.len(), out)?;
                for (low, unit) in blocks {
                    put_key(low, out)?;
                    out.extend_from_slice(&unit.to_le_bytes());
                }
                out.push((*more).into());
            }
            Self::Block { epoch, low, high, image } => {
                out.extend_from_slice(&epoch.to_le_bytes());
                put_key(low, out)?;
                put_optional_key(*high, out)?;
                put_bytes(image, out);
            }
            Self::Shown { keyspace, header } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                header.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
            }
            Self::Pieces { guards, bytes } => {
                put_count(guards.len(), out)?;
                guards.iter().for_each(|guard| put_guard(*guard, out));
                put_bytes(bytes, out);
            }
            Self::Moved { epoch } => out.extend_from_slice(&epoch.to_le_bytes()),
            Self::Routing { generation, ranges, table } => {
                out.extend_from_slice(&generation.to_le_bytes());
                put_count(ranges.len(), out)?;
                for (low, high) in ranges {
                    put_key(low, out)?;
                    put_optional_key(*high, out)?;
                }
                put_table(table.as_ref(), out)?;
            }
            Self::Attached { endpoint } => endpoint.put(out),
            Self::RemoteSegments { segments } => {
                put_count(segments.len(), out)?;
                segments.iter().for_each(|segment| segment.put(out));
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the reply of a frame. O(bytes).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the frame holds no reply, with the place; and
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a greeting of another version.
    pub(crate) fn decode(frame: &Frame<'a>) -> Result<Self> {
        let mut input = frame.input();
        let reply = Self::read(frame.kind, &mut input)?;
        input.finish()?;
        Ok(reply)
    }

    fn read(kind: u8, input: &mut Input<'a>) -> Result<Self> {
        let keyspace = "a keyspace's number";
        let seq = "a sequence number";
        Ok(match kind {
            kind::HELLO => {
                check_greeting(input)?;
                Self::Hello { features: input.u64("features")? }
            }
            kind::OPENED => Self::Opened {
                keyspace: input.u32(keyspace)?,
                control: PartInfo::read(input)?,
                leaves: PartInfo::read(input)?,
                lease_ms: input.u32("a lease")?,
            },
            kind::SEGMENTS => Self::Segments {
                keyspace: input.u32(keyspace)?,
                part: input.part()?,
                sizes: input.sizes()?,
            },
            kind::VALUE => Self::Value(input.option()?),
            kind::VALUES => {
                Self::Values(input.items(ITEMS_MAX, 1, "a number of values", Input::option)?)
            }
            kind::PAIRS => {
                let pair = |input: &mut Input<'a>| Ok((input.key()?, input.value()?));
                Self::Pairs {
                    pairs: input.items(ITEMS_MAX, 2, "a number of pairs", pair)?,
                    more: input.flag("if there is more")?,
                }
            }
            kind::DONE => Self::Done { seq: input.u64(seq)? },
            kind::SWAPPED => {
                Self::Swapped { swapped: input.flag("if it swapped")?, seq: input.u64(seq)? }
            }
            kind::RENEWED => {
                Self::Renewed { epoch: input.u64("a model epoch")?, seq: input.u64(seq)? }
            }
            kind::CONSULTED => Self::Consulted(input.value()?),
            kind::FAILED => Self::Failed {
                code: input.u16("a failure's code")?,
                text: input.text(TEXT_BYTES_MAX, "a failure's text")?,
            },
            _ => return Self::read_look(kind, input),
        })
    }

    fn read_look(kind: u8, input: &mut Input<'a>) -> Result<Self> {
        let epoch = "a model epoch";
        Ok(match kind {
            kind::DESCRIBED => Self::Described {
                keyspace: input.u32("a keyspace's number")?,
                leaf_bytes: input.u32("bytes of a leaf")?,
                room: input.u32("a leaf's room")?,
                epoch: input.u64(epoch)?,
            },
            kind::READ => Self::Read { epoch: input.u64(epoch)?, answer: input.answer()? },
            kind::READ_MANY => Self::ReadMany {
                epoch: input.u64(epoch)?,
                answers: input.items(
                    ITEMS_MAX,
                    ANSWER_BYTES_MIN,
                    "a number of answers",
                    Input::answer,
                )?,
            },
            kind::TOP => {
                let block = |input: &mut Input<'a>| Ok((input.key()?, input.u32("a unit")?));
                Self::Top {
                    epoch: input.u64(epoch)?,
                    blocks: input.items(ITEMS_MAX, TOP_BYTES_MIN, "a number of blocks", block)?,
                    more: input.flag("if there is more")?,
                }
            }
            kind::BLOCK => Self::Block {
                epoch: input.u64(epoch)?,
                low: input.key()?,
                high: input.optional_key()?,
                image: input.bytes(FRAME_BYTES_MAX, "a block")?,
            },
            kind::SHOWN => {
                let keyspace = input.u32("a keyspace's number")?;
                let mut header = [0; HEADER_WORDS];
                for word in &mut header {
                    *word = input.u64("a word of a header")?;
                }
                Self::Shown { keyspace, header }
            }
            kind::PIECES => Self::Pieces {
                guards: input.items(ITEMS_MAX, 1, "a number of pieces", Input::guard)?,
                bytes: input.bytes(FRAME_BYTES_MAX, "pieces of a region")?,
            },
            kind::MOVED => Self::Moved { epoch: input.u64("a table's epoch")? },
            kind::ATTACHED => Self::Attached { endpoint: Endpoint::read(input)? },
            kind::REMOTE_SEGMENTS => Self::RemoteSegments {
                segments: input.items(
                    ITEMS_MAX,
                    SEGMENT_BYTES,
                    "a number of segments",
                    RemoteSegment::read,
                )?,
            },
            kind::ROUTING => {
                let range = |input: &mut Input<'a>| Ok((input.key()?, input.optional_key()?));
                Self::Routing {
                    generation: input.u64("a generation")?,
                    ranges: input.items(ITEMS_MAX, RANGE_BYTES_MIN, "a number of ranges", range)?,
                    table: read_table(input)?,
                }
            }
            other => return Err(input.refuse("a reply", format_args!("kind {other}"))),
        })
    }
}
