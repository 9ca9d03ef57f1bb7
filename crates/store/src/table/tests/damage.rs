//! Damaged tables: an error that names the file, or the right answer; never a wrong one.

use super::{differential::KINDS, *};
use crate::{
    error::{Corruption, Error},
    table::{
        format::{PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_PAYLOAD_BYTES},
        value_path,
    },
};

fn small_model() -> Model {
    let mut model = Model::new();
    for number in 0..150_u64 {
        let key = format!("key-{:05}", number * 7).into_bytes();
        let value = (number % 11 != 0).then(|| vec![number as u8; 20 + number as usize % 60]);
        model.insert((key.clone(), Reverse(number + 10)), value);
        if number % 10 == 0 {
            model.insert((key, Reverse(3)), Some(b"older".to_vec()));
        }
    }
    model.insert((b"key-00500".to_vec(), Reverse(7)), Some(vec![9; 5000]));
    model
}

fn small_options(index: crate::table::BlockIndexKind) -> TableLayout {
    TableLayout { index, block_bytes: 1000, large_value_bytes: 4000, ..TableLayout::default() }
}

/// The damage that an error reports; panics if it is another error.
fn damage(error: &Error) -> &Corruption {
    match error {
        Error::Corrupt(corruption) => corruption,
        other => panic!("expected damage, found {other}"),
    }
}

/// Reads everything of a table: whatever is read is right, and whatever cannot be read is reported.
/// Returns true if anything was reported.
fn read_all(fixture: &Fixture, meta: &TableMeta, model: &Model, place: &str) -> bool {
    let path = fixture.path(meta.id);
    let table = match Table::open(&fixture.ctx, meta.clone()) {
        Ok(table) => table,
        Err(error) => {
            assert!(damage(&error).path == path, "{place}: {error}");
            return true;
        }
    };
    let mut reported = false;
    for ((key, Reverse(seq)), value) in model {
        match get(&table, key, *seq) {
            Ok(found) => assert_eq!(found, Some((*seq, value.clone())), "{place}"),
            Err(error) => {
                assert_eq!(damage(&error).path.parent(), path.parent(), "{place}");
                reported = true;
            }
        }
    }
    let mut cursor = TableCursor::new(Arc::clone(&table), Access::Sequential);
    let mut found = moved(&mut cursor, TableCursor::first);
    for expected in model {
        match found {
            Ok(entry) => assert_eq!(entry, model_entry(Some(expected)), "{place}"),
            Err(error) => {
                assert_eq!(damage(&error).path.parent(), path.parent(), "{place}");
                return true;
            }
        }
        found = moved(&mut cursor, TableCursor::next);
    }
    reported
}

#[test]
fn every_flipped_byte_is_reported_or_harmless() {
    for index in KINDS {
        let fixture = Fixture::new(0);
        let model = small_model();
        let meta = fixture.write(5, &small_options(index), &model);
        for path in [fixture.path(5), value_path(&fixture.ctx.dir, 5)] {
            let whole = std::fs::read(&path).unwrap();
            assert!(!read_all(&fixture, &meta, &model, "undamaged"));
            let mut harmless = 0;
            // Of long runs of zeros, which are padding, every sixteenth byte.
            let within_zeros = |at: usize| at >= 16 && whole[at - 16..=at].iter().all(|b| *b == 0);
            for at in (0..whole.len()).filter(|at| at % 16 == 0 || !within_zeros(*at)) {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << (at % 8);
                std::fs::write(&path, &bytes).unwrap();
                let place = format!("{} byte {at}", path.display());
                harmless += usize::from(!read_all(&fixture, &meta, &model, &place));
                if whole[at] != 0 && path == fixture.path(5) {
                    bytes[at] = 0;
                    std::fs::write(&path, &bytes).unwrap();
                    read_all(&fixture, &meta, &model, &format!("{place} zeroed"));
                }
            }
            std::fs::write(&path, &whole).unwrap();
            let padding = whole.iter().filter(|byte| **byte == 0).count();
            assert!(harmless <= padding, "{harmless} flips went unnoticed in {padding} zeros");
        }
    }
}

#[test]
fn a_damaged_block_fails_only_its_own_reads() {
    let fixture = Fixture::new(0);
    let model = small_model();
    let meta = fixture.write(5, &small_options(KINDS[0]), &model);
    let mut bytes = std::fs::read(fixture.path(5)).unwrap();
    bytes[100] ^= 4;
    std::fs::write(fixture.path(5), &bytes).unwrap();
    let table = fixture.open(&meta);
    let failed = |key: &[u8]| get(&table, key, 1 << 40).is_err_and(|e| damage(&e).offset == 0);
    assert!(failed(&model.first_key_value().unwrap().0.0));
    assert!(!failed(&model.last_key_value().unwrap().0.0));
    let answered = model.keys().filter(|(key, _)| get(&table, key, 1 << 40).is_ok()).count();
    assert!(answered * 3 > model.len() * 2, "{answered} of {} answered", model.len());
}

#[test]
fn truncated_and_lengthened_files_are_refused() {
    let fixture = Fixture::new(0);
    let model = small_model();
    let meta = fixture.write(5, &small_options(KINDS[0]), &model);
    for path in [fixture.path(5), value_path(&fixture.ctx.dir, 5)] {
        let whole = std::fs::read(&path).unwrap();
        let lengths = (0..whole.len()).step_by(509).chain([whole.len() - 4096, whole.len() - 1]);
        for len in lengths {
            std::fs::write(&path, &whole[..len]).unwrap();
            let error = Table::open(&fixture.ctx, meta.clone()).unwrap_err();
            assert_eq!(damage(&error).path, path);
        }
        for more in [1, 4096] {
            let mut longer = whole.clone();
            longer.resize(whole.len() + more, 0);
            std::fs::write(&path, &longer).unwrap();
            assert_eq!(damage(&Table::open(&fixture.ctx, meta.clone()).unwrap_err()).path, path);
        }
        std::fs::write(&path, &whole).unwrap();
    }
    let values = value_path(&fixture.ctx.dir, 5);
    std::fs::remove_file(&values).unwrap();
    assert_eq!(damage(&Table::open(&fixture.ctx, meta).unwrap_err()).path, values);
}

#[test]
fn a_table_that_is_not_the_one_described_is_refused() {
    let fixture = Fixture::new(0);
    let model = small_model();
    let options = small_options(KINDS[0]);
    let meta = fixture.write(5, &options, &model);
    let changed = [
        TableMeta { entries: meta.entries + 1, ..meta.clone() },
        TableMeta { smallest: b"key".as_slice().into(), ..meta.clone() },
        TableMeta { seq_max: 0, ..meta.clone() },
        TableMeta { file_bytes: meta.file_bytes + 4096, ..meta.clone() },
    ];
    for meta in changed {
        damage(&Table::open(&fixture.ctx, meta).unwrap_err());
    }
    std::fs::rename(fixture.path(5), fixture.path(6)).unwrap();
    let renamed = TableMeta { id: 6, ..meta };
    assert_eq!(damage(&Table::open(&fixture.ctx, renamed).unwrap_err()).expected, "table 6");
}

#[test]
fn blocks_in_the_wrong_place_are_noticed() {
    let fixture = Fixture::new(0);
    // Frames of equal length, each the whole payload of a page.
    let options = TableLayout {
        block_bytes: 700,
        compression: Compression::None,
        index: KINDS[1],
        ..TableLayout::default()
    };
    let overhead = 17 + 6 + 1 + 2 + 1 + 1 + 1 + 2;
    let model: Model = (0..6_u8)
        .map(|byte| {
            let value = vec![byte; PAGE_PAYLOAD_BYTES - overhead - 2];
            ((vec![byte, 0], Reverse(1)), Some(value))
        })
        .collect();
    let meta = fixture.write(5, &options, &model);
    let other = fixture.write(6, &options, &model);
    let whole = std::fs::read(fixture.path(5)).unwrap();
    let page = |number: usize| number * PAGE_BYTES..(number + 1) * PAGE_BYTES;
    assert_eq!(whole[page(3)][..PAGE_HEADER_BYTES], [0, 0], "block 3 starts page 3");

    let mut swapped = whole.clone();
    swapped[page(1)].copy_from_slice(&whole[page(3)]);
    swapped[page(3)].copy_from_slice(&whole[page(1)]);
    std::fs::write(fixture.path(5), swapped).unwrap();
    let table = fixture.open(&meta);
    for byte in 0..6 {
        let found = get(&table, &[byte, 0], 9);
        assert_eq!(found.is_err(), byte == 1 || byte == 3, "block {byte}: {found:?}");
    }

    let mut foreign = whole;
    foreign[page(2)].copy_from_slice(&std::fs::read(fixture.path(6)).unwrap()[page(2)]);
    std::fs::write(fixture.path(5), foreign).unwrap();
    let table = fixture.open(&meta);
    assert!(get(&table, &[2, 0], 9).unwrap_err().is_corruption());
    assert!(get(&fixture.open(&other), &[2, 0], 9).is_ok());
}
