//! The state of a read that does no I/O: it is done, or it needs a block.
//!
//! Cursors of tables and the plans over them stop in the same way. They differ in how they name the
//! block: a cursor by its number in the cursor's table, a plan with the table as well.

/// The state of a read when it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Progress<T, B = u32> {
    /// The result.
    Done(T),
    /// The read goes on once it has this block.
    Need(B),
}
