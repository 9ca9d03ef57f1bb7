//! Learned models over sorted keys: sorted keys in, bounded positions out.
//!
//! This crate does no I/O, starts no threads and holds no unsafe code. All arithmetic is total: no
//! key, in any order, and no byte of a damaged model makes it panic or overflow.
//!
//! * [`code`] turns byte-string keys into numbers that keep their order.
//! * [`pla`] fits lines to sorted points in one pass, with a bound on the error.
//! * [`lpa`] fits least-squares lines by probing, for the published systems that use them.
//! * [`segment`] is the result of a fit: a [`Line`] and the [`Window`] around its prediction.
//! * [`search`] finishes a lookup inside a window.
//! * [`string_code`] turns text into such numbers, by what the keys are made of.
//! * [`codec`] writes models as bytes and reads them back from bytes that may be damaged.
#![forbid(unsafe_code)]

pub mod code;
pub mod codec;
pub mod lpa;
pub mod pla;
pub mod search;
pub mod segment;
pub mod string_code;

pub use pla::Fitter;
pub use segment::{Line, Segment, Window};
pub use string_code::StringCode;
