//! The items of a value, one at a time.

use std::io::Read;

use super::{
    error::RdbError,
    format::*,
    packed::{Packed, Packing},
    source::Source,
    stream::{StreamItem, StreamReader},
};

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    String,
    List,
    Set,
    Zset,
    Hash,
    Stream,
    /// The value of a module, which is only passed over.
    Module,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    /// All of a string.
    String(Vec<u8>),
    /// The next element of a list.
    Element(Vec<u8>),
    Member(Vec<u8>),
    /// A field of a hash, and when it ends in milliseconds since 1970; 0 if it does not.
    Field {
        field: Vec<u8>,
        value: Vec<u8>,
        expires_ms: u64,
    },
    Scored {
        member: Vec<u8>,
        score: f64,
    },
    Stream(StreamItem),
}

/// How the times of a hash's fields are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    None,
    /// A time before each field; 0 if the field does not end.
    Absolute,
    /// Milliseconds after the first time of all, less one; 0 if the field does not end.
    After(u64),
    /// A time after each value, among the packed elements.
    Packed,
}

/// Where the elements of a value lie.
enum Elements {
    /// Strings, this number of them.
    Plain(u64),
    Packed(Packed),
    /// This number of nodes, each with packed elements.
    Nodes {
        left: u64,
        node: Option<Packed>,
        /// A node says how it is packed.
        marked: bool,
    },
    Stream(Box<StreamReader>),
    Module,
    Over,
}

/// What is left of a value.
pub(crate) struct Items {
    pub(crate) kind: ValueKind,
    elements: Elements,
    times: Times,
    /// Scores are floats and no text.
    binary_scores: bool,
}

impl Items {
    /// The items of a value of this type, which comes next.
    ///
    /// # Errors
    ///
    /// If the bytes do not come, are damaged, or are of a type that is not read.
    pub(crate) fn begin(type_byte: u8, source: &mut Source<impl Read>) -> Result<Self, RdbError> {
        let kind = kind_of(type_byte).ok_or_else(|| RdbError::Unsupported {
            offset: source.offset(),
            what: format!("a value of type {type_byte}, which is not known"),
        })?;
        let times = match type_byte {
            TYPE_HASH_METADATA_PRE_GA => Times::Absolute,
            TYPE_HASH_METADATA => Times::After(source.u64_le()?),
            TYPE_HASH_LISTPACK_EX_PRE_GA => Times::Packed,
            TYPE_HASH_LISTPACK_EX => {
                // The first of all times, which the fields have as well.
                source.u64_le()?;
                Times::Packed
            }
            _ => Times::None,
        };
        let mut packed = |packing| {
            let bytes = source.string()?;
            let packed = Packed::new(bytes, packing).map_err(|what| source.damaged(what))?;
            Ok(Elements::Packed(packed))
        };
        let elements = match type_byte {
            TYPE_STRING => Elements::Plain(1),
            TYPE_HASH_ZIPMAP => packed(Packing::Zipmap)?,
            TYPE_LIST_ZIPLIST | TYPE_ZSET_ZIPLIST | TYPE_HASH_ZIPLIST => packed(Packing::Ziplist)?,
            TYPE_SET_INTSET => packed(Packing::Intset)?,
            TYPE_HASH_LISTPACK
            | TYPE_ZSET_LISTPACK
            | TYPE_SET_LISTPACK
            | TYPE_HASH_LISTPACK_EX_PRE_GA
            | TYPE_HASH_LISTPACK_EX => packed(Packing::Listpack)?,
            TYPE_LIST_QUICKLIST | TYPE_LIST_QUICKLIST_2 => {
                let marked = type_byte == TYPE_LIST_QUICKLIST_2;
                Elements::Nodes { left: source.length()?, node: None, marked }
            }
            TYPE_MODULE_2 => Elements::Module,
            _ if kind == ValueKind::Stream => {
                Elements::Stream(Box::new(StreamReader::begin(type_byte, source)?))
            }
            _ => Elements::Plain(source.length()?),
        };
        Ok(Self { kind, elements, times, binary_scores: type_byte == TYPE_ZSET_2 })
    }

    /// The next item; none after the last.
    ///
    /// # Errors
    ///
    /// If the bytes do not come, or are damaged.
    pub(crate) fn next(
        &mut self,
        source: &mut Source<impl Read>,
    ) -> Result<Option<Item>, RdbError> {
        match &mut self.elements {
            Elements::Stream(stream) => return Ok(stream.next(source)?.map(Item::Stream)),
            Elements::Module => {
                pass_module(source)?;
                self.elements = Elements::Over;
                return Ok(None);
            }
            _ => {}
        }
        let time = if self.is_over() { 0 } else { self.time_before(source)? };
        let Some(first) = self.element(source)? else { return Ok(None) };
        Ok(Some(match self.kind {
            ValueKind::String => Item::String(first),
            ValueKind::List => Item::Element(first),
            ValueKind::Set => Item::Member(first),
            ValueKind::Zset => Item::Scored { score: self.score(source)?, member: first },
            _ => {
                let value = self.second(source)?;
                let expires_ms =
                    if self.times == Times::Packed { self.packed_time(source)? } else { time };
                Item::Field { field: first, value, expires_ms }
            }
        }))
    }

    fn is_over(&self) -> bool {
        matches!(self.elements, Elements::Plain(0) | Elements::Over)
    }

    fn time_before(&self, source: &mut Source<impl Read>) -> Result<u64, RdbError> {
        Ok(match self.times {
            Times::None | Times::Packed => 0,
            Times::Absolute => source.length()?,
            Times::After(first) => match source.length()? {
                0 => 0,
                after => first
                    .checked_add(after - 1)
                    .ok_or_else(|| source.damaged("a field ends at no time"))?,
            },
        })
    }

    fn packed_time(&mut self, source: &mut Source<impl Read>) -> Result<u64, RdbError> {
        let text = self.second(source)?;
        let time = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
        time.ok_or_else(|| source.damaged("a field ends at no time"))
    }

    /// The next element of those that the value is made of.
    fn element(&mut self, source: &mut Source<impl Read>) -> Result<Option<Vec<u8>>, RdbError> {
        loop {
            match &mut self.elements {
                Elements::Plain(0) => return Ok(None),
                Elements::Plain(left) => {
                    *left -= 1;
                    return source.string().map(Some);
                }
                Elements::Packed(packed) => {
                    return packed.next().map_err(|what| source.damaged(what));
                }
                Elements::Nodes { left, node, marked } => {
                    if let Some(packed) = node {
                        match packed.next().map_err(|what| source.damaged(what))? {
                            None => *node = None,
                            element => return Ok(element),
                        }
                    }
                    if *left == 0 {
                        return Ok(None);
                    }
                    *left -= 1;
                    let mark = if *marked { source.length()? } else { NODE_PACKED };
                    let bytes = source.string()?;
                    let packing = if *marked { Packing::Listpack } else { Packing::Ziplist };
                    match mark {
                        NODE_PLAIN => return Ok(Some(bytes)),
                        NODE_PACKED => {
                            let packed = Packed::new(bytes, packing);
                            *node = Some(packed.map_err(|what| source.damaged(what))?);
                        }
                        _ => return Err(source.damaged("a list's node of no known kind")),
                    }
                }
                Elements::Stream(_) | Elements::Module | Elements::Over => return Ok(None),
            }
        }
    }

    /// The element that belongs to the one before it.
    fn second(&mut self, source: &mut Source<impl Read>) -> Result<Vec<u8>, RdbError> {
        if let Elements::Plain(_) = self.elements {
            return source.string();
        }
        self.element(source)?.ok_or_else(|| source.damaged("a field or member without its second"))
    }

    fn score(&mut self, source: &mut Source<impl Read>) -> Result<f64, RdbError> {
        let score = match self.elements {
            Elements::Plain(_) if self.binary_scores => f64::from_le_bytes(source.array()?),
            Elements::Plain(_) => match source.byte()? {
                SCORE_NAN => f64::NAN,
                SCORE_INFINITE => f64::INFINITY,
                SCORE_NEGATIVE_INFINITE => f64::NEG_INFINITY,
                len => {
                    let text = source.bytes(len.into())?;
                    parse_score(&text).ok_or_else(|| source.damaged("a score that is no number"))?
                }
            },
            _ => {
                let text = self.second(source)?;
                parse_score(&text).ok_or_else(|| source.damaged("a score that is no number"))?
            }
        };
        if score.is_nan() {
            return Err(source.damaged("a score that is no number"));
        }
        Ok(score)
    }
}

fn parse_score(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What a value of this type is.
fn kind_of(type_byte: u8) -> Option<ValueKind> {
    Some(match type_byte {
        TYPE_STRING => ValueKind::String,
        TYPE_LIST | TYPE_LIST_ZIPLIST | TYPE_LIST_QUICKLIST | TYPE_LIST_QUICKLIST_2 => {
            ValueKind::List
        }
        TYPE_SET | TYPE_SET_INTSET | TYPE_SET_LISTPACK => ValueKind::Set,
        TYPE_ZSET | TYPE_ZSET_2 | TYPE_ZSET_ZIPLIST | TYPE_ZSET_LISTPACK => ValueKind::Zset,
        TYPE_HASH
        | TYPE_HASH_ZIPMAP
        | TYPE_HASH_ZIPLIST
        | TYPE_HASH_LISTPACK
        | TYPE_HASH_METADATA_PRE_GA
        | TYPE_HASH_LISTPACK_EX_PRE_GA
        | TYPE_HASH_METADATA
        | TYPE_HASH_LISTPACK_EX => ValueKind::Hash,
        TYPE_STREAM_LISTPACKS | TYPE_STREAM_LISTPACKS_2 | TYPE_STREAM_LISTPACKS_3 => {
            ValueKind::Stream
        }
        TYPE_MODULE_2 => ValueKind::Module,
        _ => return None,
    })
}

/// Passes over what a module has written.
pub(crate) fn pass_module(source: &mut Source<impl Read>) -> Result<(), RdbError> {
    // Its number, which has its name.
    source.length()?;
    pass_module_parts(source)
}

/// Passes over the parts of what a module has written.
pub(crate) fn pass_module_parts(source: &mut Source<impl Read>) -> Result<(), RdbError> {
    loop {
        match source.length()? {
            MODULE_END => return Ok(()),
            MODULE_SIGNED | MODULE_UNSIGNED => _ = source.length()?,
            MODULE_FLOAT => _ = source.array::<4>()?,
            MODULE_DOUBLE => _ = source.array::<8>()?,
            MODULE_STRING => _ = source.string()?,
            _ => return Err(source.damaged("a part of a module's value of no known kind")),
        }
    }
}
