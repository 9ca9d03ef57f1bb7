//! Transactions: each agrees with a model of one thread, concurrent ones have the anomalies of
//! their isolation and no others, and what they are used for comes out right.

mod histories;
mod model;
mod workloads;
