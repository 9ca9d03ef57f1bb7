//! What a client asks of a host.

use std::ops::Bound;

use rhumb_model::codec::put_varint;

use super::{
    Endpoint, Extent, Guess, Hint, Part, check_greeting,
    codec::{
        Frame, Input, check_len, put_bound, put_bytes, put_count, put_frame, put_guess, put_hint,
        put_key, put_option, put_piece,
    },
    format::{
        ITEMS_MAX, NAME_BYTES_MAX, PROGRAM_BYTES_MAX, RENEWED_MAX, TOKEN_BYTES_MAX, request as kind,
    },
    put_greeting,
};
use crate::error::Result;

/// What a client asks. Each request but `Goodbye` has one reply, which carries its id.
///
/// A `keyspace` is the number that `Opened` gave; it means something in this connection only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// The client's first frame, with its program's name for the host's list of sessions.
    Hello {
        /// At most 64 bytes.
        program: &'a str,
        /// Bits of `format::feature`.
        features: u64,
        /// What the host asks clients on other machines for, at most 256 bytes.
        token: Option<&'a [u8]>,
    },
    /// Opens a keyspace. The reply is `Opened`, with the descriptors of the region's segments.
    Open {
        /// The keyspace's name, at most 255 bytes.
        keyspace: &'a [u8],
    },
    /// Reads one key. The reply is `Value`.
    Get {
        /// The keyspace's number.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// Where the client looked.
        hint: Option<Hint>,
    },
    /// Reads several keys at one point in time. The reply is `Values`, in the order of the keys.
    MultiGet {
        /// The keyspace's number.
        keyspace: u32,
        /// At most [`ITEMS_MAX`] keys.
        keys: Vec<&'a [u8]>,
    },
    /// Reads a range. The reply is `Pairs`.
    Scan {
        /// The keyspace's number.
        keyspace: u32,
        /// The lower end.
        from: Bound<&'a [u8]>,
        /// The upper end.
        to: Bound<&'a [u8]>,
        /// The most pairs that are wanted.
        limit: u32,
        /// From the upper end downwards.
        reverse: bool,
        /// The pairs are to be those of one moment.
        is_atomic: bool,
    },
    /// Writes a value. The reply is `Done`.
    Insert {
        /// The keyspace's number.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Where the client believes that the key belongs.
        hint: Option<Hint>,
    },
    /// Removes a key, if it is there. The reply is `Done`.
    Remove {
        /// The keyspace's number.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// Where the client believes that the key is.
        hint: Option<Hint>,
    },
    /// Writes `new` if the key has the value `expected`; none means an absent key. The reply is
    /// `Swapped`.
    CompareAndSwap {
        /// The keyspace's number.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// What the key must have.
        expected: Option<&'a [u8]>,
        /// What it has then.
        new: Option<&'a [u8]>,
        /// Where the client believes that the key is.
        hint: Option<Hint>,
    },
    /// Does all operations as one, in order. The reply is `Done`.
    Batch {
        /// At most [`ITEMS_MAX`] operations.
        ops: Vec<Op<'a>>,
    },
    /// Renews the lease. The reply is `Renewed`.
    Renew {
        /// The model epoch up to which the client knows the directory.
        epoch: u64,
        /// How its gets went since the last renewal, with the keyspaces' numbers.
        gets: Vec<(u32, GetCounts)>,
    },
    /// Asks the host of an assembly whose clients keep models. The reply is `Consulted`.
    Consult {
        /// The keyspace's number.
        keyspace: u32,
        /// What the assembly defines.
        question: &'a [u8],
    },
    /// Reads pieces of the region of a keyspace whose clients keep models. The reply is `Pieces`.
    Pieces {
        /// The keyspace's number.
        keyspace: u32,
        /// At most [`ITEMS_MAX`] places.
        extents: Vec<Extent>,
    },
    /// The client's last frame. It has no reply.
    Goodbye,
    /// Looks for a key in the leaf where it is expected, and elsewhere if it is not there. The
    /// reply is `Read`.
    Read {
        /// The keyspace's number.
        keyspace: u32,
        /// Where the client expects the key.
        guess: Guess,
        /// The key.
        key: &'a [u8],
    },
    /// `Read` of several keys, each by itself. The reply is `ReadMany`.
    ReadMany {
        /// The keyspace's number.
        keyspace: u32,
        /// At most [`ITEMS_MAX`] keys, and where the client expects them.
        wanted: Vec<(Guess, &'a [u8])>,
    },
    /// Reads entries of the directory's top. The reply is `Top`.
    Top {
        /// The keyspace's number.
        keyspace: u32,
        /// The first entry is that of the block which has this key.
        from: &'a [u8],
        /// The most entries that are wanted.
        limit: u32,
    },
    /// Reads the block of the directory that has a key. The reply is `Block`.
    Block {
        /// The keyspace's number.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
    },
    /// Asks which keys of a keyspace the host serves. The reply is `Routing`.
    Routing {
        /// The keyspace's number.
        keyspace: u32,
        /// The routing table comes along if its epoch is above this one.
        above: u64,
    },
    /// Connects a queue pair to one of the host's, which reaches the keyspace's region and nothing
    /// else. The reply is `Attached`.
    Attach {
        /// The keyspace's number.
        keyspace: u32,
        /// The client's queue pair.
        endpoint: Endpoint,
    },
    /// Connects a queue pair to one of the host's, by whose sends another connection goes: it
    /// begins with a greeting, and ends with this one. The reply is `Attached`.
    AttachCalls {
        /// The number of the keyspace in whose domain the host's queue pair is.
        keyspace: u32,
        /// The client's queue pair.
        endpoint: Endpoint,
    },
    /// Asks for the segments of a part of a region, as RDMA reaches them. The reply is
    /// `RemoteSegments`.
    RemoteSegments {
        /// The keyspace's number.
        keyspace: u32,
        /// Which part.
        part: Part,
        /// The number of segments that the client knows: those after them are wanted.
        known: u32,
    },
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    /// Writes a value.
    Insert {
        /// The keyspace's number.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Removes a key, if it is there.
    Remove {
        /// The keyspace's number.
        keyspace: u32,
        /// The key.
        key: &'a [u8],
    },
}

/// How gets of clients went, as they report it. Each get is one of the first five.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetCounts {
    /// The predicted leaf proved the answer at once.
    pub one_read: u64,
    /// A neighbour of the predicted leaf did.
    pub hop: u64,
    /// A leaf that a stale model named did, without the host's help.
    pub speculative: u64,
    /// A leaf had to be read again because it was being written.
    pub retry: u64,
    /// The host had to look beyond the leaf that the client named, or the client named none.
    pub call: u64,
    /// Leaves, or pieces of the region, that were read for these, by the client or the host.
    pub reads: u64,
    /// Bytes that these brought: of values, and of messages over TCP.
    pub bytes: u64,
}

/// The fewest bytes of a keyspace's counts: its number, and seven counts.
const COUNTS_BYTES_MIN: usize = 4 + 7;

/// The fewest bytes of a key with a guess: the guess's tag and an empty key's length.
const WANTED_BYTES_MIN: usize = 1 + 1;

/// The fewest bytes of a place: its part, where it begins, its length, and where its guard is.
const PIECE_BYTES_MIN: usize = 1 + 1 + 1 + 1;

/// The fewest bytes of an operation: its tag, keyspace and an empty key's length.
const OP_BYTES_MIN: usize = 1 + 4 + 1;

impl<'a> Request<'a> {
    /// Appends the request's frame, with `id` to know its reply by. O(bytes). After an error `out`
    /// is as it was.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a name, key, list or the whole
    /// is longer than a message may have.
    pub(crate) fn encode(&self, id: u32, out: &mut Vec<u8>) -> Result<()> {
        put_frame(self.kind(), id, out, |out| self.put_body(out))
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => kind::HELLO,
            Self::Open { .. } => kind::OPEN,
            Self::Get { .. } => kind::GET,
            Self::MultiGet { .. } => kind::MULTI_GET,
            Self::Scan { .. } => kind::SCAN,
            Self::Insert { .. } => kind::INSERT,
            Self::Remove { .. } => kind::REMOVE,
            Self::CompareAndSwap { .. } => kind::COMPARE_AND_SWAP,
            Self::Batch { .. } => kind::BATCH,
            Self::Renew { .. } => kind::RENEW,
            Self::Consult { .. } => kind::CONSULT,
            Self::Pieces { .. } => kind::PIECES,
            Self::Goodbye => kind::GOODBYE,
            Self::Read { .. } => kind::READ,
            Self::ReadMany { .. } => kind::READ_MANY,
            Self::Top { .. } => kind::TOP,
            Self::Block { .. } => kind::BLOCK,
            Self::Routing { .. } => kind::ROUTING,
            Self::Attach { .. } => kind::ATTACH,
            Self::AttachCalls { .. } => kind::ATTACH_CALLS,
            Self::RemoteSegments { .. } => kind::REMOTE_SEGMENTS,
        }
    }

    fn put_body(&self, out: &mut Vec<u8>) -> Result<()> {
        match *self {
            Self::Hello { program, features, token } => {
                check_len("a program's name's length", program.len(), PROGRAM_BYTES_MAX)?;
                check_len("a token's length", token.map_or(0, <[u8]>::len), TOKEN_BYTES_MAX)?;
                put_greeting(out);
                put_bytes(program.as_bytes(), out);
                out.extend_from_slice(&features.to_le_bytes());
                put_option(token, out);
            }
            Self::Open { keyspace } => {
                check_len("a keyspace's name's length", keyspace.len(), NAME_BYTES_MAX)?;
                put_bytes(keyspace, out);
            }
            Self::Get { keyspace, key, hint } | Self::Remove { keyspace, key, hint } => {
                put_place(keyspace, key, out)?;
                put_hint(hint, out);
            }
            Self::MultiGet { keyspace, ref keys } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                put_count(keys.len(), out)?;
                keys.iter().try_for_each(|key| put_key(key, out))?;
            }
            Self::Scan { keyspace, from, to, limit, reverse, is_atomic } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                put_bound(from, out)?;
                put_bound(to, out)?;
                out.extend_from_slice(&limit.to_le_bytes());
                out.push(u8::from(reverse) | u8::from(is_atomic) << 1);
            }
            Self::Insert { keyspace, key, value, hint } => {
                put_place(keyspace, key, out)?;
                put_bytes(value, out);
                put_hint(hint, out);
            }
            Self::CompareAndSwap { keyspace, key, expected, new, hint } => {
                put_place(keyspace, key, out)?;
                put_option(expected, out);
                put_option(new, out);
                put_hint(hint, out);
            }
            Self::Batch { ref ops } => {
                put_count(ops.len(), out)?;
                ops.iter().try_for_each(|op| op.put(out))?;
            }
            Self::Renew { epoch, ref gets } => {
                out.extend_from_slice(&epoch.to_le_bytes());
                check_len("a number of keyspaces", gets.len(), RENEWED_MAX)?;
                put_count(gets.len(), out)?;
                for (keyspace, gets) in gets {
                    out.extend_from_slice(&keyspace.to_le_bytes());
                    gets.each().into_iter().for_each(|count| put_varint(count, out));
                }
            }
            Self::Consult { keyspace, question } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                put_bytes(question, out);
            }
            Self::Goodbye => {}
            _ => self.put_look(out)?,
        }
        Ok(())
    }

    /// The bodies of what clients ask that cannot map a region.
    fn put_look(&self, out: &mut Vec<u8>) -> Result<()> {
        match *self {
            Self::Read { keyspace, guess, key } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                put_guess(guess, out);
                put_key(key, out)?;
            }
            Self::ReadMany { keyspace, ref wanted } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                put_count(wanted.len(), out)?;
                for (guess, key) in wanted {
                    put_guess(*guess, out);
                    put_key(key, out)?;
                }
            }
            Self::Top { keyspace, from, limit } => {
                put_place(keyspace, from, out)?;
                out.extend_from_slice(&limit.to_le_bytes());
            }
            Self::Block { keyspace, key } => put_place(keyspace, key, out)?,
            Self::Pieces { keyspace, ref extents } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                put_count(extents.len(), out)?;
                extents.iter().for_each(|extent| put_piece(extent, out));
            }
            Self::Routing { keyspace, above } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                out.extend_from_slice(&above.to_le_bytes());
            }
            Self::Attach { keyspace, endpoint } | Self::AttachCalls { keyspace, endpoint } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                endpoint.put(out);
            }
            Self::RemoteSegments { keyspace, part, known } => {
                out.extend_from_slice(&keyspace.to_le_bytes());
                out.push((part == Part::Leaves).into());
                out.extend_from_slice(&known.to_le_bytes());
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the request of a frame. O(bytes).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the frame holds no request, with the place; and
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a greeting of another version.
    pub(crate) fn decode(frame: &Frame<'a>) -> Result<Self> {
        let mut input = frame.input();
        let request = Self::read(frame.kind, &mut input)?;
        input.finish()?;
        Ok(request)
    }

    fn read(kind: u8, input: &mut Input<'a>) -> Result<Self> {
        let keyspace = "a keyspace's number";
        Ok(match kind {
            kind::HELLO => {
                check_greeting(input)?;
                let program = input.text(PROGRAM_BYTES_MAX, "a program's name")?;
                let features = input.u64("features")?;
                let has_token = input.flag("if there is a token")?;
                let token = has_token.then(|| input.bytes(TOKEN_BYTES_MAX, "a token"));
                Self::Hello { program, features, token: token.transpose()? }
            }
            kind::OPEN => {
                Self::Open { keyspace: input.bytes(NAME_BYTES_MAX, "a keyspace's name")? }
            }
            kind::GET => {
                Self::Get { keyspace: input.u32(keyspace)?, key: input.key()?, hint: input.hint()? }
            }
            kind::MULTI_GET => Self::MultiGet {
                keyspace: input.u32(keyspace)?,
                keys: input.items(ITEMS_MAX, 1, "a number of keys", Input::key)?,
            },
            kind::SCAN => {
                let (keyspace, from, to) = (input.u32(keyspace)?, input.bound()?, input.bound()?);
                let (limit, [reverse, is_atomic]) = (input.u32("a limit")?, input.scan_flags()?);
                Self::Scan { keyspace, from, to, limit, reverse, is_atomic }
            }
            kind::INSERT => Self::Insert {
                keyspace: input.u32(keyspace)?,
                key: input.key()?,
                value: input.value()?,
                hint: input.hint()?,
            },
            kind::REMOVE => Self::Remove {
                keyspace: input.u32(keyspace)?,
                key: input.key()?,
                hint: input.hint()?,
            },
            kind::COMPARE_AND_SWAP => Self::CompareAndSwap {
                keyspace: input.u32(keyspace)?,
                key: input.key()?,
                expected: input.option()?,
                new: input.option()?,
                hint: input.hint()?,
            },
            kind::BATCH => Self::Batch {
                ops: input.items(ITEMS_MAX, OP_BYTES_MIN, "a number of operations", Op::read)?,
            },
            kind::RENEW => Self::Renew {
                epoch: input.u64("a model epoch")?,
                gets: input.items(
                    RENEWED_MAX,
                    COUNTS_BYTES_MIN,
                    "a number of keyspaces",
                    |input| Ok((input.u32(keyspace)?, GetCounts::read(input)?)),
                )?,
            },
            kind::CONSULT => {
                Self::Consult { keyspace: input.u32(keyspace)?, question: input.value()? }
            }
            kind::GOODBYE => Self::Goodbye,
            _ => return Self::read_look(kind, input),
        })
    }

    /// What clients ask that cannot map a region.
    fn read_look(kind: u8, input: &mut Input<'a>) -> Result<Self> {
        let keyspace = "a keyspace's number";
        Ok(match kind {
            kind::READ => Self::Read {
                keyspace: input.u32(keyspace)?,
                guess: input.guess()?,
                key: input.key()?,
            },
            kind::READ_MANY => {
                let wanted = |input: &mut Input<'a>| Ok((input.guess()?, input.key()?));
                Self::ReadMany {
                    keyspace: input.u32(keyspace)?,
                    wanted: input.items(ITEMS_MAX, WANTED_BYTES_MIN, "a number of keys", wanted)?,
                }
            }
            kind::TOP => Self::Top {
                keyspace: input.u32(keyspace)?,
                from: input.key()?,
                limit: input.u32("a limit")?,
            },
            kind::BLOCK => Self::Block { keyspace: input.u32(keyspace)?, key: input.key()? },
            kind::PIECES => Self::Pieces {
                keyspace: input.u32(keyspace)?,
                extents: input.items(
                    ITEMS_MAX,
                    PIECE_BYTES_MIN,
                    "a number of pieces",
                    Input::piece,
                )?,
            },
            kind::ROUTING => {
                Self::Routing { keyspace: input.u32(keyspace)?, above: input.u64("an epoch")? }
            }
            kind::ATTACH => {
                Self::Attach { keyspace: input.u32(keyspace)?, endpoint: Endpoint::read(input)? }
            }
            kind::ATTACH_CALLS => Self::AttachCalls {
                keyspace: input.u32(keyspace)?,
                endpoint: Endpoint::read(input)?,
            },
            kind::REMOTE_SEGMENTS => Self::RemoteSegments {
                keyspace: input.u32(keyspace)?,
                part: input.part()?,
                known: input.u32("a number of segments")?,
            },
            other => return Err(input.refuse("a request", format_args!("kind {other}"))),
        })
    }
}

fn put_place(keyspace: u32, key: &[u8], out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(&keyspace.to_le_bytes());
    put_key(key, out)
}

impl<'a> Op<'a> {
    fn put(&self, out: &mut Vec<u8>) -> Result<()> {
        match *self {
            Self::Insert { keyspace, key, value } => {
                out.push(0);
                put_place(keyspace, key, out)?;
                put_bytes(value, out);
                Ok(())
            }
            Self::Remove { keyspace, key } => {
                out.push(1);
                put_place(keyspace, key, out)
            }
        }
    }

    fn read(input: &mut Input<'a>) -> Result<Self> {
        let is_remove = input.flag("a kind of operation")?;
        let (keyspace, key) = (input.u32("a keyspace's number")?, input.key()?);
        if is_remove {
            return Ok(Self::Remove { keyspace, key });
        }
        Ok(Self::Insert { keyspace, key, value: input.value()? })
    }
}

impl GetCounts {
    /// All counts, in the order of the message.
    pub(crate) fn each(&self) -> [u64; 7] {
        let Self { one_read, hop, speculative, retry, call, reads, bytes } = *self;
        [one_read, hop, speculative, retry, call, reads, bytes]
    }

    /// The counts of [`GetCounts::each`].
    pub(crate) fn of([one_read, hop, speculative, retry, call, reads, bytes]: [u64; 7]) -> Self {
        Self { one_read, hop, speculative, retry, call, reads, bytes }
    }

    fn read(input: &mut Input<'_>) -> Result<Self> {
        let mut counts = [0; 7];
        for count in &mut counts {
            *count = input.varint(u64::MAX, "a number of gets")?;
        }
        Ok(Self::of(counts))
    }
}
