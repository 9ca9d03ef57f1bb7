//! Backups: each point is there until it is removed, and holds what the database held.

use std::{path::PathBuf, sync::Arc};

use rhumb::{Backups, Error, io::sim::SimFs};

use super::{
    super::{
        coverage::{COVERAGE, Coverage},
        oracle::{Model, differences},
    },
    HOME, Program,
};

/// The largest number of points that a program keeps.
const POINTS_MAX: usize = 3;

impl Program {
    fn backup_path(&self) -> PathBuf {
        PathBuf::from(HOME).join(format!("backup-{}", self.number))
    }

    /// Adds a point, and removes the oldest if there are many.
    pub(super) fn backup(&mut self) -> Result<Result<(), String>, Error> {
        if !self.oracle.is_certain() {
            return Ok(Ok(()));
        }
        // One that failed before is decided first.
        self.oracle.backups.are_checked = false;
        if let Err(broken) = self.verify_backups()? {
            return Ok(Err(broken));
        }
        let now = self.oracle.now();
        self.oracle.backups.are_checked = false;
        self.oracle.backups.undecided = Some(now.clone());
        let number = self.db().backup(self.backup_path())?.number;
        self.oracle.backups.undecided = None;
        if self.oracle.backups.kept.insert(number, now).is_some() {
            return Ok(Err(format!("two backups got the number {number}")));
        }
        if self.oracle.backups.kept.len() > POINTS_MAX
            && let Some((oldest, _)) = self.oracle.backups.kept.pop_first()
        {
            self.oracle.backups.leaving.insert(oldest);
            let fs = Arc::new(self.fs.clone());
            Backups::open_on(fs, &self.backup_path())?.remove(oldest)?;
            self.oracle.backups.leaving.remove(&oldest);
        }
        self.verify_backups()
    }

    /// Compares the points that are there with those that must be there, and the newest with what
    /// the database held, on a copy of the disk.
    pub(super) fn verify_backups(&mut self) -> Result<Result<(), String>, Error> {
        let points = &self.oracle.backups;
        let is_none = points.kept.is_empty() && points.undecided.is_none();
        if points.are_checked || is_none && points.leaving.is_empty() {
            return Ok(Ok(()));
        }
        let copy = self.fs.copy();
        if copy.is_dead() {
            return Ok(Ok(()));
        }
        let fs = copy.kill();
        let backups = match Backups::open_on(Arc::new(fs.clone()), &self.backup_path()) {
            Ok(backups) => backups,
            Err(Error::NotFound(_)) if is_none || points.kept.is_empty() => {
                self.oracle.backups.undecided = None;
                return Ok(Ok(()));
            }
            Err(error) => return Ok(Err(format!("the backup does not open: {error}"))),
        };
        let listed = match backups.list() {
            Ok(listed) => listed.iter().map(|info| info.number).collect::<Vec<u64>>(),
            Err(error) => return Ok(Err(format!("a backup cannot be listed: {error}"))),
        };
        let points = &mut self.oracle.backups;
        let undecided = points.undecided.take();
        points.leaving.retain(|number| listed.contains(number));
        let newest = points.kept.last_key_value().map_or(0, |(number, _)| *number);
        if let Some(late) = listed.last().filter(|last| **last > newest)
            && let Some(model) = undecided
        {
            Coverage::add(&COVERAGE.late_points, 1);
            points.kept.insert(*late, model);
        }
        let mut found = listed.clone();
        found.retain(|number| !points.leaving.contains(number));
        if !found.iter().eq(points.kept.keys()) {
            let kept: Vec<_> = points.kept.keys().collect();
            return Ok(Err(format!("a backup has the points {listed:?}, not {kept:?}")));
        }
        points.are_checked = true;
        let Some((number, model)) = points.kept.last_key_value() else { return Ok(Ok(())) };
        let (number, model) = (*number, model.clone());
        Ok(self
            .compare_point(&fs, &backups, number, &model)
            .map_err(|broken| format!("point {number} of a backup: {broken}")))
    }

    /// Restores a point and compares it.
    fn compare_point(
        &self,
        fs: &SimFs,
        backups: &Backups,
        number: u64,
        expected: &Model,
    ) -> Result<(), String> {
        let target = PathBuf::from(HOME).join("restored");
        let restored = || -> Result<Model, Error> {
            backups.verify(number)?;
            backups.restore(number, &target)?;
            let db = self.builder(target.clone()).file_system(Arc::new(fs.clone())).open()?;
            self.read_from(&db)
        };
        let found = restored().map_err(|error| error.to_string())?;
        Coverage::add(&COVERAGE.restored, 1);
        if found == *expected {
            return Ok(());
        }
        Err(format!("another state:\n{}", differences(expected, &found)))
    }
}
