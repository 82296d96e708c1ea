//! Memory over time of one run.

use super::draw::{
    Anchor, LARGE, MEDIUM, SMALL, WIDTH, add, border, canvas, fit, named, px, rect, stroke, text,
    text_upwards, text_width,
};
use super::frame::{Axis, Frame};
use super::legend::{Entry, KEY, Legend};
use super::limits::{self, Limit, RIGHT};
use super::reduce::{extremes, upper_edge};
use super::style::{EVICTED_FILL, EVICTED_LINE, INK, REGENERATED, USED_FILL, USED_LINE};
use super::{PlotError, Sample, Timeline, ticks};
use std::cmp::Reverse;
use svg::Node;
use svg::node::element::{Group, Path};

const LEFT: f64 = 84.0;
const TITLE: f64 = 32.0;
const PLOT: f64 = 280.0;
const GAP: f64 = 28.0;
const STRIP: f64 = 52.0;
const NUMBERS: f64 = 56.0;
/// Width of one bar of the strip: thinner ones vanish in print.
const BAR: f64 = 2.0;
/// Of the line that stands for 100 %.
const FULL_DASH: &str = "2 4";

pub(super) fn plot(timeline: &Timeline) -> Result<String, PlotError> {
    let mut samples: Vec<Sample> = timeline.samples.iter().filter(|s| usable(s)).copied().collect();
    samples.sort_by(|a, b| a.at.total_cmp(&b.at));
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Err(PlotError::Nothing("sample has a time"));
    };
    let (from, to, last) = (first.at, last.at, *last);
    // A run of no length still has a picture: its one state, held for a while.
    let to = if to > from { to } else { from + (from.abs() * 0.1).max(1.0) };
    let failed_at = timeline.failure.as_ref().map(|_| to);
    // Room for the cross, beyond which there is nothing.
    let to = if failed_at.is_some() { to + (to - from) * 0.04 } else { to };
    let (time_scale, time_name) = timeline.unit.axis(from.abs().max(to.abs()));

    let held = samples.iter().map(|s| total(s).max(s.used)).max().unwrap_or(0);
    let budget = budget(timeline, held, time_scale);
    let threshold =
        timeline.threshold.and_then(|bytes| Limit::new("threshold", "8 5", bytes, held));
    let full = timeline.full_budget.and_then(|bytes| Limit::new("100 %", FULL_DASH, bytes, held));
    let full_is_drawn = full.as_ref().is_some_and(|limit| !limit.far);
    let mut limits: Vec<_> = [budget, full, threshold].into_iter().flatten().collect();
    limits.sort_by_key(|limit| Reverse(limit.bytes));
    let in_range = limits.iter().filter(|l| !l.far).map(|l| l.bytes);
    let earlier = limits.iter().flat_map(|limit| limit.before.iter().map(|(_, bytes)| *bytes));
    let in_range = in_range.chain(earlier.filter(|&bytes| !limits::is_far(bytes, held)));
    let most = in_range.chain([held]).max().unwrap_or(0).max(1) as f64;
    let (byte_scale, byte_unit) = ticks::byte_unit(most);

    let legend = Legend::new(entries(full_is_drawn), WIDTH - LEFT);
    let top = TITLE + legend.height() + 10.0;
    let bottom = top + PLOT;
    let x = Axis { from: from / time_scale, to: to / time_scale, start: LEFT, end: WIDTH - RIGHT };
    let y = Axis { from: 0.0, to: most * 1.06 / byte_scale, start: bottom, end: top };
    let upper = Frame { x, y };
    let bars = Bars::of(&samples, &x, time_scale);
    let (strip_scale, strip_unit) = ticks::byte_unit(bars.highest());
    let lower = Frame {
        x,
        y: Axis {
            from: 0.0,
            to: bars.highest().max(1.0) * 1.1 / strip_scale,
            start: bottom + GAP + STRIP,
            end: bottom + GAP,
        },
    };
    let x_step = ticks::step(x.to - x.from, 8.0);
    let y_step = ticks::step(y.to, 6.0);

    let mut picture = canvas(bottom + GAP + STRIP + NUMBERS);
    let title = fit(&timeline.title, LARGE * 1.1, WIDTH - 2.0 * LEFT);
    let title = text(&title, (x.start + x.end) / 2.0, 22.0, LARGE, Anchor::Middle);
    picture.append(title.set("font-weight", "bold"));
    let legend_left = LEFT + (WIDTH - LEFT - RIGHT - legend.width()).max(0.0) / 2.0;
    picture.append(legend.draw(legend_left, TITLE));

    // The grid lies over the areas, else it would say nothing about them.
    let mut plot = named("memory");
    let end = upper.x.at(failed_at.unwrap_or(to) / time_scale);
    let series = |value: fn(&Sample) -> u64| {
        Series::new(&upper, &samples, time_scale, end, |s| value(s) as f64 / byte_scale)
    };
    let (held, used) = (series(total), series(|s| s.used));
    add(&mut plot, held.area(EVICTED_FILL));
    add(&mut plot, used.area(USED_FILL));
    let mut grid = Group::new().set("opacity", 0.6);
    upper.rows(&mut grid, y_step);
    upper.columns(&mut grid, x_step);
    add(&mut plot, grid);
    add(&mut plot, held.edge(EVICTED_LINE));
    add(&mut plot, used.edge(USED_LINE));
    upper.y_numbers(&mut plot, y_step);
    add(
        &mut plot,
        text_upwards(&format!("memory ({byte_unit})"), 20.0, bottom - PLOT / 2.0, MEDIUM),
    );
    limits::draw(&mut plot, &upper, &limits, byte_scale);
    if let (Some(at), Some(failure)) = (failed_at, &timeline.failure) {
        let used = last.used as f64 / byte_scale;
        draw_failure(&mut plot, &upper, (at / time_scale, used), failure);
    }
    add(&mut plot, border(x.start, top, x.end - x.start, PLOT));
    picture.append(plot);

    let mut strip = named("brought back");
    lower.columns(&mut strip, x_step);
    add(&mut strip, bars.draw(&lower, strip_scale));
    let per = if bars.highest() > 0.0 {
        let width = timeline.unit.show((to - from) / bars.sums.len() as f64);
        format!("brought back, bytes per {width}")
    } else {
        "brought back: nothing".to_owned()
    };
    let per = fit(&per, SMALL, x.end - x.start);
    add(&mut strip, text(&per, x.start, bottom + GAP - 7.0, SMALL, Anchor::Start));
    let highest = ticks::label_of(bars.highest() / strip_scale);
    let y_highest = lower.y.at(bars.highest() / strip_scale);
    add(&mut strip, text("0", x.start - 8.0, lower.y.start + 3.0, SMALL, Anchor::End));
    if bars.highest() > 0.0 {
        let number = format!("{highest} {strip_unit}");
        add(&mut strip, text(&number, x.start - 8.0, y_highest + 8.0, SMALL, Anchor::End));
        add(&mut strip, stroke(format!("M{:.1} {y_highest:.1}h-4", x.start), INK, 1.0));
    }
    add(&mut strip, border(x.start, lower.y.end, x.end - x.start, STRIP));
    lower.x_numbers(&mut strip, x_step);
    let name = fit(&time_name, MEDIUM, x.end - x.start);
    add(
        &mut strip,
        text(&name, (x.start + x.end) / 2.0, lower.y.start + 44.0, MEDIUM, Anchor::Middle),
    );
    picture.append(strip);
    Ok(picture.to_string())
}

/// The last one, and those before it.
fn budget(timeline: &Timeline, held: u64, time_scale: f64) -> Option<Limit> {
    let mut bytes = timeline.budget;
    let mut before = Vec::new();
    for &(at, next) in &timeline.budgets {
        before.push((at / time_scale, bytes));
        bytes = next;
    }
    let limit = Limit::new("budget", "none", bytes, held)?;
    let far = limit.far && before.iter().all(|(_, bytes)| limits::is_far(*bytes, held));
    Some(Limit { before, far, ..limit })
}

/// Past these numbers, axes run out of digits.
fn usable(sample: &Sample) -> bool {
    sample.at.abs() < 1e100
}

fn total(sample: &Sample) -> u64 {
    sample.used.saturating_add(sample.evicted)
}

/// One of the two series, in pixels.
struct Series {
    points: Vec<(f64, f64)>,
    start: f64,
    end: f64,
    bottom: f64,
}

impl Series {
    fn new(
        frame: &Frame,
        samples: &[Sample],
        times: f64,
        end: f64,
        value: impl Fn(&Sample) -> f64,
    ) -> Self {
        let at = |s: &Sample| (frame.x.at(s.at / times), frame.y.at(value(s)));
        let points = samples.iter().map(at).collect();
        Self { points, start: px(frame.x.start), end: px(end), bottom: px(frame.y.start) }
    }

    fn area(&self, fill: &str) -> Path {
        let outline = self.steps(extremes(self.points.iter().copied()));
        Path::new().set("d", format!("{outline}V{}H{}z", self.bottom, self.start)).set("fill", fill)
    }

    fn edge(&self, color: &str) -> Path {
        let edge = upper_edge(self.points.iter().copied());
        let travel: f64 = edge.windows(2).map(|w| (w[1].1 - w[0].1).abs()).sum();
        // Swings a few pixels apart would run together at full width.
        let width = if travel > 40.0 * PLOT { 0.5 } else { 1.3 };
        stroke(self.steps(edge), color, width)
    }

    /// Each value held until the next point, the last to the right edge.
    fn steps(&self, points: Vec<(f64, f64)>) -> String {
        let mut data = String::with_capacity(points.len() * 14);
        let mut pen: Option<(f64, f64)> = None;
        for (x, y) in points {
            let (x, y) = (px(x.clamp(self.start, self.end)), px(y));
            match pen {
                None => data += &format!("M{x} {y}"),
                Some((was_x, was_y)) => {
                    if was_x != x {
                        data += &format!("H{x}");
                    }
                    if was_y != y {
                        data += &format!("V{y}");
                    }
                }
            }
            pen = Some((x, y));
        }
        data + &format!("H{}", self.end)
    }
}

/// A cross where the run ended, and why.
fn draw_failure(group: &mut Group, frame: &Frame, (at, used): (f64, f64), why: &str) {
    let (x, y) = (frame.x.at(at), frame.y.at(used));
    let down = format!("M{x:.1} {}V{}", px(frame.y.end), px(frame.y.start));
    add(group, stroke(down, INK, 1.0).set("stroke-dasharray", "3 3"));
    let cross = format!("M{:.1} {:.1}l12 12m0 -12l-12 12", x - 6.0, y - 6.0);
    add(group, stroke(cross.clone(), "#FFFFFF", 6.0));
    add(group, stroke(cross, INK, 3.0).set("class", "failed"));
    // Below the line that the run has come up against, where it can be read.
    let why = fit(&format!("fails: {why}"), MEDIUM, frame.x.end - frame.x.start - 40.0);
    // Bold is a tenth wider.
    let (left, right) = (x - 18.0 - 1.1 * text_width(&why, MEDIUM), x - 10.0);
    let baseline = (y + 26.0).min(frame.y.start - 12.0);
    add(group, rect(left, baseline - 16.0, right - left, 22.0, "#FFFFFF").set("opacity", 0.85));
    add(group, text(&why, right - 4.0, baseline, MEDIUM, Anchor::End).set("font-weight", "bold"));
}

/// Bytes brought back, summed per bar.
struct Bars {
    sums: Vec<u64>,
}

impl Bars {
    fn of(samples: &[Sample], x: &Axis, times: f64) -> Self {
        let mut sums = vec![0u64; ((x.end - x.start) / BAR).round().max(1.0) as usize];
        for sample in samples {
            let bar = ((x.at(sample.at / times) - x.start) / BAR) as usize;
            let last = sums.len() - 1;
            let sum = &mut sums[bar.min(last)];
            *sum = sum.saturating_add(sample.regenerated);
        }
        Self { sums }
    }

    fn highest(&self) -> f64 {
        self.sums.iter().copied().max().unwrap_or(0) as f64
    }

    fn draw(&self, frame: &Frame, bytes: f64) -> Path {
        let mut data = String::new();
        for (i, &sum) in self.sums.iter().enumerate().filter(|(_, sum)| **sum > 0) {
            let x = frame.x.start + (i as f64 + 0.5) * BAR;
            // The smallest amount is still seen.
            let y = frame.y.at(sum as f64 / bytes).min(frame.y.start - 1.0);
            data += &format!("M{x:.1} {}V{y:.1}", px(frame.y.start));
        }
        stroke(data, REGENERATED, BAR).set("class", "bars")
    }
}

fn entries(full: bool) -> Vec<Entry> {
    let swatch = |fill, line| {
        let edge = stroke(format!("M0 -7H{KEY}"), line, 1.6);
        Group::new().add(rect(0.0, -7.0, KEY, 14.0, fill)).add(edge)
    };
    let mut entries = vec![
        Entry::new(swatch(USED_FILL, USED_LINE), "in use"),
        Entry::new(swatch(EVICTED_FILL, EVICTED_LINE), "evicted, still held"),
    ];
    if full {
        let line = stroke(format!("M0 0H{KEY}"), INK, 2.0).set("stroke-dasharray", FULL_DASH);
        entries.push(Entry::new(Group::new().add(line), "100 %: evicts nothing"));
    }
    entries
}

#[cfg(test)]
mod tests;
