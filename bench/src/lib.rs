//! Workloads, data sets and the measuring harness of Rhumb.
#![forbid(unsafe_code)]
