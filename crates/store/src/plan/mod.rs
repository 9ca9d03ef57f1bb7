//! Reads as plans: small state machines that ask for blocks and are resumed with them.
//!
//! A plan does no I/O and never waits. Its driver fetches the blocks that it asks for: the
//! synchronous driver here with one `pread` at a time, others with many requests in flight.

pub(crate) mod drivers;
pub(crate) mod many;
pub(crate) mod point;

use rhumb_sync::primitive::Arc;

use crate::{
    error::Result,
    slice::BlockRef,
    table::{self, Table},
};

/// A block that a plan needs to go on.
#[derive(Clone)]
pub(crate) struct BlockRequest {
    /// The table that holds it.
    pub(crate) table: Arc<Table>,
    /// Its number in the table.
    pub(crate) block: u32,
}

/// The state of a plan when it stops: it has its answer, or it needs a block of some table.
pub(crate) type Progress<T> = table::Progress<T, BlockRequest>;

/// A read in progress.
pub(crate) trait Plan {
    /// What the read returns.
    type Output;

    /// Goes as far as resident memory allows.
    fn step(&mut self) -> Result<Progress<Self::Output>>;

    /// Takes the block that was asked for and goes on.
    fn resume(&mut self, block: BlockRef) -> Result<Progress<Self::Output>>;
}

/// Drives a plan from the block that it needs to its answer, with synchronous reads.
pub(crate) fn drive_from<P: Plan>(plan: &mut P, mut request: BlockRequest) -> Result<P::Output> {
    loop {
        let block = request.table.read_block(request.block, true)?;
        match plan.resume(block)? {
            Progress::Done(output) => return Ok(output),
            Progress::Need(next) => request = next,
        }
    }
}
