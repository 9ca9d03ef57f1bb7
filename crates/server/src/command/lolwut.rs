//! `LOLWUT`: a drawing, and the version.

use super::{Context, Done, integer, is_word, server::VERSION};
use crate::{fault::Fault, resp::Args};

/// Columns and rows of the drawing unless they are given, and at most.
const COLUMNS: usize = 60;
const ROWS: usize = 18;
const COLUMNS_MAX: usize = 200;
const ROWS_MAX: usize = 100;

/// How many times the line goes around before it comes to the pole.
const TURNS: f64 = 6.0;

/// What nearer and farther parts of the line are drawn with, the nearest last.
const SHADES: [char; 4] = ['.', ':', 'o', '@'];

/// A rhumb line, which crosses all meridians at the same angle and winds around the pole that this
/// looks at.
fn draw(columns: usize, rows: usize) -> String {
    const STEPS: u32 = 20_000;
    let mut cells = vec![' '; columns * rows];
    let middle = |count: usize| (count as f64 - 1.0) / 2.0;
    for step in 0..=STEPS {
        let way = f64::from(step) / f64::from(STEPS);
        // The distance from the pole falls by the same part with each turn.
        let distance = (-4.0 * way).exp();
        let angle = TURNS * std::f64::consts::TAU * way;
        let column = middle(columns) * (1.0 + distance * angle.cos());
        let row = middle(rows) * (1.0 + distance * angle.sin());
        let shade = ((1.0 - distance) * SHADES.len() as f64) as usize;
        let at = row.round() as usize * columns + column.round() as usize;
        cells[at] = SHADES[shade.min(SHADES.len() - 1)];
    }
    let lines = cells.chunks(columns).map(|line| line.iter().collect::<String>());
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A count that is given, within its bounds.
fn given(text: Option<&[u8]>, default: usize, most: usize) -> Result<usize, Fault> {
    let Some(text) = text else { return Ok(default) };
    Ok(usize::try_from(integer(text)?).unwrap_or(0).clamp(1, most))
}

/// `LOLWUT`, with `VERSION` and a number or without, then columns and rows.
pub(super) fn lolwut(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut from = 1;
    if let (Some(word), Some(version)) = (args.get(1), args.get(2))
        && is_word(word, "version")
    {
        integer(version)?;
        from = 3;
    }
    let columns = given(args.get(from), COLUMNS, COLUMNS_MAX)?;
    let rows = given(args.get(from + 1), ROWS, ROWS_MAX)?;
    let drawing = draw(columns, rows);
    context.out.verbatim(&format!(
        "{drawing}\nA line that crosses all meridians at one angle is a rhumb.\nRedis ver. {VERSION}\n"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_have_their_size() {
        for (columns, rows) in [(1, 1), (2, 1), (60, 18), (COLUMNS_MAX, ROWS_MAX)] {
            let drawing = draw(columns, rows);
            assert_eq!(drawing.lines().count(), rows);
            assert!(drawing.lines().all(|line| line.len() <= columns));
            assert!(drawing.contains('@'));
        }
    }
}
