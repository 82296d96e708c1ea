//! Conversion of points into curves to draw.

use crate::lab::Spread;
use crate::lab::plot::{Panel, Point, ticks};

/// Title of a panel, and its curves in the order of the legend.
pub(super) struct Curves {
    pub title: String,
    pub curves: Vec<Curve>,
}

/// Marks of a line, by ascending budget.
#[derive(Clone, PartialEq)]
pub(super) struct Curve {
    /// Index of the curve's entry in the legend.
    pub line: usize,
    pub marks: Vec<Mark>,
}

/// All runs of a policy under a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    /// Budget, in the unit of the axis.
    pub budget: f64,
    pub spread: Spread,
}

/// Unit of the budget axis.
pub(super) enum Budgets {
    Percent,
    /// Bytes per unit, and the name of the unit.
    Bytes(f64, &'static str),
}

impl Budgets {
    pub fn of(panels: &[Panel]) -> Self {
        let largest = |panel: &Panel| {
            let points = panel.lines.iter().flat_map(|line| &line.points).filter(has_place);
            let full = panel.full_budget? as f64;
            Some(points.map(|point| point.budget_ratio * full).fold(0.0, f64::max))
        };
        let bytes: Option<Vec<f64>> = panels.iter().map(largest).collect();
        bytes.map_or(Self::Percent, |bytes| {
            let (scale, unit) = ticks::byte_unit(bytes.into_iter().fold(0.0, f64::max));
            Self::Bytes(scale, unit)
        })
    }

    /// Full budget of a panel, in the unit of the axis.
    fn full(&self, panel: &Panel) -> f64 {
        match self {
            Self::Percent => 100.0,
            Self::Bytes(scale, _) => panel.full_budget.unwrap_or(0) as f64 / scale,
        }
    }

    /// Title of the axis.
    pub fn name(&self) -> String {
        match self {
            Self::Percent => "budget (%; 100 evicts nothing)".to_owned(),
            Self::Bytes(_, unit) => format!("budget ({unit})"),
        }
    }
}

/// Names in one entry of the legend. Lines with the same points in every panel share an entry.
pub(super) type Names = Vec<String>;

/// Sorts points into curves, and gives each label an index that is the same in all panels. Labels
/// whose lines are equal in all panels share one index.
pub(super) fn curves(panels: &[Panel], budgets: &Budgets) -> (Vec<Names>, Vec<Curves>) {
    let mut labels: Vec<&str> = Vec::new();
    for line in panels.iter().flat_map(|p| &p.lines) {
        if !labels.contains(&line.label.as_str()) {
            labels.push(&line.label);
        }
    }
    let in_panel = |panel: &Panel, label: &str| {
        let points = panel.lines.iter().filter(|l| l.label == label).flat_map(|l| &l.points);
        marks(points, budgets.full(panel))
    };
    // Names in each entry of the legend, and the entry's marks in each panel.
    let mut lines: Vec<(Names, Vec<Vec<Mark>>)> = Vec::new();
    for label in labels {
        let everywhere: Vec<_> = panels.iter().map(|panel| in_panel(panel, label)).collect();
        let drawn = everywhere.iter().any(|marks| !marks.is_empty());
        match lines.iter_mut().find(|(_, marks)| drawn && *marks == everywhere) {
            Some((names, _)) => names.push(label.to_owned()),
            None => lines.push((vec![label.to_owned()], everywhere)),
        }
    }
    let curves = |panel: usize| {
        let marks = lines.iter().map(|(_, everywhere)| everywhere[panel].clone());
        marks.enumerate().map(|(line, marks)| Curve { line, marks }).collect()
    };
    let in_panels = panels.iter().enumerate();
    let panels =
        in_panels.map(|(i, p)| Curves { title: p.title.clone(), curves: curves(i) }).collect();
    (lines.into_iter().map(|(names, _)| names).collect(), panels)
}

/// Whether a point has a finite position. Numbers from 1e9 on are refused, because axes are not
/// precise enough.
fn has_place(point: &&Point) -> bool {
    (0.0..1e9).contains(&point.budget_ratio)
}

fn marks<'a>(points: impl Iterator<Item = &'a Point>, full: f64) -> Vec<Mark> {
    let mut points: Vec<Point> = points.filter(has_place).copied().collect();
    points.sort_by(|a, b| a.budget_ratio.total_cmp(&b.budget_ratio));
    // Budgets that differ only by a rounding error, such as 0.3 and 0.1 + 0.2, count as one budget.
    points
        .chunk_by(|a, b| b.budget_ratio - a.budget_ratio < 1e-9)
        .map(|points| mark(points, full))
        .collect()
}

fn mark(points: &[Point], full: f64) -> Mark {
    Mark {
        budget: points[0].budget_ratio * full,
        spread: Spread::of(points.iter().map(|point| point.slowdown)),
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
    fn points_are_sorted_and_taken_together() {
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
        let marks = marks(points.iter(), 100.0);
        let short: Vec<_> = marks
            .iter()
            .map(|m| {
                (m.budget.round(), m.spread.median.map(|m| (10.0 * m).round()), m.spread.failed)
            })
            .collect();
        let want = [(10.0, None, 1), (20.0, None, 2), (30.0, None, 1), (50.0, Some(13.0), 0)];
        assert_eq!(short, want);
        assert_eq!(marks[2].spread.range, Some((1.4, 1.4)));
        assert_eq!(marks[3].spread.range, Some((1.2, 1.4)));
    }

    fn line(label: &str, slowdowns: &[f64]) -> Line {
        let points = slowdowns.iter().zip(1..);
        let points = points.map(|(&s, i)| point(f64::from(i) / 10.0, Some(s))).collect();
        Line { label: label.into(), points }
    }

    fn panel(lines: Vec<Line>) -> Panel {
        Panel { lines, ..Panel::default() }
    }

    #[test]
    fn a_label_has_one_number_everywhere() {
        let panels = [
            panel(vec![line("a", &[1.0]), line("b", &[1.5]), line("a", &[1.0])]),
            panel(vec![line("c", &[1.0]), line("b", &[1.5])]),
        ];
        let (labels, curves) = curves(&panels, &Budgets::Percent);
        assert_eq!(labels, [["a"], ["b"], ["c"]]);
        let drawn: Vec<Vec<usize>> = curves
            .iter()
            .map(|p| p.curves.iter().filter(|c| !c.marks.is_empty()).map(|c| c.line).collect())
            .collect();
        assert_eq!(drawn, [vec![0, 1], vec![1, 2]]);
    }

    #[test]
    fn lines_that_are_the_same_everywhere_are_one() {
        let (x, y) = (&[2.0, 1.5][..], &[2.0, 1.4][..]);
        let panels = [
            panel(vec![line("a", x), line("b", y), line("c", x), line("d", x), line("e", y)]),
            panel(vec![line("a", y), line("b", y), line("c", y), line("d", x), line("e", y)]),
        ];
        let (labels, curves) = curves(&panels, &Budgets::Percent);
        assert_eq!(labels, [vec!["a", "c"], vec!["b", "e"], vec!["d"]]);
        assert!(curves.iter().all(|panel| panel.curves.len() == 3));
        // Lines without a point are never merged.
        let (labels, _) =
            super::curves(&[panel(vec![line("a", &[]), line("b", &[])])], &Budgets::Percent);
        assert_eq!(labels, [["a"], ["b"]]);
    }
}
