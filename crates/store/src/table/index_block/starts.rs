//! Where blocks start, in two bits a block: for each page of the data area, a one for every block
//! that starts in it and then a zero.
//!
//! The position of the `b`-th one, less `b`, is the number of zeros before it and so the page of
//! block `b`; the ones directly before it are the blocks that start earlier in the same page.

use rhumb_model::codec::Reader;

use super::BlockAddress;

/// Ones from one sampled position to the next.
const SAMPLE: u32 = 128;
/// The most blocks that can start in one page: a frame takes at least this many bytes.
const FRAME_BYTES_MIN: u32 = 17;
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
    /// The next block starts in `page`, which is not before that of the last one.
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

    /// Appends the bits, least significant first, in whole bytes.
    pub(super) fn encode(mut self, data_pages: u32, out: &mut Vec<u8>) {
        self.finish_pages(data_pages);
        let len = self.len_bits.div_ceil(8) as usize;
        out.extend(self.words.iter().flat_map(|word| word.to_le_bytes()).take(len));
    }
}

/// The starts of all blocks of a table: validated, selectable.
#[derive(Debug)]
pub(super) struct Starts {
    words: Box<[u64]>,
    /// The position of every `SAMPLE`-th one.
    samples: Box<[u32]>,
    blocks: u32,
    data_pages: u32,
}

impl Starts {
    /// Reads the bits, which are all that is left of `reader`.
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        blocks: u32,
        data_pages: u32,
    ) -> Result<Self, String> {
        let bits = u64::from(blocks) + u64::from(data_pages);
        if u32::try_from(bits).is_err() {
            return Err(format!("expected blocks and pages below 2^32, found {bits}"));
        }
        let expected_len = bits.div_ceil(8) as usize;
        if reader.remaining() != expected_len {
            let found = reader.remaining();
            return Err(format!(
                "expected {expected_len} bytes of block starts for {blocks} blocks in {data_pages} pages, found {found}"
            ));
        }
        let bytes = reader.take(expected_len, "block starts").map_err(|e| e.to_string())?;
        let words = bytes
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            })
            .collect();
        let mut starts = Self { words, samples: Box::default(), blocks, data_pages };
        starts.samples = starts.validate(bits)?;
        Ok(starts)
    }

    /// Checks the number of ones, the padding and the length of runs; yields the samples.
    fn validate(&self, bits: u64) -> Result<Box<[u32]>, String> {
        let mut samples = Vec::with_capacity((self.blocks / SAMPLE + 1) as usize);
        let (mut ones, mut run) = (0u32, 0u32);
        for bit in 0..self.words.len() as u64 * 64 {
            if self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 0 {
                run = 0;
                continue;
            }
            if bit >= bits {
                return Err(format!("expected zero padding after bit {bits}, found bit {bit} set"));
            }
            run += 1;
            if run > STARTS_PER_PAGE_MAX {
                return Err(format!(
                    "expected at most {STARTS_PER_PAGE_MAX} blocks to start in a page, found more before bit {bit}"
                ));
            }
            if ones % SAMPLE == 0 {
                samples.push(bit as u32);
            }
            ones += 1;
        }
        if ones != self.blocks {
            return Err(format!("expected the starts of {} blocks, found {ones}", self.blocks));
        }
        // The last page ends with a zero, or a block would start beyond it.
        if bits > 0 && self.words[((bits - 1) / 64) as usize] >> ((bits - 1) % 64) & 1 == 1 {
            return Err("expected the starts to end with a page, found a block after it".into());
        }
        Ok(samples.into())
    }

    /// Where `block` lies; a block that is not there reads as the last one.
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
        builder.encode(data_pages, &mut bytes);
        assert_eq!(bytes.len(), (pages.len() + data_pages as usize).div_ceil(8));
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
    fn a_full_page_of_tiny_blocks() {
        check(&vec![0; STARTS_PER_PAGE_MAX as usize], 1);
        check(&[vec![3; 200], vec![4; 200], vec![900]].concat(), 901);
        let mut builder = StartsBuilder::default();
        (0..=STARTS_PER_PAGE_MAX).for_each(|_| builder.push(0));
        let mut bytes = Vec::new();
        builder.encode(1, &mut bytes);
        let refusal = Starts::decode(&mut Reader::new(&bytes), STARTS_PER_PAGE_MAX + 1, 1);
        assert!(refusal.unwrap_err().contains("blocks to start in a page"));
    }
}
