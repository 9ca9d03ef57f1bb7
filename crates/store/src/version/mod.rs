//! Which tables make up each LSM tree, and the manifest that remembers it.

pub(crate) mod edit;
pub(crate) mod format;
pub(crate) mod levels;
pub(crate) mod manifest;
pub(crate) mod prepare;
pub(crate) mod retain;
pub(crate) mod snapshots;
pub(crate) mod state;
pub(crate) mod tail;
#[cfg(test)]
mod tests;
mod tracked;
