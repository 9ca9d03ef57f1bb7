//! What clients ask and hosts answer, as bytes.
//!
//! Reading trusts nothing: a length is checked against the bytes that are left before anything is
//! allocated, and what is left over is refused.

use std::sync::Arc;

use rhumb_model::codec::{DecodeError, Reader, put_varint};

use super::descriptor::{Lesson, put_high, put_key, take_high, take_key};
use crate::error::{Error, Result};

/// The longest value in a message, as in other messages of this crate.
const VALUE_BYTES_MAX: u64 = 16 << 20;
/// Pairs that one reply brings at most.
pub(super) const PAIRS_MAX: u32 = 4096;

/// What a pipeline operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Finds the value of a key.
    Search,
    /// Adds a key that is not there.
    Insert,
    /// Sets the value of a key that is there.
    Update,
    /// Sets the value of a key, there or not.
    Put,
    /// Removes a key.
    Remove,
    /// Finds pairs in order. With an address: only those that bins hold, in the gaps of the array
    /// from the address' record on.
    Range,
}

const VERBS: [Verb; 6] =
    [Verb::Search, Verb::Insert, Verb::Update, Verb::Put, Verb::Remove, Verb::Range];

/// Where a client found that a key belongs. The host checks all of it before it uses any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Address {
    /// The epoch of an array; 0 for none.
    pub(crate) array: u64,
    /// The record of the array whose key is the key, or the largest one below it.
    pub(crate) record: u32,
    /// The line of the root bin, or of the header of the small array, in the gap after the record;
    /// 0 if there was none.
    pub(crate) bin: u32,
    /// Its incarnation; 0 if there was none.
    pub(crate) incarnation: u32,
}

impl Address {
    /// In place of an array's epoch: there is no address, and the client wants no descriptor.
    pub(crate) const UNTAUGHT: u64 = u64::MAX;
}

/// A pipeline operation: what a client has determined, for the host to finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) verb: Verb,
    pub(crate) address: Address,
    /// The key, or the lowest one of a range.
    pub(crate) key: Vec<u8>,
    /// The value of a write.
    pub(crate) value: Vec<u8>,
    /// Where a range ends, which does not have it; `None` for the last key.
    pub(crate) end: Option<Arc<[u8]>>,
    /// Pairs of a range at most; the host may bring fewer.
    pub(crate) limit: u32,
}

impl Operation {
    /// An operation on one key.
    pub(crate) fn new(verb: Verb, address: Address, key: &[u8], value: &[u8]) -> Self {
        Self { verb, address, key: key.to_vec(), value: value.to_vec(), end: None, limit: 0 }
    }
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Begins a session, which acknowledges the model as it is then.
    Join,
    /// Renews a session's lease, and says which epoch of the model the client has.
    Renew { session: u64, model: u64 },
    /// Ends a session.
    Leave { session: u64 },
    /// Asks for descriptors of the arrays from a key on.
    Learn { from: Vec<u8> },
    /// Asks for a pipeline operation.
    Operate(Operation),
}

/// The value of a key as the host has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Here(Vec<u8>),
    /// It is this long and is fetched elsewhere: it is longer than the region holds.
    Ask(u32),
}

/// A key and its value.
pub(crate) type Pair = (Vec<u8>, Value);

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Found(Value),
    Absent,
    /// A write is done, or an insert or update was not: `was_there` says which.
    Written {
        was_there: bool,
    },
    /// Pairs of a range, and where it goes on: `None` if there are no more up to its end.
    Pairs {
        pairs: Vec<Pair>,
        next: Option<Vec<u8>>,
    },
    /// The array of a range's address answers no more.
    Moved,
}

/// What a host answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A session has begun. Its lease is counted from when it was asked for.
    Joined { session: u64, lease_ms: u64, model: u64 },
    /// A lease is renewed. The lessons bring the model that was acknowledged to this epoch; without
    /// any, and an epoch beyond the client's, the model is to be learned anew.
    Renewed { model: u64, lessons: Vec<Lesson> },
    /// There is no such session (any more).
    Unknown,
    /// Some arrays; the rest begins at the high bound of the last.
    Learned(Lesson),
    /// How an operation ended, with the array of its key if the address was of another one.
    Done { outcome: Outcome, lesson: Option<Lesson> },
}

fn put_value(value: &[u8], out: &mut Vec<u8>) {
    put_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

fn take_value(from: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let len = from.varint_up_to(VALUE_BYTES_MAX, "a value's length")?;
    Ok(from.take(len as usize, "a value")?.to_vec())
}

fn refused(error: DecodeError) -> Error {
    Error::invalid(error.to_string())
}

impl Operation {
    fn put(&self, out: &mut Vec<u8>) {
        let Address { array, record, bin, incarnation } = self.address;
        out.push(VERBS.iter().position(|verb| *verb == self.verb).unwrap_or_default() as u8);
        put_varint(array, out);
        [record, bin, incarnation].iter().for_each(|number| put_varint((*number).into(), out));
        put_key(&self.key, out);
        put_value(&self.value, out);
        put_high(self.end.as_deref(), out);
        put_varint(self.limit.into(), out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let verb = from.u8("a verb")?;
        let Some(verb) = VERBS.get(usize::from(verb)).copied() else {
            return Err(from.error("a verb", verb));
        };
        let array = from.varint("an array's epoch")?;
        let mut number = |what| Ok(from.varint_up_to(u32::MAX.into(), what)? as u32);
        let (record, bin) = (number("a record")?, number("a bin")?);
        let address = Address { array, record, bin, incarnation: number("an incarnation")? };
        Ok(Self {
            verb,
            address,
            key: take_key(from)?.to_vec(),
            value: take_value(from)?,
            end: take_high(from)?,
            limit: from.varint_up_to(PAIRS_MAX.into(), "a number of pairs")? as u32,
        })
    }
}

impl Request {
    /// Appends the request.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Join => out.push(0),
            Self::Renew { session, model } => {
                out.push(1);
                put_varint(*session, out);
                put_varint(*model, out);
            }
            Self::Leave { session } => {
                out.push(2);
                put_varint(*session, out);
            }
            Self::Learn { from } => {
                out.push(3);
                put_key(from, out);
            }
            Self::Operate(operation) => {
                out.push(4);
                operation.put(out);
            }
        }
    }

    /// Reads a request, which is all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let request = Self::take(&mut from).map_err(refused)?;
        from.finish().map_err(refused)?;
        Ok(request)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8("a request")? {
            0 => Self::Join,
            1 => Self::Renew {
                session: from.varint("a session")?,
                model: from.varint("an epoch of the model")?,
            },
            2 => Self::Leave { session: from.varint("a session")? },
            3 => Self::Learn { from: take_key(from)?.to_vec() },
            4 => Self::Operate(Operation::take(from)?),
            other => return Err(from.error("a request", other)),
        })
    }
}

impl Value {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Here(value) => {
                out.push(0);
                put_value(value, out);
            }
            Self::Ask(len) => {
                out.push(1);
                put_varint((*len).into(), out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8("a value's kind")? {
            0 => Self::Here(take_value(from)?),
            1 => Self::Ask(from.varint_up_to(u32::MAX.into(), "a value's length")? as u32),
            other => return Err(from.error("a value's kind", other)),
        })
    }
}

impl Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Found(value) => {
                out.push(0);
                value.put(out);
            }
            Self::Absent => out.push(1),
            Self::Written { was_there } => out.extend([2, (*was_there).into()]),
            Self::Pairs { pairs, next } => {
                out.push(3);
                put_varint(pairs.len() as u64, out);
                for (key, value) in pairs {
                    put_key(key, out);
                    value.put(out);
                }
                put_high(next.as_deref(), out);
            }
            Self::Moved => out.push(4),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8("an outcome")? {
            0 => Self::Found(Value::take(from)?),
            1 => Self::Absent,
            2 => match from.u8("a flag")? {
                flag @ 0..=1 => Self::Written { was_there: flag == 1 },
                other => return Err(from.error("a flag", other)),
            },
            3 => {
                let count = from.varint_up_to(PAIRS_MAX.into(), "a number of pairs")?;
                // A pair takes three bytes at least, and a vector of them grows as they come.
                let mut pairs = Vec::new();
                for _ in 0..count {
                    pairs.push((take_key(from)?.to_vec(), Value::take(from)?));
                }
                Self::Pairs { pairs, next: take_high(from)?.map(|next| next.to_vec()) }
            }
            4 => Self::Moved,
            other => return Err(from.error("an outcome", other)),
        })
    }
}

impl Reply {
    /// Appends the reply.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Joined { session, lease_ms, model } => {
                out.push(0);
                [session, lease_ms, model].iter().for_each(|number| put_varint(**number, out));
            }
            Self::Renewed { model, lessons } => {
                out.push(1);
                put_varint(*model, out);
                put_varint(lessons.len() as u64, out);
                lessons.iter().for_each(|lesson| lesson.put(out));
            }
            Self::Unknown => out.push(2),
            Self::Learned(lesson) => {
                out.push(3);
                lesson.put(out);
            }
            Self::Done { outcome, lesson } => {
                out.push(4);
                outcome.put(out);
                out.push(lesson.is_some().into());
                if let Some(lesson) = lesson {
                    lesson.put(out);
                }
            }
        }
    }

    /// Reads a reply, which is all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let reply = Self::take(&mut from).map_err(refused)?;
        from.finish().map_err(refused)?;
        Ok(reply)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.u8("a reply")? {
            0 => Self::Joined {
                session: from.varint("a session")?,
                lease_ms: from.varint("a lease")?,
                model: from.varint("an epoch of the model")?,
            },
            1 => {
                let model = from.varint("an epoch of the model")?;
                let most = from.remaining() as u64;
                let count = from.varint_up_to(most, "a number of lessons")?;
                let mut lessons = Vec::new();
                for _ in 0..count {
                    lessons.push(Lesson::take(from)?);
                }
                Self::Renewed { model, lessons }
            }
            2 => Self::Unknown,
            3 => Self::Learned(Lesson::take(from)?),
            4 => {
                let outcome = Outcome::take(from)?;
                let lesson = match from.u8("a flag")? {
                    0 => None,
                    1 => Some(Lesson::take(from)?),
                    other => return Err(from.error("a flag", other)),
                };
                Self::Done { outcome, lesson }
            }
            other => return Err(from.error("a reply", other)),
        })
    }
}
