//! `[blocks u16][pages u16][number of keys u8]`, that many short strings, then an index block.

use super::Input;
use crate::table::index_block::BlockIndex;

/// The number of segments and blocks of a long index that are checked.
const SAMPLES: usize = 200;

/// The memory that an index may take for each byte of its encoding. A segment takes 44 bytes and is
/// encoded in little more than one.
const MEMORY_FACTOR: usize = 64;
/// The memory that an index may take besides [`MEMORY_FACTOR`] for each byte.
const MEMORY_BESIDES: usize = 1 << 10;

/// Decodes an index block and asks it for keys.
pub fn index(data: &[u8]) {
    let mut input = Input(data);
    let (blocks, pages) = (u32::from(input.u16()), u32::from(input.u16()));
    let count = input.u8() % 16;
    let mut keys: Vec<Vec<u8>> = (0..count).map(|_| input.short().to_vec()).collect();
    let bytes = input.rest();
    let Ok(index) = BlockIndex::decode(bytes, blocks, pages) else { return };
    assert_eq!(index.block_count(), blocks);
    // One bit for each page is added: the file is known to have the pages before its index is
    // decoded.
    let bytes_max = bytes.len() * MEMORY_FACTOR + pages as usize / 8 + MEMORY_BESIDES;
    assert!(index.resident_bytes() <= bytes_max);
    check_segments(&index, &mut keys);
    keys.extend([vec![], vec![0], vec![0xff; 40]]);
    keys.sort();
    check_keys(&index, &keys);
    check_addresses(&index, pages);
}

/// The segments ascend and have all blocks between them. Adds their separators, and keys near them,
/// to `keys`.
fn check_segments(index: &BlockIndex, keys: &mut Vec<Vec<u8>>) {
    let mut next_block = 0;
    let mut last: Option<Vec<u8>> = None;
    let is_long = index.segment_count() > SAMPLES;
    for segment in index.segments().take(SAMPLES) {
        assert_eq!(segment.first_block, next_block);
        assert!(segment.blocks > 0 && segment.slope >= 0.0);
        next_block += segment.blocks;
        assert!(last.is_none_or(|last| last < segment.separator), "separators ascend");
        let mut beside = segment.separator.clone();
        if let Some(byte) = beside.last_mut() {
            *byte = byte.wrapping_sub(1);
        }
        keys.push(beside);
        keys.push([&segment.separator[..], &[0x80; 4]].concat());
        keys.push(segment.separator.clone());
        last = Some(segment.separator);
    }
    assert!(next_block <= index.block_count());
    assert!(is_long || next_block == index.block_count(), "segments hold all blocks");
}

/// Answers are blocks that exist, agree with each other, and never go back as keys ascend.
fn check_keys(index: &BlockIndex, keys: &[Vec<u8>]) {
    let last_block = index.block_count().saturating_sub(1);
    let mut reached = 0;
    for key in keys {
        let located = index.locate(key);
        assert!(located <= last_block, "block {located} of {}", index.block_count());
        let (predicted, part) = index.predict_if(key, || true).expect("it is wanted");
        assert_eq!(predicted, located);
        assert!(part < 64);
        let hint = index.seek(key);
        assert!(hint.lo <= hint.block && hint.block <= hint.hi && hint.hi <= last_block);
        assert!(hint.block >= reached, "a seek that goes back for a greater key");
        reached = hint.block;
        let explained = index.explain(key);
        assert_eq!(explained.block, located);
        let (first, last) = explained.segment_blocks;
        assert!(first <= located && located <= last && last <= last_block);
        assert!(explained.segment < index.segment_count().max(1));
    }
}

/// Blocks lie within the data area, one after the other.
fn check_addresses(index: &BlockIndex, pages: u32) {
    let Some(last_block) = index.block_count().checked_sub(1) else { return };
    let mut last = None;
    for block in (0..=last_block).take(SAMPLES) {
        let address = index.address(block);
        assert!(address.first_page <= address.last_page && address.last_page < pages);
        let place = (address.first_page, address.nth);
        assert!(last.is_none_or(|last| last < place), "blocks in order");
        last = Some(place);
    }
    assert_eq!(index.address(u32::MAX), index.address(last_block));
}
