//! A client that searches bins and small arrays itself: one read for each level, which the host
//! could save it.

use super::{
    bins::Inner,
    client::{Answer, Caller, Client, KnownArray, answer_of},
    descriptor::{ARRAY_RECORDS_MAX, Descriptor, Span},
    layout::{
        BinKind, BinShape, CHILD_LINES, HEADER_LINES, LINE_WORDS, Link, ROOT_LINES, Slot, header,
        incarnation_of,
    },
    window::{Found, Window, piece_of},
};
use crate::{error::Result, fabric::Fabric};
use rhumb_model::Line;

/// Links that a client follows: a bin, and small arrays in one another.
const LINKS_MAX: usize = 8;

/// Where a walk is.
enum WalkStep {
    Answer(Answer),
    Go(Link),
}

impl<C: Caller> Client<C> {
    /// Searches what is linked to a gap; `None` if a piece has changed or gone.
    pub(super) fn walk(
        &mut self,
        fabric: &impl Fabric,
        link: Link,
        key: &[u8],
    ) -> Result<Option<Answer>> {
        let mut link = link;
        for _ in 0..LINKS_MAX {
            let step = match link {
                Link::Empty => return Ok(Some(Answer::Absent)),
                Link::Bin(root) => self.walk_bin(fabric, root, key)?,
                Link::Small(slot) => self.walk_small(fabric, slot, key)?,
            };
            match step {
                Some(WalkStep::Answer(answer)) => return Ok(Some(answer)),
                Some(WalkStep::Go(to)) => link = to,
                None => break,
            }
        }
        self.counts.unproven += 1;
        Ok(None)
    }

    /// Reads a piece of which a link names the incarnation.
    fn piece(&mut self, fabric: &impl Fabric, slot: Slot, lines: u32) -> Result<Option<Vec<u64>>> {
        self.extents.clear();
        self.extents.push(piece_of(slot.line, lines as usize * LINE_WORDS));
        fabric.read(&self.extents, &mut self.image)?;
        let piece = self.image.piece(0);
        // planted: bin-read-whatever-incarnation-then
        let piece = piece.filter(|(_, guard)| incarnation_of(*guard) == slot.incarnation);
        Ok(piece.map(|(words, _)| words.to_vec()))
    }

    fn walk_bin(
        &mut self,
        fabric: &impl Fabric,
        root: Slot,
        key: &[u8],
    ) -> Result<Option<WalkStep>> {
        let Some(mut words) = self.piece(fabric, root, ROOT_LINES)? else { return Ok(None) };
        let shape = |words: &[u64]| BinShape::of_word(words.first().copied().unwrap_or_default());
        let Some(mut found) = shape(&words) else { return Ok(None) };
        if found.kind == BinKind::Inner {
            // The guard is not among the words.
            let inner = Inner::of(found, |word| words.get(word - 1).copied().unwrap_or_default());
            let code = rhumb_model::code::code_at(key, found.skip);
            let child = inner.children[inner.child_of(code)];
            let Some(read) = self.piece(fabric, child, CHILD_LINES)? else { return Ok(None) };
            words = read;
            match shape(&words) {
                Some(shape) if shape.kind == BinKind::Child => found = shape,
                _ => return Ok(None),
            }
        }
        let Some(window) = Window::of_bin(found, &words) else { return Ok(None) };
        let sought = window.seek(key);
        let ties = &window.records[sought.ties.clone()];
        let Some(wide) = self.fetch(fabric, ties, ties.len())? else { return Ok(None) };
        let at = window.place_of(key, &sought, &wide);
        let wide = wide.into_iter().find(|wide| wide.key == key);
        Ok(match at {
            None => Some(WalkStep::Answer(Answer::Absent)),
            Some(at) => answer_of(&window.records[at], wide).map(WalkStep::Answer),
        })
    }

    fn walk_small(
        &mut self,
        fabric: &impl Fabric,
        slot: Slot,
        key: &[u8],
    ) -> Result<Option<WalkStep>> {
        let Some(words) = self.piece(fabric, slot, HEADER_LINES)? else { return Ok(None) };
        let Some(known) = small_of(&words, key) else { return Ok(None) };
        let Some(window) = self.window(fabric, &known, known.array.window(key))? else {
            return Ok(None);
        };
        let Some((found, wide)) = self.seek(fabric, &window, key)? else { return Ok(None) };
        Ok(match found {
            Found::Record(at) => answer_of(&window.records[at], wide).map(WalkStep::Answer),
            Found::Gap(at) => Some(WalkStep::Go(window.records[at].link())),
        })
    }
}

/// A small array by its header, which was read. All keys of its gap begin alike.
fn small_of(words: &[u64], key: &[u8]) -> Option<KnownArray> {
    let word = |at: usize| words.get(at - 1).copied();
    let (base_and_records, shape, slope) =
        (word(header::PLACE)?, word(header::SHAPE)?, word(header::SLOPE)?);
    let line = Line {
        x0: word(header::X0)?,
        y0: word(header::Y0)? as i64,
        mantissa: slope as u32,
        shift: (slope >> 32) as u8,
    };
    let array = Descriptor {
        span: Span::all(),
        prefix: key.get(..shape as u32 as usize)?.into(),
        epoch: word(header::EPOCH)?,
        base: base_and_records as u32,
        records: ((base_and_records >> 32) as u32).min(ARRAY_RECORDS_MAX as u32),
        line,
        below: (shape >> 32) as u16,
        above: (shape >> 48) as u16,
    };
    Some(KnownArray { array, tag: word(header::TAG)? })
}
