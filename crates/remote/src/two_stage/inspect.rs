//! What a client can see of a table's shape, without its host's help. Nothing that is read is
//! trusted: made-up numbers only make wrong sums.

use super::{
    cache::CacheBudget,
    client::{Client, ClientOptions},
    layout::{SLOTS, head, kind},
    leaf::{Head, ValuePointer},
};
use crate::{error::Result, fabric::Fabric};

/// What there is of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableSummary {
    pub(crate) sub_models: u64,
    pub(crate) leaf_bytes: u64,
    pub(crate) leaf_room: u64,
    /// Leaves that were ever in use.
    pub(crate) leaves: u64,
    /// Pairs, if they were counted.
    pub(crate) pairs: u64,
    /// Those whose values the host has, in leaves of keys of eight bytes.
    pub(crate) asked: u64,
    /// Bytes of leaves that are in use.
    pub(crate) used_bytes: u64,
    /// Leaves that could not be read, or answer for nothing.
    pub(crate) unread: u64,
}

/// Describes the table in a region whose leaves have `leaf_words` words together, and counts its
/// pairs if that is asked for. Linear in the number of leaves.
///
/// # Errors
///
/// Those of [`Client::open`], and of the fabric.
pub(crate) fn inspect(
    fabric: &impl Fabric,
    leaf_words: usize,
    counts: bool,
) -> Result<TableSummary> {
    let options = ClientOptions { budget: CacheBudget::Top, speculates: false };
    let mut client = Client::open(fabric, options)?;
    let words = client.sizes.leaf_words();
    let mut shape = TableSummary {
        sub_models: u64::from(client.sub_models()),
        leaf_bytes: words as u64 * 8,
        leaf_room: SLOTS as u64,
        ..TableSummary::default()
    };
    let wanted = if counts { words } else { head::WORDS };
    for number in 0..(leaf_words / words) as u32 {
        let extent = client.leaf_extent(number, 0, wanted);
        client.read(fabric, &[extent])?;
        match client.image.piece(0) {
            // From here on no leaf was ever there.
            Some((_, 0)) => break,
            Some((words, guard)) => match Head::parse(number, words, guard) {
                Some(leaf) if counts => shape.add(&client, &leaf, words),
                Some(_) => {}
                None => shape.unread += 1,
            },
            None => shape.unread += 1,
        }
        shape.leaves += 1;
    }
    Ok(shape)
}

impl TableSummary {
    fn add(&mut self, client: &Client, leaf: &Head, words: &[u64]) {
        let slot_words = client.sizes.slot_words();
        let pairs = leaf.count as u64;
        self.pairs += pairs;
        self.used_bytes += (head::WORDS as u64 + pairs * slot_words as u64) * 8;
        if leaf.is_exact() {
            let slots = words.get(head::WORDS..).unwrap_or_default().chunks_exact(slot_words);
            let is_asked = |slot: &&[u64]| ValuePointer::from_word(slot[1]).kind == kind::ASK;
            self.asked += slots.take(leaf.count).filter(is_asked).count() as u64;
        }
    }
}
