//! From points as they come to curves that can be drawn.

use crate::lab::plot::{Panel, Point};

/// A panel's title and its curves, in the order of the legend.
pub(super) struct Curves {
    pub title: String,
    pub curves: Vec<Curve>,
}

/// One line's marks, by ascending budget.
pub(super) struct Curve {
    /// Its number in the legend.
    pub line: usize,
    pub marks: Vec<Mark>,
}

/// All runs of one policy under one budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    /// The budget in % of the peak.
    pub percent: f64,
    /// Of the runs that came through; None if none did. Also 0 <= low <= mean <= high, all finite.
    pub mean: Option<f64>,
    pub low: f64,
    pub high: f64,
    /// At least one run failed.
    pub failed: bool,
}

/// Give each label its number, the same in all panels, and put points in order.
pub(super) fn curves(panels: &[Panel]) -> (Vec<String>, Vec<Curves>) {
    let mut labels: Vec<String> = Vec::new();
    for line in panels.iter().flat_map(|p| &p.lines) {
        if !labels.contains(&line.label) {
            labels.push(line.label.clone());
        }
    }
    let curve = |panel: &Panel, (line, label): (usize, &String)| {
        let same = panel.lines.iter().filter(|l| l.label == *label);
        Curve { line, marks: marks(same.flat_map(|l| &l.points)) }
    };
    let curves = |panel: &Panel| labels.iter().enumerate().map(|l| curve(panel, l)).collect();
    let panels =
        panels.iter().map(|p| Curves { title: p.title.clone(), curves: curves(p) }).collect();
    (labels, panels)
}

fn marks<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<Mark> {
    // Past this, axes run out of digits.
    let has_place = |p: &&Point| (0.0..1e9).contains(&p.budget_ratio);
    let mut points: Vec<Point> = points.filter(has_place).copied().collect();
    points.sort_by(|a, b| a.budget_ratio.total_cmp(&b.budget_ratio));
    // 0.3 and 0.1 + 0.2 are one budget.
    points.chunk_by(|a, b| b.budget_ratio - a.budget_ratio < 1e-9).map(mark).collect()
}

fn mark(points: &[Point]) -> Mark {
    let usable = |p: &Point| p.slowdown.filter(|s| (0.0..1e12).contains(s));
    let slowdowns: Vec<f64> = points.iter().filter_map(usable).collect();
    let low = slowdowns.iter().copied().fold(f64::INFINITY, f64::min);
    let high = slowdowns.iter().copied().fold(0.0, f64::max);
    // A mean of equal numbers may differ from them in the last bit.
    let mean = (slowdowns.iter().sum::<f64>() / slowdowns.len() as f64).clamp(low.min(high), high);
    Mark {
        percent: points[0].budget_ratio * 100.0,
        mean: (!slowdowns.is_empty()).then_some(mean),
        low,
        high,
        failed: slowdowns.len() < points.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::plot::Line;

    fn point(budget_ratio: f64, slowdown: Option<f64>) -> Point {
        Point { budget_ratio, slowdown }
    }

    #[test]
    fn points_are_sorted_and_averaged() {
        let points = [
            point(0.5, Some(1.2)),
            point(0.1 + 0.2, None),
            point(0.3, Some(1.4)),
            point(0.5, Some(1.4)),
            point(0.1, None),
            point(f64::NAN, Some(1.0)),
            point(-0.1, Some(1.0)),
            point(0.2, Some(f64::NAN)),
            point(0.2, Some(f64::INFINITY)),
        ];
        let marks = marks(points.iter());
        let short: Vec<_> = marks
            .iter()
            .map(|m| (m.percent.round(), m.mean.map(|m| (m * 10.0).round()), m.failed))
            .collect();
        let want = [
            (10.0, None, true),
            (20.0, None, true),
            (30.0, Some(14.0), true),
            (50.0, Some(13.0), false),
        ];
        assert_eq!(short, want);
        assert_eq!((marks[3].low, marks[3].high), (1.2, 1.4));
    }

    #[test]
    fn a_label_has_one_number_everywhere() {
        let line = |label: &str| Line { label: label.into(), points: vec![point(0.5, Some(1.0))] };
        let panels = [
            Panel { title: String::new(), lines: vec![line("a"), line("b"), line("a")] },
            Panel { title: String::new(), lines: vec![line("c"), line("b")] },
        ];
        let (labels, curves) = curves(&panels);
        assert_eq!(labels, ["a", "b", "c"]);
        let drawn: Vec<Vec<usize>> = curves
            .iter()
            .map(|p| p.curves.iter().filter(|c| !c.marks.is_empty()).map(|c| c.line).collect())
            .collect();
        assert_eq!(drawn, [vec![0, 1], vec![1, 2]]);
    }
}
