//! Slowdown over budget: small multiples with a common legend.

use super::draw::{
    Anchor, LARGE, MEDIUM, SMALL, WIDTH, add, border, canvas, fit, named, px, rect, stroke, text,
    text_upwards,
};
use super::frame::{Axis, Frame};
use super::legend::{Entry, KEY, Legend};
use super::style::{BASELINE, INK, Look, NOTE, STRIP};
use super::{Panel, PlotError, ticks};
use curve::{Budgets, Curve, Mark, Names, curves};
use grid::{FAIL_ROW, Grid, LEFT, NUMBERS, RIGHT, TITLE};
use lines::{LINE, arrow_head, dash, markers, polyline, thinned};
use svg::Node;
use svg::node::element::Group;

mod curve;
mod grid;
mod lines;

const X_NAME: f64 = 26.0;
/// Size in px of markers in the strip of failures.
const FAIL_MARKER: f64 = 3.6;
/// Least distance in px between markers on a line. Closer markers would hide the dashes.
const MARKERS_APART: f64 = 20.0;
/// Least distance in px between markers in the strip of failures. Closer markers would overlap.
const FAIL_MARKERS_APART: f64 = 7.5;

pub(super) fn plot(panels: &[Panel], limit: f64) -> Result<String, PlotError> {
    if !(limit.is_finite() && limit > 1.0) {
        return Err(PlotError::Limit(limit));
    }
    let budgets = Budgets::of(panels);
    let (labels, panels) = curves(panels, &budgets);
    let marks = || panels.iter().flat_map(|p| &p.curves).flat_map(|c| &c.marks);
    if marks().next().is_none() {
        return Err(PlotError::Nothing("point has a budget"));
    }
    let scales = Scales::of(marks(), limit);
    let fail_rows = fail_rows(&panels, labels.len());
    let grid = Grid::of(panels.len(), fail_rows.iter().flatten().count());

    let legend = |width| Legend::new(entries(&labels, marks(), limit), width);
    let in_grid = legend(grid.plot_width - 20.0);
    let legend_height = legend(WIDTH - LEFT - RIGHT).height();
    // The legend is drawn in an empty cell of the grid, if there is an empty cell that is large
    // enough.
    let in_grid =
        grid.free_place().filter(|_| in_grid.height() <= grid.cell() - TITLE).zip(Some(in_grid));
    let top = if in_grid.is_some() { 4.0 } else { legend_height + 14.0 };

    let mut picture = canvas(top + grid.rows as f64 * grid.cell() + X_NAME);
    match in_grid {
        Some(((x, y), legend)) => {
            let space = grid.cell() - TITLE - NUMBERS - legend.height();
            let left = x + (grid.plot_width - legend.width()).max(0.0) / 2.0;
            picture = picture.add(legend.draw(left, top + y + TITLE + space.max(0.0) / 2.0));
        }
        None => {
            let legend = legend(WIDTH - LEFT - RIGHT);
            let left = LEFT + (WIDTH - LEFT - RIGHT - legend.width()).max(0.0) / 2.0;
            picture = picture.add(legend.draw(left, 8.0));
        }
    }
    for (i, panel) in panels.iter().enumerate() {
        let (x, y) = grid.place(i);
        let place = Place { grid: &grid, x, y: top + y, first: i % grid.columns == 0 };
        let mut group = named(&panel.title);
        place.axes(&mut group, &panel.title, &scales);
        place.failures(&mut group, &panel.curves, &scales, &fail_rows);
        for curve in &panel.curves {
            add(&mut group, place.curve(curve, &labels, &scales));
        }
        let mut of_panel = panel.curves.iter().flat_map(|c| &c.marks).peekable();
        let note = if of_panel.peek().is_none() { "no runs" } else { "every run failed" };
        if !of_panel.any(|m| m.spread.range.is_some()) {
            place.note(&mut group, note, &scales);
        }
        if i + grid.columns >= panels.len() {
            let (x, y) = (x + grid.plot_width / 2.0, top + y + grid.cell() + 10.0);
            add(&mut group, text(&budgets.name(), x, y, MEDIUM, Anchor::Middle));
        }
        picture.append(group);
    }
    Ok(picture.to_string())
}

/// Line -> row of the strip of failures that shows its failures, the same row in every panel.
/// `None` for a line that never fails.
fn fail_rows(panels: &[curve::Curves], lines: usize) -> Vec<Option<usize>> {
    let mut rows = 0;
    (0..lines)
        .map(|line| {
            let mut of_line = panels.iter().flat_map(|p| &p.curves).filter(|c| c.line == line);
            let fails = of_line.any(|c| c.marks.iter().any(|m| m.spread.failed > 0));
            fails.then(|| {
                rows += 1;
                rows - 1
            })
        })
        .collect()
}

/// Ranges of both axes, the same for all panels.
struct Scales {
    budget: (f64, f64),
    slowdown: (f64, f64),
    slowdown_step: f64,
    limit: f64,
}

impl Scales {
    fn of<'a>(marks: impl Iterator<Item = &'a Mark> + Clone, limit: f64) -> Self {
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            })
        };
        let (low, high) = range(&mut marks.clone().map(|m| m.budget));
        // Both ends of the axis get space for half a marker.
        let pad = if high > low { (high - low) * 0.05 } else { 10f64.max(high * 0.1) };
        let budget = (low - pad, high + pad);

        let seen = marks.filter_map(|m| m.spread.range).flat_map(|(low, high)| [low, high]);
        let (low, high) = range(&mut seen.into_iter());
        // The axis always includes 1.0. The axis reaches at least 1.1 if the limit allows 1.1, so
        // that tiny differences do not fill the plot.
        let (low, high) = (low.clamp(0.0, 1.0), high.clamp(1.1f64.min(limit), limit));
        let slowdown_step = ticks::step(high - low, 5.0);
        // The axis ends at the next tick, but not above the limit. The small tolerance prevents an
        // additional tick from a rounding error.
        let top = ((high / slowdown_step - 1e-6).ceil() * slowdown_step).min(limit);
        let pad = (top - low) * 0.04;
        Self { budget, slowdown: (low - pad, top), slowdown_step, limit }
    }
}

/// Position of a panel.
struct Place<'a> {
    grid: &'a Grid,
    x: f64,
    y: f64,
    /// Whether the panel is the first of a row. Only the first panel of a row has numbers at the y
    /// axis.
    first: bool,
}

impl Place<'_> {
    fn frame(&self, scales: &Scales) -> Frame {
        let bottom = self.y + self.grid.cell() - NUMBERS;
        let (from, to) = scales.budget;
        let x = Axis { from, to, start: self.x, end: self.x + self.grid.plot_width };
        let (from, to) = scales.slowdown;
        let y = Axis { from, to, start: bottom, end: bottom - self.grid.plot_height };
        Frame { x, y }
    }

    fn axes(&self, group: &mut Group, title: &str, scales: &Scales) {
        let frame = self.frame(scales);
        let (x, y, width) = (self.x, frame.y.end, self.grid.plot_width);
        let title = fit(title, LARGE * 1.1, width);
        let title = text(&title, x + width / 2.0, self.y + 20.0, LARGE, Anchor::Middle);
        add(group, title.set("font-weight", "bold"));

        let (from, to) = scales.budget;
        let x_step = ticks::step(to - from, (width / 50.0).floor().min(10.0));
        frame.rows(group, scales.slowdown_step);
        frame.columns(group, x_step);
        let one = px(frame.y.at(1.0));
        add(group, stroke(format!("M{} {one}h{}", px(x), px(width)), BASELINE, 1.5));
        add(group, border(x, y, width, self.grid.plot_height));
        frame.x_numbers(group, x_step);
        if self.first {
            frame.y_numbers(group, scales.slowdown_step);
            let middle = y + self.grid.plot_height / 2.0;
            add(group, text_upwards("slowdown", 18.0, middle, MEDIUM));
        }
    }

    /// Draws a note in the middle of a plot without lines.
    fn note(&self, group: &mut Group, note: &str, scales: &Scales) {
        let Frame { x, y } = self.frame(scales);
        let note =
            text(note, (x.start + x.end) / 2.0, (y.start + y.end) / 2.0, SMALL, Anchor::Middle);
        add(group, note.set("fill", NOTE));
    }

    /// Draws the strip above the plot, with one row for each line that fails in any panel, and one
    /// marker for each failure.
    fn failures(
        &self,
        group: &mut Group,
        curves: &[Curve],
        scales: &Scales,
        rows: &[Option<usize>],
    ) {
        if self.grid.strip == 0.0 {
            return;
        }
        let top = self.y + TITLE;
        add(group, rect(self.x, top, self.grid.plot_width, self.grid.strip, STRIP));
        if self.first {
            let middle = top + self.grid.strip / 2.0 + 5.0;
            add(group, text("fails", self.x - 8.0, middle, SMALL, Anchor::End));
        }
        let frame = self.frame(scales);
        for curve in curves {
            let Some(row) = rows[curve.line] else { continue };
            let y = top + 4.0 + (row as f64 + 0.5) * FAIL_ROW;
            let at: Vec<_> = curve
                .marks
                .iter()
                .filter(|m| m.spread.failed > 0)
                .map(|m| (frame.x.at(m.budget), y))
                .collect();
            if !at.is_empty() {
                let look = Look::of(curve.line, rows.len());
                let marks = markers(&thinned(&at, FAIL_MARKERS_APART), look, FAIL_MARKER);
                add(group, marks.set("class", "fails"));
            }
        }
    }

    fn curve(&self, curve: &Curve, labels: &[Names], scales: &Scales) -> Group {
        let frame = self.frame(scales);
        let look = Look::of(curve.line, labels.len());
        let (mut ranges, mut above) = (String::new(), String::new());
        let mut at = Vec::new();
        for mark in &curve.marks {
            let Some((lowest, highest)) = mark.spread.range else { continue };
            let x = frame.x.at(mark.budget);
            let (low, high) = (frame.y.at(lowest), frame.y.at(highest));
            if mark.spread.failed > 0 {
                // The range reaches up to the strip of failures, because a failed run counts as
                // slower than any passing run.
                let strip = self.y + TITLE + self.grid.strip;
                ranges += &format!("M{x:.1} {low:.1}V{strip:.1}M{:.1} {low:.1}h6", x - 3.0);
            } else if low - high > 1.0 {
                let ends = format!("M{:.1} {low:.1}h6m-6 {:.1}h6", x - 3.0, high - low);
                ranges += &format!("M{x:.1} {low:.1}V{high:.1}{ends}");
            }
            if highest > scales.limit {
                above += &arrow_head(x, frame.y.end - 5.5);
            }
            at.extend(mark.spread.median.map(|median| (x, frame.y.at(median))));
        }
        let mut group = named(&labels[curve.line].join(" = "));
        let line = polyline(&curve.marks, &frame, scales.limit);
        if !line.is_empty() {
            let line = stroke(line, look.color, LINE).set("stroke-dasharray", dash(look));
            add(&mut group, line.set("class", "line"));
        }
        if !ranges.is_empty() {
            add(&mut group, stroke(ranges, look.color, 1.0).set("class", "range"));
        }
        if !above.is_empty() {
            add(&mut group, stroke(above, look.color, LINE).set("class", "above"));
        }
        if !at.is_empty() {
            add(&mut group, markers(&thinned(&at, MARKERS_APART), look, look.size));
        }
        group
    }
}

/// Entries of the legend: the lines, then the symbols that occur in the picture.
fn entries<'a>(
    labels: &[Names],
    marks: impl Iterator<Item = &'a Mark> + Clone,
    limit: f64,
) -> Vec<Entry> {
    let middle = KEY / 2.0;
    let line = |(i, names): (usize, &Names)| {
        let look = Look::of(i, labels.len());
        let key = Group::new()
            .add(
                stroke(format!("M0 0H{KEY}"), look.color, LINE).set("stroke-dasharray", dash(look)),
            )
            .add(markers(&[(middle, 0.0)], look, look.size));
        // `=` marks a further name of the same line.
        let names = names.iter().enumerate().map(|(i, name)| match i {
            0 => name.clone(),
            _ => format!("= {name}"),
        });
        Entry { key, names: names.collect() }
    };
    let mut entries: Vec<_> = labels.iter().enumerate().map(line).collect();
    if marks.clone().any(|m| m.spread.range.is_some_and(|(_, high)| high > limit)) {
        let key = Group::new().add(stroke(arrow_head(middle, 2.0), INK, LINE));
        entries.push(Entry::new(key, format!("above {limit}")));
    }
    let repeated = |m: &Mark| m.spread.varies() || (1..m.spread.runs).contains(&m.spread.failed);
    if marks.clone().any(repeated) {
        let key = stroke(format!("M{middle} -7v14m-3 0h6m-6 -14h6"), INK, 1.0);
        let label = "range of repeated runs; lines are medians";
        entries.push(Entry::new(Group::new().add(key), label));
    }
    entries
}

#[cfg(test)]
mod tests;
