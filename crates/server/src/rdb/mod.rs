//! The serialisation of Redis: values and dumps, from bytes and to bytes. Knows of no store and of
//! no server.
//!
//! A value is read as [`Item`]s, one at a time, from bytes that arrive as they are wanted: what is
//! in memory of a value of any size is one item and the node that it lies in. A node is a string
//! of the dump, and has at most 512 MiB. Nothing is kept for what is only
//! announced. Versions 1 to 12 of the format are read; what is written is version 10, which Redis
//! 7.0 and later read, and 12 for a hash of which some fields end, which Redis 7.4 and later read.
//!
//! | module | for |
//! | --- | --- |
//! | `format` | the constants |
//! | `lzf` | compressed strings |
//! | `source` | bytes, lengths and strings, with their places and the checksum |
//! | `packed` | elements of the packed nodes: lists, maps and sets of integers |
//! | `stream` | the items of a stream |
//! | `items` | the items of any value |
//! | `dump` | a whole dump |
//! | `payload` | what `DUMP` gives: one value with its version and checksum |
//! | `functions` | libraries of functions |
//! | `write` `write_stream` `value_bytes` | values and dumps to bytes |

mod dump;
mod error;
mod format;
mod functions;
mod items;
mod lzf;
mod packed;
mod payload;
mod source;
mod stream;
mod value_bytes;
mod write;
mod write_stream;

pub(crate) use dump::{Dump, KeyHead, Record};
pub(crate) use error::RdbError;
pub(crate) use functions::{libraries_of, libraries_payload};
pub(crate) use items::{Item, Items, ValueKind};
pub(crate) use payload::{finish_payload, has_times, open_payload};
pub(crate) use source::Source;
pub(crate) use stream::{StreamId, StreamInfo, StreamItem};
pub(crate) use value_bytes::ValueBytes;
pub(crate) use write::{
    DumpWriter, begin_ending_hash, begin_value, push_end, push_item, string_value, type_of,
};

#[cfg(test)]
mod tests;
