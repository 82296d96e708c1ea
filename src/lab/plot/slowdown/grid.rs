//! Positions of the panels.

use crate::lab::plot::draw::WIDTH;

/// Space left of the plots, in px.
pub(super) const LEFT: f64 = 66.0;
/// Space right of the plots, in px.
pub(super) const RIGHT: f64 = 16.0;
/// Horizontal space between two plots, in px.
const BETWEEN: f64 = 20.0;
/// Space above a plot for the title, in px.
pub(super) const TITLE: f64 = 28.0;
/// Height of a row in the strip of failures, in px.
pub(super) const FAIL_ROW: f64 = 12.0;
/// Space between the strip and the plot for the arrow head above the limit, in px.
const GAP: f64 = 12.0;
/// Space between a plot and the panel below, in px.
pub(super) const NUMBERS: f64 = 32.0;

/// Panels in rows of up to three.
pub(super) struct Grid {
    pub panels: usize,
    pub columns: usize,
    pub rows: usize,
    pub plot_width: f64,
    pub plot_height: f64,
    /// Height of the strip of failures; 0 if nothing fails.
    pub strip: f64,
}

impl Grid {
    pub(super) fn of(panels: usize, fail_rows: usize) -> Self {
        let columns = match panels {
            1 => 1,
            2 | 4 => 2,
            _ => 3,
        };
        let all = WIDTH - LEFT - RIGHT - BETWEEN * (columns - 1) as f64;
        let strip = if fail_rows == 0 { 0.0 } else { fail_rows as f64 * FAIL_ROW + 8.0 };
        Self {
            panels,
            columns,
            rows: panels.div_ceil(columns),
            plot_width: all / columns as f64,
            plot_height: [320.0, 240.0, 200.0][columns - 1],
            strip,
        }
    }

    /// Height of a panel with title and numbers.
    pub(super) fn cell(&self) -> f64 {
        let strip = if self.strip > 0.0 { self.strip + GAP } else { GAP / 2.0 };
        TITLE + strip + self.plot_height + NUMBERS
    }

    /// Left edge of the plot and upper edge of the panel, for panel `i`.
    pub(super) fn place(&self, i: usize) -> (f64, f64) {
        let (row, column) = (i / self.columns, i % self.columns);
        (LEFT + column as f64 * (self.plot_width + BETWEEN), row as f64 * self.cell())
    }

    /// Position of the cell after the last panel; `None` if the row of the last panel is full.
    pub(super) fn free_place(&self) -> Option<(f64, f64)> {
        (self.panels < self.rows * self.columns).then(|| self.place(self.panels))
    }
}
