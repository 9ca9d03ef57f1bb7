//! Models: the codec, lines and windows, codes, and the fitter, against their promises.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rhumb_model::{
    Fitter, Line, Segment, Window,
    code::{code_at, common_prefix_len, separator_len},
    codec::{Reader, put_column, put_line, put_varint},
    search::lower_bound,
};

fuzz_target!(|data: &[u8]| {
    let Some((form, rest)) = data.split_first() else { return };
    match form % 4 {
        0 => decode(rest),
        1 => predict(rest),
        2 => fit(rest),
        _ => compare_codes(rest),
    }
});

/// A number off the front; 0 at the end.
fn number(bytes: &mut &[u8]) -> u64 {
    let (head, rest) = bytes.split_at(bytes.len().min(8));
    *bytes = rest;
    head.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Reads what the bytes themselves say to read; what was read is read again from its encoding.
fn decode(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let mut out = Vec::new();
    while let Ok(what) = reader.u8("what follows") {
        let before = reader.offset();
        out.clear();
        match what % 4 {
            0 => {
                let Ok(value) = reader.varint("a number") else { break };
                put_varint(value, &mut out);
                assert_eq!(Reader::new(&out).varint("a number"), Ok(value));
            }
            1 => {
                let Ok(line) = reader.line() else { break };
                put_line(&line, &mut out);
                assert_eq!(out, bytes[before..reader.offset()]);
                assert!(line.at(0) <= line.at(u64::MAX) && line.slope() >= 0.0);
            }
            2 => {
                let Ok(max) = reader.u64("a bound") else { break };
                let Ok(value) = reader.varint_up_to(max, "a number") else { break };
                assert!(value <= max);
            }
            _ => {
                let Ok(count) = reader.u8("a count") else { break };
                let mut values = Vec::new();
                if reader.column(usize::from(count), &mut values, "a column").is_err() {
                    break;
                }
                assert_eq!(values.len(), usize::from(count));
                put_column(&values, &mut out);
                let mut again = Vec::new();
                let mut encoded = Reader::new(&out);
                assert_eq!(encoded.column(values.len(), &mut again, "a column"), Ok(()));
                assert_eq!((again, encoded.finish()), (values, Ok(())));
            }
        }
        assert!(reader.offset() > before && reader.offset() + reader.remaining() == bytes.len());
    }
}

/// Any segment's windows lie within it and never go back, and a search ends within its window.
fn predict(mut bytes: &[u8]) {
    let mut next = || number(&mut bytes);
    let line = Line { x0: next(), y0: next() as i64, mantissa: next() as u32, shift: next() as u8 };
    let segment = Segment { line, below: next(), above: next(), start: next(), end: next() };
    let mut xs: Vec<u64> = (0..8).map(|_| next()).collect();
    xs.sort_unstable();
    let mut last = Window { lo: 0, hi: 0 };
    for x in &xs {
        let window = segment.window(*x);
        assert!(window.lo <= window.hi && last.lo <= window.lo && last.hi <= window.hi);
        assert!(segment.start <= window.lo && window.hi <= segment.end.max(segment.start));
        last = window;
        let place = lower_bound(&xs, x, Window { lo: window.lo % 16, hi: window.hi % 16 });
        assert!(place <= xs.len());
    }
    let (mantissa, shift) = Line::quantise_slope(f64::from_bits(next()), next() as u32);
    assert!(shift <= Line::SHIFT_MAX);
    assert!(Line { mantissa, shift, ..line }.at(0) <= u64::MAX);
}

/// The windows of a fit contain every point that it took.
fn fit(mut bytes: &[u8]) {
    let head = number(&mut bytes);
    let (epsilon, x_shift, y_shift) = (head >> 16, head & 63, head >> 8 & 63);
    let mut fitter = Fitter::new(epsilon);
    let mut run = Vec::new();
    let (mut x, mut y) = (0_u64, 0_u64);
    while !bytes.is_empty() {
        let word = number(&mut bytes);
        if word & 15 == 15 {
            (x, y) = (word, word.rotate_left(32));
        }
        x = x.wrapping_add((word >> 40) << x_shift);
        y = y.wrapping_add((word >> 16 & 0xffff) << y_shift);
        if fitter.add_point(x, y) {
            run.push((x, y));
            continue;
        }
        check_run(&fitter, &run);
        fitter.clear();
        run.clear();
        if fitter.add_point(x, y) {
            run.push((x, y));
        }
    }
    check_run(&fitter, &run);
}

fn check_run(fitter: &Fitter, run: &[(u64, u64)]) {
    assert_eq!(fitter.points(), run.len() as u64);
    let segment = fitter.segment();
    assert_eq!(segment.is_some(), !run.is_empty());
    for (x, y) in run {
        let window = segment.map(|segment| segment.window(*x));
        assert!(window.is_some_and(|window| window.contains(*y)), "{x} {y} {window:?}");
    }
}

/// Codes keep the order of keys that agree on what is skipped; separators separate.
fn compare_codes(bytes: &[u8]) {
    let Some((&[skip, cut], rest)) = bytes.split_first_chunk() else { return };
    let (a, b) = rest.split_at(usize::from(cut).min(rest.len()));
    let (a, b) = (a.min(b), a.max(b));
    let common = common_prefix_len(a, b);
    assert!(a[..common] == b[..common] && a.get(common).is_none_or(|x| b.get(common) != Some(x)));
    let skip = usize::from(skip).min(common);
    assert!(code_at(a, skip) <= code_at(b, skip));
    let padded = (skip..skip + 8).map(|i| b.get(i).copied().unwrap_or(0));
    assert_eq!(code_at(b, skip), padded.fold(0, |code, byte| code << 8 | u64::from(byte)));
    if a < b {
        let len = separator_len(a, b);
        assert!(*a < b[..len] && (len == 0 || a >= &b[..len - 1]));
    }
}
