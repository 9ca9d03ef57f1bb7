//! The `rhumb` binary.
fn main() {}
