//! What the marks mean: entries in rows or in one column.

use super::draw::{Anchor, SMALL, add, fit, text, text_width};
use svg::node::element::Group;

/// Height of one entry in px.
pub(super) const ROW: f64 = 22.0;
/// Width of an entry's picture, and of that with the space after it.
pub(super) const KEY: f64 = 38.0;
const KEY_AND_SPACE: f64 = KEY + 8.0;
const BETWEEN: f64 = 24.0;

/// One entry: a picture whose middle left is at (0, 0), and what it means.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: Group,
    pub label: String,
}

/// Entries with their place in a box of a given width.
#[derive(Debug)]
pub(super) struct Legend {
    entries: Vec<Entry>,
    rows: usize,
    column_widths: Vec<f64>,
}

impl Legend {
    /// Entries in as many columns as fit.
    pub(super) fn new(mut entries: Vec<Entry>, width: f64) -> Self {
        for entry in &mut entries {
            entry.label = fit(&entry.label, SMALL, width.min(400.0) - KEY_AND_SPACE);
        }
        let widest = entries.iter().map(|e| text_width(&e.label, SMALL)).fold(0.0, f64::max);
        let column_width = KEY_AND_SPACE + widest;
        let fitting = ((width + BETWEEN) / (column_width + BETWEEN)).floor().max(1.0) as usize;
        // As few rows as possible, then as few columns: 3 and 3 instead of 5 and 1.
        let rows = entries.len().div_ceil(fitting).max(1);
        let width = |e: &Entry| KEY_AND_SPACE + text_width(&e.label, SMALL);
        let column_widths =
            entries.chunks(rows).map(|c| c.iter().map(width).fold(0.0, f64::max)).collect();
        Self { entries, rows, column_widths }
    }

    pub(super) fn height(&self) -> f64 {
        self.rows.min(self.entries.len()) as f64 * ROW
    }

    pub(super) fn width(&self) -> f64 {
        let columns = self.column_widths.len();
        self.column_widths.iter().sum::<f64>() + BETWEEN * columns.saturating_sub(1) as f64
    }

    /// Draw it with its upper left corner there.
    pub(super) fn draw(self, left: f64, top: f64) -> Group {
        let mut group = Group::new();
        let mut x = left;
        let mut entries = self.entries.into_iter();
        // Down the columns, as one reads a list.
        for width in self.column_widths {
            for (i, entry) in entries.by_ref().take(self.rows).enumerate() {
                let y = top + (i as f64 + 0.5) * ROW;
                add(&mut group, entry.key.set("transform", format!("translate({x:.1} {y:.1})")));
                add(
                    &mut group,
                    text(&entry.label, x + KEY_AND_SPACE, y + 5.0, SMALL, Anchor::Start),
                );
            }
            x += width + BETWEEN;
        }
        group
    }
}
