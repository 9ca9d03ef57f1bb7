//! What a fallback call carries, as bytes: the question, and the answer with what is new.
//!
//! Decoding never panics, and allocates no more than the bytes that are there pay for.

use rhumb_model::codec::{DecodeError, Reader, put_line, put_varint};

use super::{
    layout::{PREFIX_BYTES_MAX, SUB_MODEL_BYTES},
    model::{SubModel, Top},
    table::Descriptor,
};

/// Entries of a table that one answer carries, at most: 8 KiB. A larger table is sent in part.
pub(crate) const ENTRIES_MAX: usize = 1024;

/// A get that a client's models could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup<'a> {
    /// The complete training that the client's top model is of; 0 if it has none.
    pub(crate) epoch: u32,
    /// The client wants the sub-model and its table anew.
    pub(crate) wants_model: bool,
    pub(crate) key: &'a [u8],
}

/// The answer to a [`Lookup`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The value; `None` if the key is not there.
    pub(crate) value: Option<Vec<u8>>,
    /// What the client's cache lacks, if it asked for that.
    pub(crate) fresh: Option<Fresh>,
}

/// A sub-model with its table, and the top model if the client has another one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fresh {
    pub(crate) epoch: u32,
    pub(crate) top: Option<Top>,
    /// Number of the sub-model.
    pub(crate) index: u32,
    pub(crate) descriptor: Descriptor,
    /// The first leaf that `entries` has, by the sub-model's own numbers.
    pub(crate) first: u32,
    /// Entries of the table, at most [`ENTRIES_MAX`].
    pub(crate) entries: Vec<u64>,
}

/// Flags of a question and of an answer.
mod flag {
    pub(super) const MODEL: u8 = 1;
    pub(super) const VALUE: u8 = 1;
    pub(super) const FRESH: u8 = 2;
    pub(super) const TOP: u8 = 4;
}

impl<'a> Lookup<'a> {
    /// Appends the question.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.push(if self.wants_model { flag::MODEL } else { 0 });
        put_bytes(self.key, out);
    }

    /// The question in `bytes`, all of them.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are none.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let epoch = reader.u32("an epoch")?;
        let flags = flags(&mut reader, flag::MODEL)?;
        let key = take_bytes(&mut reader, "a key")?;
        reader.finish()?;
        Ok(Self { epoch, wants_model: flags & flag::MODEL != 0, key })
    }
}

impl Answer {
    /// Appends the answer.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let top = self.fresh.as_ref().and_then(|fresh| fresh.top.as_ref());
        let has = |is: bool, flag: u8| if is { flag } else { 0 };
        out.push(
            has(self.value.is_some(), flag::VALUE)
                | has(self.fresh.is_some(), flag::FRESH)
                | has(top.is_some(), flag::TOP),
        );
        if let Some(value) = &self.value {
            put_bytes(value, out);
        }
        let Some(fresh) = &self.fresh else { return };
        out.extend_from_slice(&fresh.epoch.to_le_bytes());
        if let Some(top) = top {
            put_varint(u64::from(top.models), out);
            put_varint(u64::from(top.first_line), out);
            put_line(&top.line, out);
            put_bytes(&top.prefix, out);
        }
        put_varint(u64::from(fresh.index), out);
        out.extend_from_slice(&fresh.descriptor.model.to_bytes());
        put_varint(u64::from(fresh.descriptor.first_line), out);
        out.extend_from_slice(&fresh.descriptor.version.to_le_bytes());
        put_varint(u64::from(fresh.first), out);
        put_varint(fresh.entries.len() as u64, out);
        fresh.entries.iter().for_each(|entry| out.extend_from_slice(&entry.to_le_bytes()));
    }

    /// The answer in `bytes`, all of them.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let flags = flags(&mut reader, flag::VALUE | flag::FRESH | flag::TOP)?;
        let mut value = None;
        if flags & flag::VALUE != 0 {
            value = Some(take_bytes(&mut reader, "a value")?.to_vec());
        }
        let mut fresh = None;
        if flags & flag::FRESH != 0 {
            fresh = Some(take_fresh(&mut reader, flags & flag::TOP != 0)?);
        } else if flags & flag::TOP != 0 {
            return Err(reader.error("a top model with its sub-model", "one alone"));
        }
        reader.finish()?;
        Ok(Self { value, fresh })
    }
}

fn take_fresh(reader: &mut Reader<'_>, has_top: bool) -> Result<Fresh, DecodeError> {
    let epoch = reader.u32("an epoch")?;
    let top = if has_top { Some(take_top(reader, epoch)?) } else { None };
    let index = take_u32(reader, "the number of a sub-model")?;
    let mut model = [0; SUB_MODEL_BYTES];
    model.copy_from_slice(reader.take(SUB_MODEL_BYTES, "a sub-model")?);
    let first_line = take_u32(reader, "the place of a table")?;
    let version = reader.u32("the version of a sub-model")?;
    let first = take_u32(reader, "the number of a leaf")?;
    let count = reader.varint_up_to(ENTRIES_MAX as u64, "a number of entries")? as usize;
    let bytes = reader.take(count * 8, "the entries of a table")?;
    let (entries, _) = bytes.as_chunks::<8>();
    let entries = entries.iter().map(|entry| u64::from_le_bytes(*entry)).collect();
    let descriptor = Descriptor { model: SubModel::from_bytes(&model), first_line, version };
    Ok(Fresh { epoch, top, index, descriptor, first, entries })
}

fn take_top(reader: &mut Reader<'_>, epoch: u32) -> Result<Top, DecodeError> {
    let models = take_u32(reader, "a number of sub-models")?;
    if models == 0 {
        return Err(reader.error("a number of sub-models", 0));
    }
    let first_line = take_u32(reader, "the place of the sub-models")?;
    let line = reader.line()?;
    let prefix = take_bytes(reader, "a prefix")?;
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(reader.error("a prefix of at most 256 bytes", prefix.len()));
    }
    Ok(Top { epoch, models, first_line, line, prefix: prefix.to_vec() })
}

fn flags(reader: &mut Reader<'_>, known: u8) -> Result<u8, DecodeError> {
    let flags = reader.u8("flags")?;
    if flags & !known != 0 {
        return Err(reader.error("flags", flags));
    }
    Ok(flags)
}

fn take_u32(reader: &mut Reader<'_>, what: &'static str) -> Result<u32, DecodeError> {
    Ok(reader.varint_up_to(u64::from(u32::MAX), what)? as u32)
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], DecodeError> {
    let len = reader.varint_up_to(reader.remaining() as u64, what)?;
    reader.take(len as usize, what)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;
    use rhumb_model::Line;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..40)
    }

    fn fresh() -> impl Strategy<Value = Fresh> {
        let line = (any::<u64>(), any::<i64>(), any::<u32>(), 0u8..=Line::SHIFT_MAX)
            .prop_map(|(x0, y0, mantissa, shift)| Line { x0, y0, mantissa, shift });
        let top = prop::option::of((1u32.., any::<u32>(), line, bytes()));
        let descriptor = any::<([u8; 14], u32, u32)>().prop_map(|(model, first_line, version)| {
            Descriptor { model: SubModel::from_bytes(&model), first_line, version }
        });
        let entries = prop::collection::vec(any::<u64>(), 0..20);
        let numbers = any::<(u32, u32, u32)>();
        (numbers, top, descriptor, entries).prop_map(
            |((epoch, index, first), top, descriptor, entries)| Fresh {
                epoch,
                top: top.map(|(models, first_line, line, prefix)| Top {
                    epoch,
                    models,
                    first_line,
                    line,
                    prefix,
                }),
                index,
                descriptor,
                first,
                entries,
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip(
            epoch: u32, wants_model: bool, key in bytes(), value in prop::option::of(bytes()),
            fresh in prop::option::of(fresh()),
        ) {
            let mut out = Vec::new();
            let lookup = Lookup { epoch, wants_model, key: &key };
            lookup.encode(&mut out);
            prop_assert_eq!(Lookup::decode(&out).unwrap(), lookup);
            out.clear();
            Answer { value, fresh }.encode(&mut out);
            // Encoded again, since a number that is none differs from itself.
            let mut again = Vec::new();
            Answer::decode(&out).unwrap().encode(&mut again);
            prop_assert_eq!(&out, &again);
            prop_assert!(Answer::decode(&out[..out.len() - 1]).is_err());
        }

        #[test]
        fn random_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), flags in 0u8..8,
        ) {
            let _ = Lookup::decode(&bytes);
            let _ = Answer::decode(&bytes);
            let _ = Answer::decode(&[&[flags], &bytes[..]].concat());
        }
    }
}
