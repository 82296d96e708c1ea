//! A rectangle of the picture with two axes.

use super::draw::{Anchor, SMALL, add, px, stroke, text};
use super::style::{FRAME, GRID};
use super::ticks;
use svg::node::element::Group;

/// Map from values to pixels along an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Values at the two ends of the axis; `from` is the smaller value.
    pub from: f64,
    pub to: f64,
    /// Pixels at the two ends of the axis.
    pub start: f64,
    pub end: f64,
}

impl Axis {
    pub(super) fn at(&self, value: f64) -> f64 {
        // The division comes before the multiplication, because the product of large numbers could
        // overflow.
        let part = (value - self.from) / (self.to - self.from);
        self.start + part.clamp(0.0, 1.0) * (self.end - self.start)
    }

    pub(super) fn ticks(&self, step: f64) -> Vec<f64> {
        ticks::ticks(self.from, self.to, step)
    }
}

/// Position and scales of a plot. `y.start` is the lower edge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub x: Axis,
    pub y: Axis,
}

impl Frame {
    /// Draws light lines across the plot at the ticks of y.
    pub(super) fn rows(&self, group: &mut Group, step: f64) {
        let (left, right) = (px(self.x.start), px(self.x.end));
        let data: String = self
            .y
            .ticks(step)
            .iter()
            .map(|t| format!("M{left} {:.1}H{right}", self.y.at(*t)))
            .collect();
        add(group, stroke(data, GRID, 1.0));
    }

    /// Draws light lines up the plot at the ticks of x.
    pub(super) fn columns(&self, group: &mut Group, step: f64) {
        let (bottom, top) = (px(self.y.start), px(self.y.end));
        let data: String = self
            .x
            .ticks(step)
            .iter()
            .map(|t| format!("M{:.1} {bottom}V{top}", self.x.at(*t)))
            .collect();
        add(group, stroke(data, GRID, 1.0));
    }

    /// Draws numbers left of the plot.
    pub(super) fn y_numbers(&self, group: &mut Group, step: f64) {
        for tick in self.y.ticks(step) {
            let y = self.y.at(tick);
            let number = ticks::label(tick, step);
            add(group, text(&number, self.x.start - 8.0, y + 5.0, SMALL, Anchor::End));
            add(group, stroke(format!("M{:.1} {y:.1}h-4", self.x.start), FRAME, 1.0));
        }
    }

    /// Draws numbers below the plot.
    pub(super) fn x_numbers(&self, group: &mut Group, step: f64) {
        for tick in self.x.ticks(step) {
            let x = self.x.at(tick);
            let number = ticks::label(tick, step);
            add(group, text(&number, x, self.y.start + 20.0, SMALL, Anchor::Middle));
            add(group, stroke(format!("M{x:.1} {:.1}v4", self.y.start), FRAME, 1.0));
        }
    }
}
