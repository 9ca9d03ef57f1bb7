//! Chooses the code for the keys of a run: the one with which a sample of them takes the fewest
//! bytes.

use std::{ops::Range, sync::Arc};

use rhumb_model::{
    StringCode, code,
    codec::Reader,
    string_code::{Context, Trainer},
};

use super::run::{Coder, KeyRun};
use crate::table::index_block::StringCoding;

/// About the number of bytes that a segment takes.
const SEGMENT_BYTES: u64 = 8;
/// The number of pieces of the run that make a sample.
const PIECES: usize = 4;
/// Each piece of a sample is one part in this many of the run, or [`PIECE_UNITS_MIN`] units if that
/// is more.
const PIECE_PART: usize = 64;
/// The smallest number of units in a piece of a sample, if the run has as many.
const PIECE_UNITS_MIN: usize = 1024;
/// No trained code is sought where it could save fewer bytes than this.
const WORTH_BYTES: u64 = 256;
/// A code is trained on at least this many keys, if the run has as many.
const TRAINED_MIN: usize = 4096;
/// A code is trained on at least one key in this many.
const TRAINED_STEP_MAX: usize = 8;
/// The number of bytes of a key that are still trained after those that tell it from its
/// neighbours.
const BEYOND: usize = 3;
/// The largest number of codes in an index.
pub(super) const CODES_MAX: u32 = 1 << 11;

/// The codes of a table so far, and how the next is chosen.
#[derive(Debug)]
pub(super) struct Codes {
    coding: StringCoding,
    pub(super) encoded: Vec<Vec<u8>>,
    /// The code that was trained last.
    newest: Coder,
    /// The bytes that the index took with it when it was trained, and the number of keys.
    promised: (u64, u64),
    /// The number of times that training was in vain, and the number of runs for which it is not
    /// tried again.
    failures: u32,
    pause: u32,
}

impl Codes {
    pub(super) fn new(coding: StringCoding) -> Self {
        let (newest, promised) = (Coder::default(), (0, 1));
        Self { coding, encoded: Vec::new(), newest, promised, failures: 0, pause: 0 }
    }

    /// Returns true if keys may get a trained code at all.
    pub(super) fn are_used(&self) -> bool {
        self.coding != StringCoding::Off
    }

    /// Chooses a code for the keys of `run`, which is not empty: plain bytes, the newest code, or a
    /// new one.
    pub(super) fn choose(&mut self, run: &KeyRun) -> Coder {
        let pieces = pieces(run);
        let keys = run.len() as u64;
        let sampled = pieces.iter().map(KeyRun::len).sum::<usize>().max(1) as u64;
        let bytes_with = |coder: &Coder| {
            let segments: u64 = pieces.iter().map(|piece| segments_with(piece, coder)).sum();
            segments * SEGMENT_BYTES * keys / sampled
        };
        // A trained code must take fewer bytes than this.
        let mut least = u64::MAX;
        if self.coding == StringCoding::Auto {
            let plain = bytes_with(&Coder::default());
            if plain <= WORTH_BYTES {
                return Coder::default();
            }
            least = plain / 3 * 2;
        }
        let mut best = Coder::default();
        if self.newest.number > 0 {
            let bytes = bytes_with(&self.newest);
            if bytes < least {
                (least, best) = (bytes, self.newest.clone());
                // The code does here about what it did where it was trained.
                if bytes * self.promised.1 <= self.promised.0 * keys / 4 * 5 {
                    return best;
                }
            }
        }
        if self.pause > 0 {
            self.pause -= 1;
            return best;
        }
        let trained = self.train(run, least, bytes_with);
        if trained.is_none() {
            self.failures += 1;
            self.pause = (1 << self.failures.min(6)) - 1;
        }
        trained.unwrap_or(best)
    }

    /// Trains codes, and keeps the best one if the index takes fewer than `least` bytes with it.
    fn train(
        &mut self,
        run: &KeyRun,
        mut least: u64,
        bytes_with: impl Fn(&Coder) -> u64,
    ) -> Option<Coder> {
        let number = self.encoded.len() as u32 + 1;
        if number > CODES_MAX {
            return None;
        }
        let mut best = None;
        for context in [Context::Position, Context::Previous] {
            let encoded = train(run, context);
            let code = StringCode::decode(&mut Reader::new(&encoded)).ok()?;
            let coder = Coder { number, code: Some(Arc::new(code)) };
            let bytes = bytes_with(&coder).saturating_add(encoded.len() as u64);
            if bytes < least {
                least = bytes;
                best = Some((encoded, coder));
            }
        }
        let (encoded, coder) = best?;
        self.encoded.push(encoded);
        self.newest = coder.clone();
        self.promised = (least, run.len() as u64);
        Some(coder)
    }
}

/// The pieces of a run that are sampled.
fn pieces(run: &KeyRun) -> Vec<KeyRun> {
    let n = run.len();
    let len = (n / PIECE_PART).max(PIECE_UNITS_MIN);
    let ranges: Vec<Range<usize>> = if len * PIECES >= n {
        std::iter::once(0..n).collect()
    } else {
        (0..PIECES).map(|i| i * n / PIECES).map(|begin| begin..begin + len).collect()
    };
    ranges.into_iter().map(|units| run.piece(units)).collect()
}

/// The number of segments that the keys of a piece need with `coder`.
fn segments_with(piece: &KeyRun, coder: &Coder) -> u64 {
    let mut piece = piece.clone();
    piece.set_coder(coder.clone());
    let mut segments = 0;
    while piece.len() > 0 {
        while piece.fitted() < piece.len() && piece.fit_next() {}
        segments += 1;
        piece.remove(piece.fitted());
    }
    segments
}

/// A code trained on a part of the run's keys, evenly spaced, as bytes.
fn train(run: &KeyRun, context: Context) -> Vec<u8> {
    let n = run.len();
    let mut trainer = Trainer::new(context, run.shared_prefix(n));
    for i in (1..n).step_by((n / TRAINED_MIN).clamp(1, TRAINED_STEP_MAX)) {
        let (before, key) = (run.key(i - 1), run.key(i));
        trainer.add(key, code::common_prefix_len(before, key) + BEYOND);
    }
    trainer.encode()
}
