//! Loss, memory and recomputation over the steps of a run.

use super::draw::{
    Anchor, LARGE, MEDIUM, SMALL, WIDTH, add, border, canvas, fit, named, px, stroke, text,
    text_upwards,
};
use super::frame::{Axis, Frame};
use super::reduce::extremes;
use super::style::{INK, NOTE, REGENERATED, Shape, USED_LINE};
use super::{PlotError, Training, ticks};
use crate::ByteSize;
use svg::Node;
use svg::node::element::Group;

const LEFT: f64 = 84.0;
/// Space right of the plots, for the names of lines.
const RIGHT: f64 = 164.0;
const TITLE: f64 = 40.0;
const LOSS: f64 = 260.0;
const OTHERS: f64 = 110.0;
const GAP: f64 = 26.0;
const NUMBERS: f64 = 56.0;

/// Points of a line, in the units of the plot.
type Points = Vec<(f64, f64)>;

pub(super) fn plot(training: &Training) -> Result<String, PlotError> {
    let finite = |points: &Points| -> Points {
        points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).copied().collect()
    };
    let of = |value: &dyn Fn(&super::TrainingStep) -> f64| -> Points {
        finite(&training.steps.iter().map(|s| (s.step as f64, value(s))).collect())
    };
    let loss = of(&|step| step.loss);
    let tests = finite(&training.tests.iter().map(|&(step, loss)| (step as f64, loss)).collect());
    let (Some(first), Some(last)) = (training.steps.first(), training.steps.last()) else {
        return Err(PlotError::Nothing("step was done"));
    };
    if loss.is_empty() {
        return Err(PlotError::Nothing("loss is a number"));
    }
    let (from, to) = (first.step as f64, last.step.max(first.step + 1) as f64);
    let x = Axis { from, to, start: LEFT, end: WIDTH - RIGHT };
    let x_step = ticks::step(to - from, 8.0).max(1.0);

    let mut picture = canvas(TITLE + LOSS + 2.0 * (GAP + OTHERS) + NUMBERS);
    let title = fit(&training.title, LARGE * 1.1, WIDTH - 2.0 * LEFT);
    let title = text(&title, (x.start + x.end) / 2.0, 24.0, LARGE, Anchor::Middle);
    picture.append(title.set("font-weight", "bold"));

    // The plot of the loss.
    let all = || loss.iter().chain(&tests).map(|point| point.1);
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::MIN, f64::max));
    let room = (most - least).max(least.abs() * 0.01).max(1e-9);
    let y = Axis {
        from: if least >= 0.0 { 0.0 } else { least - 0.05 * room },
        to: most + 0.05 * room,
        start: TITLE + LOSS,
        end: TITLE,
    };
    let frame = Frame { x, y };
    let mut group = Plot::new(frame, "loss", x_step, 6.0);
    group.line("training", &loss, USED_LINE, "");
    if !tests.is_empty() {
        group.line("test", &tests, REGENERATED, "7 3");
        group.markers(&tests, REGENERATED);
    }
    picture.append(group.done());

    // The plot of the memory, with the budget unless it is far above the peak.
    let top = TITLE + LOSS + GAP;
    let most = training.steps.iter().map(|step| step.peak_bytes).max().unwrap_or(0);
    let budget = training.budget.filter(|&budget| budget < 3 * most.max(1));
    let levels = [budget, training.unbudgeted_peak].map(Option::unwrap_or_default);
    let highest = levels.into_iter().fold(most, u64::max).max(1) as f64;
    let (scale, unit) = ticks::byte_unit(highest);
    let y = Axis { from: 0.0, to: 1.1 * highest / scale, start: top + OTHERS, end: top };
    let mut group = Plot::new(Frame { x, y }, &format!("memory ({unit})"), x_step, 4.0);
    group.line(
        "peak of the run so far",
        &of(&|step| step.peak_bytes as f64 / scale),
        USED_LINE,
        "",
    );
    group.line("held after the step", &of(&|step| step.used_bytes as f64 / scale), NOTE, "2 2.5");
    let mut level = |name: &str, bytes: u64, color, dash| {
        let level = bytes as f64 / scale;
        group.line(name, &vec![(from, level), (to, level)], color, dash);
    };
    if let Some(budget) = budget {
        let name = format!("budget {}", ByteSize(budget)).replace(".00 ", " ");
        level(&name, budget, INK, "8 5");
    }
    if let Some(peak) = training.unbudgeted_peak {
        level("without evictions", peak, NOTE, "8 5");
    }
    picture.append(group.done());

    // The plot of the recomputation, with the x axis for all three plots.
    let top = top + OTHERS + GAP;
    let recomputed = of(&|step| 100.0 * step.recomputed);
    let most = recomputed.iter().map(|point| point.1).fold(0.0, f64::max);
    let y = Axis { from: 0.0, to: 1.1 * most.max(1.0), start: top + OTHERS, end: top };
    let frame = Frame { x, y };
    let mut group = Plot::new(frame, "recomputed (%)", x_step, 4.0);
    group.line("of the work", &recomputed, REGENERATED, "");
    frame.x_numbers(&mut group.group, x_step);
    let middle = (x.start + x.end) / 2.0;
    add(&mut group.group, text("step", middle, y.start + 44.0, MEDIUM, Anchor::Middle));
    picture.append(group.done());
    Ok(picture.to_string())
}

/// A plot with the names of its lines at the right.
struct Plot {
    frame: Frame,
    group: Group,
    /// Number of lines drawn, for the position of the next name.
    named: f64,
}

impl Plot {
    fn new(frame: Frame, name: &str, x_step: f64, rows: f64) -> Self {
        let Frame { x: _, y } = frame;
        let mut group = named(name);
        let y_step = ticks::step(y.to - y.from, rows);
        frame.rows(&mut group, y_step);
        frame.columns(&mut group, x_step);
        frame.y_numbers(&mut group, y_step);
        add(&mut group, text_upwards(name, 20.0, (y.start + y.end) / 2.0, MEDIUM));
        Self { frame, group, named: 0.0 }
    }

    fn line(&mut self, name: &str, points: &Points, color: &str, dash: &str) {
        let Frame { x, y } = self.frame;
        let placed = extremes(points.iter().map(|point| (x.at(point.0), y.at(point.1))));
        let mut data = String::new();
        for (i, (x, y)) in placed.into_iter().enumerate() {
            data += &format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, px(x), px(y));
        }
        add(&mut self.group, stroke(data, color, 1.5).set("stroke-dasharray", dash_of(dash)));
        let (left, at) = (x.end + 10.0, y.end + 12.0 + 20.0 * self.named);
        let key = stroke(format!("M{} {}h20", px(left), px(at - 4.0)), color, 2.0);
        add(&mut self.group, key.set("stroke-dasharray", dash_of(dash)));
        let name = fit(name, SMALL, RIGHT - 36.0);
        add(&mut self.group, text(&name, left + 25.0, at, SMALL, Anchor::Start));
        self.named += 1.0;
    }

    fn markers(&mut self, points: &Points, color: &str) {
        let Frame { x, y } = self.frame;
        // At most 80 markers are drawn, so that they stay distinguishable.
        let every = points.len().div_ceil(80);
        let outlines = points.iter().step_by(every);
        let data: String =
            outlines.map(|p| Shape::Circle.path(x.at(p.0), y.at(p.1), 3.0)).collect();
        add(&mut self.group, stroke(data, color, 1.0).set("fill", color));
    }

    fn done(mut self) -> Group {
        let Frame { x, y } = self.frame;
        add(&mut self.group, border(x.start, y.end, x.end - x.start, y.start - y.end));
        self.group
    }
}

/// Value of `stroke-dasharray`; an empty dash is a solid line.
const fn dash_of(dash: &str) -> &str {
    if dash.is_empty() { "none" } else { dash }
}

#[cfg(test)]
mod tests {
    use super::super::TrainingStep;
    use super::super::test_xml::read;
    use super::*;

    fn step(step: usize) -> TrainingStep {
        let loss = 5.0 / (step as f64).sqrt();
        TrainingStep { step, loss, peak_bytes: 3 << 20, used_bytes: 1 << 20, recomputed: 0.2 }
    }

    #[test]
    fn any_run_makes_a_picture() {
        for n in [1, 2, 10, 5000] {
            for tests in [vec![], vec![(1, 4.0)], vec![(1, f64::NAN)]] {
                for budget in [None, Some(4 << 20), Some(u64::MAX)] {
                    let steps = (1..=n).map(step).collect();
                    let training = Training {
                        title: "a <run>".to_owned(),
                        budget,
                        unbudgeted_peak: budget,
                        steps,
                        tests: tests.clone(),
                    };
                    let svg = plot(&training).unwrap();
                    read(&svg);
                    assert!(svg.len() < 200_000);
                    assert_eq!(svg.contains("budget"), budget == Some(4 << 20));
                    assert_eq!(svg.contains("without evictions"), budget.is_some());
                }
            }
        }
    }

    #[test]
    fn losses_that_are_no_number_are_left_out() {
        let mut steps: Vec<_> = (1..=4).map(step).collect();
        steps[1].loss = f64::NAN;
        steps[2].loss = f64::INFINITY;
        let training = Training { steps, ..Training::default() };
        read(&plot(&training).unwrap());
        let steps = vec![TrainingStep { loss: f64::NAN, ..step(1) }];
        let none = Training { steps, ..Training::default() };
        assert_eq!(plot(&none), Err(PlotError::Nothing("loss is a number")));
        assert_eq!(plot(&Training::default()), Err(PlotError::Nothing("step was done")));
    }
}
