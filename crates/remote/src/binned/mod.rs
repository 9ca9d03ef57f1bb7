//! An assembly of trained arrays with level bins (FineStore, section 4).
//!
//! The host keeps sorted records in *trained arrays*, whose keys never change and which one line
//! each predicts within 32 positions. What is inserted later goes into *level bins* in the gap
//! after a record. A client keeps the lines. It reads the window of records that its line predicts,
//! by itself, and proves from it that a key is there, or that it is not; what lies in bins it
//! leaves to the host, with a *pipeline operation* that names the place which the client has found.
//!
//! | module | for | must never |
//! | --- | --- | --- |
//! | `layout` | the bytes of blocks, bins and wide records | trust a word |
//! | `descriptor` | what a client knows of an array | be needed for a right answer |
//! | `message` | requests and replies, as bytes | panic or over-allocate for any bytes |
//! | `proof` | checksums of what is read without order | be needed where reads have an order |
//! | `slab` | memory in pieces, each with a guard | use a place for pieces of two sizes |
//! | `records` | records, inline or wide | know of arrays |
//! | `array` | trained arrays at the host | change a key |
//! | `bins` | level bins at the host | have more than two levels |
//! | `train` | from sorted keys to runs with lines | need a host |
//! | `barrier` | what waits until sessions know of a change | wait |
//! | `host` `load` `write` `retrain` `scan` | the map that the host keeps | wait for a reader |
//! | `window` | records as a client has read them | answer without a proof |
//! | `client` `many` `walk` `range` | gets, writes and ranges by a client | loop without a bound |

mod array;
mod barrier;
mod bins;
mod client;
mod descriptor;
mod host;
mod layout;
mod load;
mod many;
mod message;
mod proof;
mod range;
mod records;
mod retrain;
mod scan;
mod slab;
#[cfg(test)]
mod tests;
mod train;
mod walk;
mod window;
mod write;

#[cfg(test)]
pub(crate) use client::ClientCounts;
pub(crate) use client::{Answer, CacheBudget, Caller, Client, Mode};
#[cfg(test)]
pub(crate) use host::HostCounts;
pub(crate) use host::{Host, Options};
pub(crate) use layout::{BLOCK_LINES, Sizes, is_header, read_header, write_header};
pub(crate) use message::{Address, Operation, Outcome, Reply, Request, Value, Verb};
#[cfg(test)]
pub(crate) use range::RangePage;
#[cfg(test)]
pub(crate) use train::TrainingPlan;
