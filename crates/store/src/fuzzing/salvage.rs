//! Files of a store that is salvaged: `[which u8][number u8][length u16][bytes]` for each. None of
//! it is repaired: the seeds are files of real stores.

use rhumb_sync::primitive::Arc;

use super::{DIR, Input, file_system};
use crate::{db::Database, error::Error, inspect::Inspector, io::FileSystem, salvage::Salvage};

/// Salvages what it makes of the input.
///
/// # Panics
///
/// If a salvage panics, or writes a database that is not sound.
pub fn salvage(data: &[u8]) {
    let mut input = Input(data);
    let mut files = Vec::new();
    while !input.0.is_empty() && files.len() < 8 {
        let (which, number) = (input.u8(), input.u8() % 16);
        let name = match which % 6 {
            0 => format!("{number:06}.sst"),
            1 => format!("{number:06}.set"),
            2 => format!("{number:06}.val"),
            3 => format!("{number:06}.log"),
            4 => format!("MANIFEST-{number:06}"),
            _ => "CURRENT".to_owned(),
        };
        let bytes = input.chunk();
        if files.iter().all(|(other, _)| *other != name) {
            files.push((name, bytes));
        }
    }
    let named: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&**name, *bytes)).collect();
    let fs: Arc<dyn FileSystem> = file_system(&named);
    match Salvage::new().file_system(Arc::clone(&fs)).run(DIR, "/salvaged") {
        Ok(report) => {
            let inspector = Inspector::with_file_system(Arc::clone(&fs));
            let checked = inspector.check("/salvaged", &mut |_, _| {});
            assert!(checked.is_ok_and(|checked| checked.is_sound()));
            let db = Database::builder("/salvaged").file_system(fs).open();
            let db = db.expect("a salvaged store opens");
            assert_eq!(db.keyspace_names().len(), report.keyspaces.len());
        }
        Err(Error::NotFound(_) | Error::Unsupported { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
