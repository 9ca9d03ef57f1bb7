//! The files of tables: refused input, abandoned and obsolete tables, large values that move, and
//! the bytes of a small table.

use super::*;
use crate::{error::Error, table::value_path};

fn names(fixture: &Fixture) -> Vec<String> {
    let mut names = fixture.ctx.fs.list(&fixture.ctx.dir).unwrap();
    names.sort();
    names
}

#[test]
fn an_empty_table_is_refused_and_leaves_nothing() {
    let fixture = Fixture::new(1 << 20);
    let writer = TableWriter::create(&fixture.ctx, 1, &TableLayout::default());
    assert!(matches!(writer.finish(), Err(Error::Internal(_))));
    assert!(names(&fixture).is_empty());
}

#[test]
fn entries_out_of_order_or_bounds_are_refused() {
    let fixture = Fixture::new(1 << 20);
    let mut writer = TableWriter::create(&fixture.ctx, 1, &TableLayout::default());
    writer.add(b"b", 5, Kind::Value, b"x").unwrap();
    let refused: [(&[u8], SeqNo, Kind, &[u8]); 6] = [
        (b"a", 9, Kind::Value, b""),
        (b"b", 5, Kind::Value, b""),
        (b"b", 6, Kind::Value, b""),
        (&[b'c'; (64 << 10) + 1], 6, Kind::Value, b""),
        (b"c", 1 << 56, Kind::Value, b""),
        (b"c", 6, Kind::LargeValue, b""),
    ];
    for (key, seq, kind, value) in refused {
        let error = writer.add(key, seq, kind, value).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_) | Error::Internal(_)), "{error}");
    }
    writer.add(b"b", 4, Kind::Tombstone, b"").unwrap();
    assert_eq!(writer.finish().unwrap().entries, 2);
}

#[test]
fn abandoned_tables_leave_nothing_and_obsolete_ones_go_with_their_last_reader() {
    let fixture = Fixture::new(1 << 20);
    let mut writer = TableWriter::create(&fixture.ctx, 1, &TableLayout::default());
    writer.add(b"k", 1, Kind::Value, &[1; 100_000]).unwrap();
    // The table itself is still in memory.
    assert_eq!(names(&fixture), ["000001.val"]);
    assert!(writer.bytes_estimate() > 100_000);
    drop(writer);
    assert!(names(&fixture).is_empty());

    let model = Model::from([((b"k".to_vec(), Reverse(1)), Some(vec![1; 100_000]))]);
    let table = fixture.table(2, &TableLayout::default(), &model);
    let other = Arc::clone(&table);
    drop(table);
    assert_eq!(names(&fixture), ["000002.sst", "000002.val"]);
    let table = fixture.open(other.meta());
    drop(other);
    table.mark_obsolete();
    check(&table, &model, &[]);
    drop(table);
    assert!(names(&fixture).is_empty());
}

#[test]
fn large_values_move_from_table_to_table_verified() {
    let fixture = Fixture::new(1 << 20);
    let value = |byte: u8, len: usize| -> Vec<u8> { (0..len).map(|i| byte ^ i as u8).collect() };
    let model: Model = [(1_u8, 70_000), (2, 3_000_000), (3, 10), (4, 1 << 20)]
        .into_iter()
        .map(|(byte, len)| ((vec![byte], Reverse(u64::from(byte))), Some(value(byte, len))))
        .collect();
    let source = fixture.table(1, &TableLayout::default(), &model);
    let copy = |id| -> Result<TableMeta> {
        let mut writer = TableWriter::create(&fixture.ctx, id, &TableLayout::default());
        let mut cursor = TableCursor::new(Arc::clone(&source), Access::Sequential);
        let mut step = cursor.first()?;
        loop {
            cursor.drive(step)?;
            match cursor.is_valid().then(|| cursor.kind()) {
                None => return writer.finish(),
                Some(Kind::LargeValue) => {
                    writer.add_large_from(cursor.key(), cursor.seq(), &source, cursor.value())?;
                }
                Some(Kind::Expiring) if Stamp::pointer(cursor.value()).is_some() => {
                    let (stamp, pointer) = Stamp::split(cursor.value()).unwrap();
                    let place = (stamp.at_ms, pointer);
                    writer.add_expiring_large_from(cursor.key(), cursor.seq(), &source, place)?;
                }
                Some(kind) => writer.add(cursor.key(), cursor.seq(), kind, cursor.value())?,
            }
            step = cursor.next()?;
        }
    };
    let meta = copy(2).unwrap();
    assert_eq!(meta.raw_bytes, source.meta().raw_bytes);
    assert_eq!(meta.value_file_bytes, source.meta().value_file_bytes);
    assert_eq!(meta.expiries, source.meta().expiries);
    assert!(meta.expiries.is_some_and(|expiries| expiries.entries == 3), "some expire");
    check(&fixture.open(&meta), &model, &[]);

    let path = value_path(&fixture.ctx.dir, 1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[2_000_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(copy(3).unwrap_err().is_corruption());
    assert_eq!(names(&fixture), ["000001.sst", "000001.val", "000002.sst", "000002.val"]);
    assert!(get(&source, &[2], 9).unwrap_err().is_corruption());
    assert_eq!(get(&source, &[4], 9).unwrap(), expected(&model, &[4], 9), "only that value fails");
}
