//! Blocks thinner than a pixel, drawn as whole pixels.

use super::super::frame::Frame;
use super::Rect;
use rustc_hash::FxHashMap;
use std::fmt::Write as _;

/// The pixels of a plot.
pub(super) struct Cells {
    left: f64,
    top: f64,
    columns: usize,
    rows: usize,
    /// Pixels, column by column: the index of the pixel's look (role) plus one; 0 for an empty
    /// pixel.
    looks: Vec<u8>,
    /// Number of looks.
    count: usize,
}

impl Cells {
    pub(super) fn new(frame: &Frame, count: usize) -> Self {
        let (left, top) = (frame.x.start, frame.y.end);
        let columns = (frame.x.end - left).ceil() as usize;
        let rows = (frame.y.start - top).ceil() as usize;
        Self { left, top, columns, rows, looks: vec![0; columns * rows], count }
    }

    /// Fills all pixels touched by `at`.
    pub(super) fn fill(&mut self, at: &Rect, look: usize) {
        let span = |from: f64, to: f64, most: usize| {
            let from = (from.max(0.0) as usize).min(most - 1);
            from..(to.ceil() as usize).clamp(from + 1, most)
        };
        let rows = span(at.top - self.top, at.bottom - self.top, self.rows);
        for column in span(at.left - self.left, at.right - self.left, self.columns) {
            let column = &mut self.looks[column * self.rows..][..self.rows];
            column[rows.clone()].fill(look as u8 + 1);
        }
    }

    /// Paths of the pixels of each look, made of few rectangles. A vertical run of pixels in a
    /// column is a rectangle. Equal runs in adjacent columns are merged into one rectangle.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = vec![String::new(); self.count];
        // (First row, row after the last, look) -> the column where the rectangle begins.
        let mut going: FxHashMap<(usize, usize, u8), usize> = FxHashMap::default();
        for column in 0..=self.columns {
            let now = if column < self.columns { self.runs(column) } else { Vec::new() };
            let mut next = FxHashMap::default();
            for run in now {
                next.insert(run, going.remove(&run).unwrap_or(column));
            }
            let mut over: Vec<_> = std::mem::replace(&mut going, next).into_iter().collect();
            over.sort_unstable();
            for ((from, to, look), begin) in over {
                let (x, y) = (self.left + begin as f64, self.top + from as f64);
                let (width, height) = (column - begin, to - from);
                let _ = write!(paths[usize::from(look) - 1], "M{x} {y}h{width}v{height}h-{width}z");
            }
        }
        paths
    }

    fn runs(&self, column: usize) -> Vec<(usize, usize, u8)> {
        let looks = &self.looks[column * self.rows..][..self.rows];
        let mut runs = Vec::new();
        let mut row = 0;
        for run in looks.chunk_by(|a, b| a == b) {
            if run[0] > 0 {
                runs.push((row, row + run.len(), run[0]));
            }
            row += run.len();
        }
        runs
    }
}
