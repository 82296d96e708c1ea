//! Line of a policy, with markers.

use super::curve::Mark;
use crate::lab::plot::draw::stroke;
use crate::lab::plot::frame::Frame;
use crate::lab::plot::style::{Look, Shape};
use svg::node::element::Path;

/// Width of a line in px.
pub(super) const LINE: f64 = 1.8;

/// Path data through the medians, broken where a median is missing and cut off at the limit.
pub(super) fn polyline(marks: &[Mark], frame: &Frame, limit: f64) -> String {
    let mut data = String::new();
    // The previous mark: position, median, and whether the median was within the limit.
    let mut before: Option<(f64, f64, bool)> = None;
    for mark in marks {
        let Some(median) = mark.spread.median else {
            before = None;
            continue;
        };
        let (x, inside) = (frame.x.at(mark.budget), median <= limit);
        if let Some((x_before, median_before, was_inside)) = before
            && was_inside != inside
        {
            let part = (limit - median_before) / (median - median_before);
            let crossing = x_before + part * (x - x_before);
            let pen = if inside { 'M' } else { 'L' };
            data += &format!("{pen}{crossing:.1} {:.1}", frame.y.at(limit));
        }
        if inside {
            let pen = if before.is_some() { 'L' } else { 'M' };
            data += &format!("{pen}{x:.1} {:.1}", frame.y.at(median));
        }
        before = Some((x, median, inside));
    }
    data
}

pub(super) fn dash(look: Look) -> &'static str {
    if look.dash.is_empty() { "none" } else { look.dash }
}

pub(super) fn arrow_head(x: f64, y: f64) -> String {
    format!("M{:.1} {y:.1}l4.5 -4.5l4.5 4.5", x - 4.5)
}

/// Points that get a marker: the first point, the last point, and each point that is far enough
/// from the previous marker.
pub(super) fn thinned(points: &[(f64, f64)], apart: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (i, &(x, y)) in points.iter().enumerate() {
        let near = kept.last().is_some_and(|(a, b)| (x - a).hypot(y - b) < apart);
        if !near || i + 1 == points.len() {
            kept.push((x, y));
        }
    }
    kept
}

/// Markers of a line as a single path.
pub(super) fn markers(points: &[(f64, f64)], look: Look, size: f64) -> Path {
    let data: String = points.iter().map(|(x, y)| look.shape.path(*x, *y, size)).collect();
    let thin = matches!(look.shape, Shape::Cross | Shape::Plus | Shape::Star);
    stroke(data, look.color, if thin { LINE } else { 1.4 })
        .set("fill", look.fill())
        .set("class", "marker")
}
