//! Colors, dashes and markers of lines. Lines can be told apart even in black and white.

/// Okabe and Ito's palette without its yellow, which is invisible on white. Consecutive colors also
/// differ in lightness.
const COLORS: [&str; 7] =
    ["#000000", "#D55E00", "#56B4E9", "#0072B2", "#E69F00", "#009E73", "#CC79A7"];

/// Lengths of strokes and gaps in px; empty is a solid line.
const DASHES: [&str; 6] = ["", "7 3", "2 2.5", "9 3 2 3", "14 4", "7 2.5 2 2.5 2 2.5"];

const MARKERS: [(Shape, bool); 12] = [
    (Shape::Circle, true),
    (Shape::Square, false),
    (Shape::Up, true),
    (Shape::Cross, false),
    (Shape::Diamond, true),
    (Shape::Circle, false),
    (Shape::Down, true),
    (Shape::Plus, false),
    (Shape::Square, true),
    (Shape::Up, false),
    (Shape::Star, false),
    (Shape::Diamond, false),
];

pub(super) const INK: &str = "#1A1A1A";
pub(super) const FRAME: &str = "#606060";
pub(super) const GRID: &str = "#DEDEDE";
pub(super) const BASELINE: &str = "#A0A0A0";
pub(super) const STRIP: &str = "#EEEEEE";
pub(super) const NOTE: &str = "#606060";

/// Colors of the memory picture. Areas differ by lightness: the area of bytes in use has a medium
/// color, and the area of evicted bytes is nearly white.
pub(super) const USED_FILL: &str = "#86B3D8";
pub(super) const USED_LINE: &str = "#0B4A78";
pub(super) const EVICTED_FILL: &str = "#F8E4CF";
pub(super) const EVICTED_LINE: &str = "#B85000";
pub(super) const REGENERATED: &str = "#7A2F00";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    Circle,
    Square,
    Up,
    Down,
    Diamond,
    Cross,
    Plus,
    Star,
}

/// Color, dash and marker of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    pub color: &'static str,
    pub dash: &'static str,
    pub shape: Shape,
    pub filled: bool,
    /// About half the width of the marker in px.
    pub size: f64,
}

impl Look {
    /// Color, dash and marker of line number `line` out of `lines` lines. The first 84 looks all
    /// differ; the first 12 have different markers.
    ///
    /// Later lines are drawn over earlier lines, and have smaller markers. If several points
    /// coincide, as at a full budget, the larger markers of earlier lines stay visible around the
    /// smaller markers on top.
    pub(super) fn of(line: usize, lines: usize) -> Self {
        let (shape, filled) = MARKERS[line % MARKERS.len()];
        Self {
            color: COLORS[line % COLORS.len()],
            dash: DASHES[line % DASHES.len()],
            shape,
            filled,
            size: 5.4 - 2.0 * line as f64 / lines.saturating_sub(1).max(1) as f64,
        }
    }

    /// Fill color of the marker. Hollow markers are filled white, so that the line is not visible
    /// inside them.
    pub(super) fn fill(&self) -> &'static str {
        if self.filled { self.color } else { "#FFFFFF" }
    }
}

impl Shape {
    /// Outline around a point, as path data; `r` is about half its width in px.
    pub(super) fn path(self, x: f64, y: f64, r: f64) -> String {
        // The factors make all shapes look equally large.
        match self {
            Self::Circle => format!(
                "M{:.1} {y:.1}a{r:.1} {r:.1} 0 1 0 {d:.1} 0a{r:.1} {r:.1} 0 1 0 -{d:.1} 0z",
                x - r,
                d = 2.0 * r
            ),
            Self::Square => {
                let s = 0.88 * r;
                format!("M{:.1} {:.1}h{d:.1}v{d:.1}h-{d:.1}z", x - s, y - s, d = 2.0 * s)
            }
            Self::Up => triangle(x, y, 1.15 * r),
            Self::Down => triangle(x, y, -1.15 * r),
            Self::Diamond => {
                let s = 1.25 * r;
                format!("M{x:.1} {:.1}l{s:.1} {s:.1}l-{s:.1} {s:.1}l-{s:.1} -{s:.1}z", y - s)
            }
            Self::Cross => strokes(x, y, &[(0.9 * r, 0.9 * r), (0.9 * r, -0.9 * r)]),
            Self::Plus => strokes(x, y, &[(1.15 * r, 0.0), (0.0, 1.15 * r)]),
            Self::Star => strokes(x, y, &[(0.0, 1.15 * r), (r, 0.58 * r), (r, -0.58 * r)]),
        }
    }
}

/// A triangle centred at the point, with the tip down if `r` is negative.
fn triangle(x: f64, y: f64, r: f64) -> String {
    let half = r.abs();
    format!("M{x:.1} {:.1}L{:.1} {b:.1}H{:.1}z", y - r, x + half, x - half, b = y + 0.75 * r)
}

/// Strokes through the point, each centred at the point.
fn strokes(x: f64, y: f64, ends: &[(f64, f64)]) -> String {
    ends.iter()
        .map(|(dx, dy)| format!("M{:.1} {:.1}L{:.1} {:.1}", x - dx, y - dy, x + dx, y + dy))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn looks_differ_without_color() {
        let look = |i| Look::of(i, 84);
        let markers: HashSet<_> = (0..12).map(|i| (look(i).shape, look(i).filled)).collect();
        assert_eq!(markers.len(), 12);
        let key = |l: Look| (l.color, l.dash, l.shape, l.filled);
        let all: HashSet<_> = (0..84).map(|i| key(look(i))).collect();
        assert_eq!(all.len(), 84);
    }
}
