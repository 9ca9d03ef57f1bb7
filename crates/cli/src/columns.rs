//! Text in columns: numbers to the right, words to the left.

use crate::{failure::Outcome, output::Output};

/// Rows under a heading.
pub(crate) struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// No rows under `heading`.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Adds a row with as many cells as the heading.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }

    /// Writes all rows, each column as wide as its widest cell. A column whose cells all start
    /// with a digit is aligned to the right.
    pub(crate) fn write(&self, out: &mut Output) -> Outcome {
        for line in self.lines() {
            out.line(line)?;
        }
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        let count = self.rows[0].len();
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(width).collect();
        let is_number = |column: usize| {
            let mut cells = self.rows[1..].iter().map(|row| &row[column]);
            cells.all(|cell| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit()))
        };
        let numbers: Vec<bool> = (0..count).map(is_number).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let gap = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) = if numbers[column] { (&*gap, "") } else { ("", &*gap) };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            line.truncate(line.trim_end().len());
            line
        };
        self.rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut columns = Columns::new(&["level", "kind", "é"]);
        columns.row(vec!["0".into(), "learned".into(), "1".into()]);
        columns.row(vec!["10".into(), "x".into(), "22".into()]);
        assert_eq!(
            columns.lines(),
            ["level  kind      é", "    0  learned   1", "   10  x        22",]
        );
    }
}
