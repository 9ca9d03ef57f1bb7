//! The Redis serialization protocol, versions 2 and 3: bytes to commands and replies to bytes.
//!
//! Knows of no socket and of no command. A command is a list of spans of the buffer that it arrived
//! in; nothing is copied and nothing is allocated ahead of what has arrived.

pub mod number;
mod owned;
mod parse;
mod reply;

pub use owned::OwnedArgs;
pub use parse::{Args, Frames, Parser, ProtocolError, ReadLimits, Span};
pub use reply::Reply;
