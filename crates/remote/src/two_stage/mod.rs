//! Two-stage models over unsorted leaves: the assembly of a learned cache at clients.
//!
//! A host keeps an ordered map of leaves of [`layout::SLOTS`] pairs in a region. A client keeps
//! models and tables of it, predicts the leaves that may hold a key, and reads their heads in one
//! round trip and the value in another. Models are trained while leaves change: a table maps a
//! model's own numbers of leaves to leaves and the incarnations that they had, so that what is
//! stale is noticed.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `layout` | the bytes of both parts | hold a pointer |
//! | `leaf` | heads and records that were read | trust a length |
//! | `proof` | checksums of what is read without order | be needed where reads have an order |
//! | `write` | leaves and records in shared memory | write to what is not latched and can be read |
//! | `slab` | free lines of the control part | change a piece's size |
//! | `host` `place` `load` | the map, and where its pairs lie | wait for a reader |
//! | `model` `table` | from a key to leaves | be needed for a right answer |
//! | `train` | models and tables, in step with the leaves | hold a table's lock while it fits |
//! | `message` | what a fallback call carries | panic or over-allocate for any bytes |
//! | `cache` | what a client keeps | exceed its budget |
//! | `client` `search` `many` `scan` `inspect` | gets, scans, what is there | loop without a bound |
//!
//! Beyond the paper's leaf (a header of 8 bytes, then keys, then values), a leaf has a guard, since
//! there is no transactional memory to make reads atomic, and two fences, which prove that a key
//! is nowhere: 40 bytes more in the first read. Keys of any length and large values lie in records
//! of the control part, each with a guard of its own and its key.

mod cache;
mod client;
mod host;
mod inspect;
mod layout;
mod leaf;
mod load;
mod many;
mod message;
mod model;
mod place;
mod proof;
mod scan;
mod search;
mod slab;
mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod train;
mod write;

pub(crate) use cache::CacheBudget;
#[cfg(test)]
pub(crate) use client::ClientCounts;
pub(crate) use client::{Client, ClientOptions, Outcome};
#[cfg(test)]
pub(crate) use host::HostCounts;
pub(crate) use host::{Options, Table, Value};
pub(crate) use inspect::inspect;
pub(crate) use layout::{SLOTS, Sizes, is_header};
#[cfg(test)]
pub(crate) use message::Fresh;
pub(crate) use message::{Answer, Lookup};
#[cfg(test)]
pub(crate) use scan::Scanned;

/// Where models and tables lie in a control part of `words` words whose table was just built: the
/// place of the top model, and all that was made after the records. No answer depends on them.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn model_words<S: crate::host::Space>(
    table: &Table<S>,
    words: usize,
) -> [std::ops::Range<usize>; 2] {
    let first = layout::line_at(table.model_line()) as usize / 8;
    [layout::TOP..layout::TOP + layout::TOP_WORDS, first..words]
}
