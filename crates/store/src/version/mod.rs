//! Which tables make up each sub-tree, and the manifest that remembers it.
