//! What else shows the database: readers beside it, and points of its backup.

use rhumb::Backups;

use super::{World, builder, compare};

impl World {
    /// Has a reader beside catch up, or opens one, and compares what it sees.
    pub(crate) fn follow(&mut self) {
        match &self.reader {
            Some(reader) => drop(reader.catch_up().expect("catch up")),
            None => {
                let builder = builder(&self.dir, self.threads, self.memtables);
                self.reader = Some(builder.open_read_only().expect("open beside"));
            }
        }
        let reader = self.reader.as_ref().expect("opened above");
        assert_eq!(reader.stats().sequence_number, self.db().stats().sequence_number);
        compare(reader, &self.maps());
        if self.random.one_in(4) {
            self.reader = None;
        }
    }

    /// Adds a point to the backup, and restores one of the points.
    pub(crate) fn backup(&mut self) {
        let dir = self.dir.with_extension("backup");
        let number = self.db().backup(&dir).expect("backup").number;
        self.points.push((number, self.maps()));
        let backups = Backups::open(&dir).expect("there");
        if self.points.len() > 3 {
            backups.remove(self.points.remove(0).0).expect("remove");
        }
        let listed = backups.list().expect("list").into_iter().map(|info| info.number);
        assert!(listed.eq(self.points.iter().map(|(number, _)| *number)));
        let restored = self.dir.with_extension("restored");
        let (number, maps) = &self.points[self.random.index(self.points.len())];
        backups.verify(*number).expect("sound");
        backups.restore(*number, &restored).expect("restore");
        self.read_alone(&restored, maps);
        std::fs::remove_dir_all(&restored).expect("remove what was restored");
    }
}
