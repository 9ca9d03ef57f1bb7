//! Repository checks and data sets as a program.
fn main() {}
