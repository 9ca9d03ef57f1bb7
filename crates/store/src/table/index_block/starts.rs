//! Where blocks start. In memory there is a bit vector: for each page of the data area, a one for
//! every block that starts in it, and then a zero. The position of the `b`-th one, less `b`, is the
//! number of zeros before it, and so the page of block `b`. The ones directly before it are the
//! blocks that start earlier in the same page.
//!
//! In a file, there is a column of steps: the number of pages from the start of each block to the
//! start of the next. Blocks are about equally large, so the steps are nearly equal and take two to
//! three bits each.

use rhumb_model::codec::{Reader, put_column};

use super::BlockAddress;

/// The number of ones from one sampled position to the next.
const SAMPLE: u32 = 128;
/// The fewest bytes that a block's frame takes.
const FRAME_BYTES_MIN: u32 = 17;
/// The most blocks that can start in one page.
const STARTS_PER_PAGE_MAX: u32 = super::PAGE_PAYLOAD_BYTES / FRAME_BYTES_MIN + 1;

/// Collects the starts of blocks as they are written.
#[derive(Debug, Default)]
pub(super) struct StartsBuilder {
    words: Vec<u64>,
    len_bits: u64,
    page: u32,
    blocks: u32,
}

impl StartsBuilder {
    /// Adds a block that starts in `page`, which is not before that of the last block.
    pub(super) fn push(&mut self, page: u32) {
        self.finish_pages(page);
        self.push_run(1, true);
        self.blocks += 1;
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    fn finish_pages(&mut self, page: u32) {
        self.push_run(u64::from(page.saturating_sub(self.page)), false);
        self.page = self.page.max(page);
    }

    /// Appends `len` ones if `one` is set, or zeros.
    fn push_run(&mut self, len: u64, one: bool) {
        let begin = self.len_bits;
        self.len_bits += len;
        self.words.resize(self.len_bits.div_ceil(64) as usize, 0);
        if one {
            for bit in begin..self.len_bits {
                self.words[(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
    }

    /// Appends the steps between blocks.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        let steps: Vec<u64> = self.steps().map(u64::from).collect();
        put_column(&steps, out);
    }

    /// The number of pages from the start of each block to that of the one before; for the first
    /// block, from page 0.
    fn steps(&self) -> impl Iterator<Item = u32> {
        let ones = self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| at as u32 * 64 + left.trailing_zeros())?;
                left &= left - 1;
                Some(bit)
            })
        });
        let mut before = 0;
        ones.zip(0..).map(move |(one, block): (u32, u32)| {
            let page = one - block;
            page - std::mem::replace(&mut before, page)
        })
    }
}

/// The starts of all blocks of a table: validated, and searchable by block.
#[derive(Debug)]
pub(super) struct Starts {
    words: Box<[u64]>,
    /// The position of every `SAMPLE`-th one.
    samples: Box<[u32]>,
    blocks: u32,
    data_pages: u32,
}

impl Starts {
    /// Reads the steps, which are all that is left of `reader`.
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        blocks: u32,
        data_pages: u32,
    ) -> Result<Self, String> {
        let bits = u64::from(blocks) + u64::from(data_pages);
        if u32::try_from(bits).is_err() {
            return Err(format!("expected blocks and pages below 2^32, found {bits}"));
        }
        let mut steps = Vec::new();
        let read = reader.column(blocks as usize, &mut steps, "steps between blocks");
        read.and_then(|()| reader.finish()).map_err(|e| e.to_string())?;
        let (mut builder, mut page, mut run) = (StartsBuilder::default(), 0u32, 0u32);
        let mut samples = Vec::with_capacity((blocks / SAMPLE + 1) as usize);
        for (block, step) in (0..blocks).zip(steps) {
            let next = u64::from(page).checked_add(step).filter(|next| *next < data_pages.into());
            let Some(next) = next.map(|next| next as u32) else {
                return Err(format!(
                    "expected block {block} to start within {data_pages} pages, found it {step} pages on"
                ));
            };
            run = if next == page { run + 1 } else { 1 };
            if run > STARTS_PER_PAGE_MAX {
                return Err(format!(
                    "expected at most {STARTS_PER_PAGE_MAX} blocks to start in a page, found more before block {block}"
                ));
            }
            page = next;
            if block % SAMPLE == 0 {
                samples.push(page + block);
            }
            builder.push(page);
        }
        builder.finish_pages(data_pages);
        let words = builder.words.into();
        Ok(Self { words, samples: samples.into(), blocks, data_pages })
    }

    /// Where `block` lies; a block beyond the last is taken as the last.
    pub(super) fn address(&self, block: u32) -> BlockAddress {
        let last_page = self.data_pages.saturating_sub(1);
        if self.blocks == 0 {
            return BlockAddress { first_page: 0, last_page, nth: 0 };
        }
        let block = block.min(self.blocks - 1);
        let position = self.select(block);
        let next = (block + 1 < self.blocks).then(|| self.next_one(position + 1) - (block + 1));
        BlockAddress {
            first_page: position - block,
            last_page: next.unwrap_or(last_page).min(last_page),
            nth: self.ones_before(position),
        }
    }

    /// The position of the `n`-th one, which exists.
    fn select(&self, n: u32) -> u32 {
        let sampled = self.samples[(n / SAMPLE) as usize];
        let mut left = n % SAMPLE;
        let mut at = (sampled / 64) as usize;
        let mut word = self.words[at] & (u64::MAX << (sampled % 64));
        while word.count_ones() <= left {
            left -= word.count_ones();
            at += 1;
            word = self.words[at];
        }
        for _ in 0..left {
            word &= word - 1;
        }
        at as u32 * 64 + word.trailing_zeros()
    }

    /// The position of the first one at or after `position`, which exists.
    fn next_one(&self, position: u32) -> u32 {
        let mut at = (position / 64) as usize;
        let mut word = self.words[at] & (u64::MAX << (position % 64));
        while word == 0 {
            at += 1;
            word = self.words[at];
        }
        at as u32 * 64 + word.trailing_zeros()
    }

    /// The number of ones directly before `position`.
    fn ones_before(&self, position: u32) -> u32 {
        let mut count = 0;
        let mut at = (position / 64) as usize;
        let mut bits = position % 64;
        // Moves the bits below `position` to the top of the word.
        let mut word = self.words[at].checked_shl(64 - bits).unwrap_or(0);
        loop {
            let run = word.leading_ones().min(bits);
            count += run;
            if run < bits || at == 0 {
                return count;
            }
            at -= 1;
            bits = 64;
            word = self.words[at];
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.samples)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The answer by looking at all pages.
    fn plain_address(pages: &[u32], block: usize, data_pages: u32) -> BlockAddress {
        let first_page = pages[block];
        BlockAddress {
            first_page,
            last_page: pages.get(block + 1).copied().unwrap_or(data_pages - 1),
            nth: pages[..block].iter().rev().take_while(|page| **page == first_page).count() as u32,
        }
    }

    fn check(pages: &[u32], data_pages: u32) {
        let mut builder = StartsBuilder::default();
        pages.iter().for_each(|page| builder.push(*page));
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        let starts =
            Starts::decode(&mut Reader::new(&bytes), pages.len() as u32, data_pages).unwrap();
        for block in 0..pages.len() {
            let expected = plain_address(pages, block, data_pages);
            assert_eq!(starts.address(block as u32), expected, "block {block}");
        }
    }

    proptest! {
        #[test]
        fn addresses_are_right(steps in prop::collection::vec(prop_oneof![8 => 0u32..3, 1 => Just(0), 1 => 0u32..400], 1..900), tail in 1u32..200) {
            let mut run = 0;
            let mut page = 0;
            let pages: Vec<u32> = steps.into_iter().map(|step| {
                run = if step == 0 { run + 1 } else { 0 };
                page += if run == STARTS_PER_PAGE_MAX - 1 { run = 0; 1 } else { step };
                page
            }).collect();
            check(&pages, page + tail);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), blocks in 0u32..200, data_pages in 0u32..200) {
            if let Ok(starts) = Starts::decode(&mut Reader::new(&bytes), blocks, data_pages) {
                for block in 0..=blocks {
                    let address = starts.address(block);
                    prop_assert!(blocks == 0 || address.first_page <= address.last_page && address.last_page < data_pages);
                }
            }
        }
    }

    #[test]
    fn steps_of_about_one_size_take_two_bits() {
        let pages: Vec<u32> =
            (0..8000u32).map(|block| block * 4 + u32::from(block % 4 == 0)).collect();
        let mut builder = StartsBuilder::default();
        pages.iter().for_each(|page| builder.push(*page));
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        assert!(bytes.len() <= 8000 * 2 / 8, "{} bytes", bytes.len());
        check(&pages, 32_000);
    }

    #[test]
    fn what_is_no_encoding_is_refused() {
        let decode = |bytes: &[u8], blocks, pages| {
            Starts::decode(&mut Reader::new(bytes), blocks, pages).map(|_| ()).unwrap_err()
        };
        // A step of 1, no lower bits: two blocks in pages 1 and 2, then six bits of padding.
        assert!(Starts::decode(&mut Reader::new(&[1, 0, 0b11]), 2, 3).is_ok());
        assert!(decode(&[1, 0, 0b11], 2, 2).contains("block 1 to start within 2 pages"));
        assert!(decode(&[1, 0, 0b111], 2, 3).contains("behind the last"));
        assert!(decode(&[1, 0, 0b11, 0], 2, 3).contains("1 more bytes"));
        assert!(decode(&[1, 0, 0b01], 2, 3).contains("no value 1"), "bits are missing");
        assert!(decode(&[4, 0, 0b11], 2, 3).contains("4 pages on"));
        // One page shorter than 0.
        assert!(decode(&[0, 0, 0b10], 1, 3).contains("block 0"));
    }

    #[test]
    fn a_full_page_of_tiny_blocks() {
        check(&vec![0; STARTS_PER_PAGE_MAX as usize], 1);
        check(&[vec![3; 60], vec![4; 50], vec![900]].concat(), 901);
        let mut builder = StartsBuilder::default();
        (0..=STARTS_PER_PAGE_MAX).for_each(|_| builder.push(0));
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        let refusal = Starts::decode(&mut Reader::new(&bytes), STARTS_PER_PAGE_MAX + 1, 1);
        assert!(refusal.unwrap_err().contains("blocks to start in a page"));
    }
}
