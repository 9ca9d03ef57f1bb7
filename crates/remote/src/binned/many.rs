//! Gets of several keys, which share their trips: one for the windows of all, one for wide records.

use std::sync::Arc;

use super::{
    client::{Answer, Caller, Client, KnownArray, answer_of},
    layout::{Link, Record, WideExtent},
    window::{Found, Wide, Window},
};
use crate::{error::Result, fabric::Fabric};

/// What a window says of a key.
enum WindowVerdict {
    Proven(Answer),
    /// Its record is wide.
    Wide(Record, WideExtent),
    Unproven,
}

impl<C: Caller> Client<C> {
    /// Gets several keys: `each` is called for those that were answered, with their indexes.
    /// Returns the others, of which the host is to be asked.
    ///
    /// # Errors
    ///
    /// Those of the fabric.
    pub(crate) fn multi_get(
        &mut self,
        fabric: &impl Fabric,
        now_ms: u64,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<Vec<usize>> {
        self.counts.gets += keys.len() as u64;
        let way = self.way(fabric);
        self.extents.clear();
        let (mut windows, mut missed) = (Vec::with_capacity(keys.len()), Vec::new());
        for (index, key) in keys.iter().enumerate() {
            match self.known(now_ms, key) {
                Some(known) => {
                    let (range, piece) = (known.array.window(key), self.extents.len());
                    Window::extents(&known.array, range, way, &mut self.extents);
                    windows.push((index, known, range, piece));
                }
                None => missed.push(index),
            }
        }
        if windows.is_empty() {
            return Ok(missed);
        }
        fabric.read(&self.extents, &mut self.image)?;
        let mut answered = 0;
        let mut tell = |index, answer| match answer {
            Answer::Found(value) => each(index, Some(&value)),
            Answer::Absent => each(index, None),
            Answer::Ask(_) => missed.push(index),
        };
        let (mut wide, mut unproven) = (Vec::new(), Vec::new());
        for (index, known, range, piece) in windows {
            let window = Window::of_array(&known, range, way, (&self.image, piece));
            match window
                .map_or(WindowVerdict::Unproven, |window| seen(&window, &known, keys[index]))
            {
                WindowVerdict::Proven(answer) => {
                    answered += 1;
                    tell(index, answer);
                }
                WindowVerdict::Wide(record, extent) => wide.push((index, record, extent)),
                WindowVerdict::Unproven => unproven.push(index),
            }
        }
        if !wide.is_empty() {
            self.extents.clear();
            self.extents.extend(wide.iter().map(|(_, _, extent)| Wide::extent(*extent, way)));
            fabric.read(&self.extents, &mut self.image)?;
        }
        for (piece, (index, record, extent)) in wide.into_iter().enumerate() {
            let found = Wide::of_piece(extent, way, self.image.piece(piece));
            // Another key with the same code is not looked past: the host does that.
            let found = found.filter(|wide| wide.key == keys[index]);
            match found.and_then(|wide| answer_of(&record, Some(wide))) {
                Some(answer) => {
                    answered += 1;
                    tell(index, answer);
                }
                None => unproven.push(index),
            }
        }
        self.counts.one_sided += answered;
        self.counts.unproven += unproven.len() as u64;
        missed.append(&mut unproven);
        missed.sort_unstable();
        Ok(missed)
    }
}

/// What a window says of a key without another read.
fn seen(window: &Window, known: &Arc<KnownArray>, key: &[u8]) -> WindowVerdict {
    let prefix = &known.array.prefix;
    let found = if key.starts_with(prefix) {
        let sought = window.seek(key);
        match &window.records[sought.ties.clone()] {
            [record] if record.wide_extent().is_some() => {
                return record.wide_extent().map_or(WindowVerdict::Unproven, |extent| {
                    WindowVerdict::Wide(*record, extent)
                });
            }
            ties if ties.iter().any(|record| record.wide_extent().is_some()) => {
                return WindowVerdict::Unproven;
            }
            _ => window.resolve(key, &sought, &[]),
        }
    } else {
        window.beside(prefix, key)
    };
    let answer = match found {
        Some(Found::Record(at)) => answer_of(&window.records[at], None),
        Some(Found::Gap(at)) if window.records[at].link() == Link::Empty => Some(Answer::Absent),
        Some(Found::Gap(_)) | None => None,
    };
    answer.map_or(WindowVerdict::Unproven, WindowVerdict::Proven)
}
