//! Legend of a picture: entries in one or more columns.

use super::draw::{Anchor, SMALL, add, fit, text, text_width};
use svg::node::element::Group;

/// Height of an entry in px.
pub(super) const ROW: f64 = 22.0;
/// Width of an entry's symbol in px.
pub(super) const KEY: f64 = 38.0;
/// Width of a symbol with the space after it.
const KEY_AND_SPACE: f64 = KEY + 8.0;
const BETWEEN: f64 = 24.0;

/// One entry: a symbol, and its names, one per row. The middle of the symbol's left edge is at (0,
/// 0).
#[derive(Debug)]
pub(super) struct Entry {
    pub key: Group,
    pub names: Vec<String>,
}

impl Entry {
    pub(super) fn new(key: Group, name: impl Into<String>) -> Self {
        Self { key, names: vec![name.into()] }
    }

    fn width(&self) -> f64 {
        let widest = self.names.iter().map(|name| text_width(name, SMALL)).fold(0.0, f64::max);
        KEY_AND_SPACE + widest
    }
}

/// Entries arranged in columns.
#[derive(Debug)]
pub(super) struct Legend {
    columns: Vec<Vec<Entry>>,
}

impl Legend {
    /// Arranges entries in as many columns as fit into `width`.
    pub(super) fn new(mut entries: Vec<Entry>, width: f64) -> Self {
        for name in entries.iter_mut().flat_map(|entry| &mut entry.names) {
            *name = fit(name, SMALL, width.min(400.0) - KEY_AND_SPACE);
        }
        let widest = entries.iter().map(Entry::width).fold(0.0, f64::max);
        let fitting = ((width + BETWEEN) / (widest + BETWEEN)).floor().max(1.0) as usize;
        // The smallest number of rows for which the columns fit is used. For example, six entries
        // in two columns become 3 and 3, not 5 and 1. An entry is never split between columns.
        let most: usize = entries.iter().map(|entry| entry.names.len()).sum();
        let rows = (most.div_ceil(fitting)..most)
            .find(|&rows| columns(&entries, rows).len() <= fitting)
            .unwrap_or(most);
        let mut rest = entries.into_iter();
        let counts = columns(rest.as_slice(), rows);
        let columns = counts.into_iter().map(|count| rest.by_ref().take(count).collect()).collect();
        Self { columns }
    }

    pub(super) fn height(&self) -> f64 {
        let rows = |column: &Vec<Entry>| column.iter().map(|entry| entry.names.len()).sum();
        self.columns.iter().map(rows).max().unwrap_or(0usize) as f64 * ROW
    }

    pub(super) fn width(&self) -> f64 {
        let widths: f64 = self.columns.iter().map(|column| width(column)).sum();
        widths + BETWEEN * self.columns.len().saturating_sub(1) as f64
    }

    /// Draws the legend with its upper left corner at `left`, `top`.
    pub(super) fn draw(self, left: f64, top: f64) -> Group {
        let mut group = Group::new();
        let mut x = left;
        // Entries fill one column after the other, from top to bottom.
        for column in self.columns {
            let width = width(&column);
            let mut y = top + 0.5 * ROW;
            for entry in column {
                add(&mut group, entry.key.set("transform", format!("translate({x:.1} {y:.1})")));
                for name in entry.names {
                    let text = text(&name, x + KEY_AND_SPACE, y + 5.0, SMALL, Anchor::Start);
                    add(&mut group, text);
                    y += ROW;
                }
            }
            x += width + BETWEEN;
        }
        group
    }
}

fn width(column: &[Entry]) -> f64 {
    column.iter().map(Entry::width).fold(0.0, f64::max)
}

/// Number of entries in each column, if columns of at most `rows` rows are filled one after the
/// other. An entry with more than `rows` rows gets a column of its own.
fn columns(entries: &[Entry], rows: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut filled = rows + 1;
    for entry in entries {
        filled += entry.names.len();
        match counts.last_mut() {
            Some(count) if filled <= rows => *count += 1,
            _ => {
                counts.push(1);
                filled = entry.names.len();
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legend(rows: &[usize], width: f64) -> Legend {
        let entry = |&rows: &usize| Entry { key: Group::new(), names: vec!["a name".into(); rows] };
        Legend::new(rows.iter().map(entry).collect(), width)
    }

    #[test]
    fn columns_are_even_and_no_entry_is_divided() {
        let counts = |rows: &[usize], width| -> Vec<usize> {
            legend(rows, width).columns.iter().map(Vec::len).collect()
        };
        assert_eq!(counts(&[1; 6], 1000.0), [1; 6]);
        assert_eq!(counts(&[1; 6], 560.0), [2, 2, 2]);
        assert_eq!(counts(&[1; 6], 1.0), [6]);
        assert_eq!(counts(&[1, 1, 4, 1, 1], 560.0), [2, 1, 2]);
        assert_eq!(counts(&[5, 1], 560.0), [1, 1]);
        assert!(counts(&[], 560.0).is_empty());
        for rows in [&[1; 6][..], &[1, 1, 4, 1, 1], &[5, 1], &[2; 24]] {
            for width in [100.0, 300.0, 560.0, 900.0] {
                let legend = legend(rows, width);
                assert!(legend.width() <= width || legend.columns.len() == 1, "{rows:?} {width}");
                assert_eq!(legend.columns.iter().flatten().count(), rows.len());
            }
        }
        assert_eq!(legend(&[1, 1, 4, 1, 1], 560.0).height(), 4.0 * ROW);
    }
}
