//! Lines across a plot at a number of bytes, with their names at the right.

use super::draw::{Anchor, SMALL, add, fit, px, stroke, text};
use super::frame::Frame;
use super::style::{INK, NOTE};
use crate::ByteSize;
use svg::node::element::Group;

/// Room for the names, right of the plot.
pub(super) const RIGHT: f64 = 112.0;

/// A limit this many times the highest bytes would press them to the ground; it is only named.
const FAR: f64 = 3.0;

/// A limit on bytes.
pub(super) struct Limit {
    pub name: &'static str,
    pub dash: &'static str,
    pub bytes: u64,
    /// What it was before, and at which place of the axis that ended, in order.
    pub before: Vec<(f64, u64)>,
    /// Too far above everything to be drawn in its place.
    pub far: bool,
}

impl Limit {
    /// None where there is no limit at all.
    pub(super) fn new(
        name: &'static str,
        dash: &'static str,
        bytes: u64,
        held: u64,
    ) -> Option<Self> {
        let far = is_far(bytes, held);
        (bytes < u64::MAX).then_some(Self { name, dash, bytes, before: Vec::new(), far })
    }
}

/// Whether so many bytes are too far above those that are held.
pub(super) fn is_far(bytes: u64, held: u64) -> bool {
    held > 0 && bytes as f64 > FAR * held as f64
}

/// Their names are where no data is. The highest limit is first. The axis counts in units of `bytes`.
pub(super) fn draw(group: &mut Group, frame: &Frame, limits: &[Limit], bytes: f64) {
    let mut lowest_name = f64::NEG_INFINITY;
    for limit in limits {
        let y = frame.y.at(limit.bytes as f64 / bytes);
        // What is above the axis lies on its edge.
        let level = |limit: u64| frame.y.at(limit as f64 / bytes).max(frame.y.end);
        if !limit.far {
            let first = limit.before.first().map_or(limit.bytes, |(_, bytes)| *bytes);
            let mut data = format!("M{} {:.1}", px(frame.x.start), level(first));
            let next = limit.before.iter().skip(1).map(|(_, bytes)| *bytes).chain([limit.bytes]);
            for (&(end, _), next) in limit.before.iter().zip(next) {
                data += &format!("H{}V{:.1}", px(frame.x.at(end)), level(next));
            }
            data += &format!("H{}", px(frame.x.end + 8.0));
            // White around it, so that it is seen on the edge of a dark area as well.
            add(group, stroke(data.clone(), "#FFFFFF", 4.0).set("opacity", 0.7));
            add(group, stroke(data, INK, 2.0).set("stroke-dasharray", limit.dash));
        }
        // Two lines of text each; where limits are close, the second name moves down.
        let middle = y.max(frame.y.end + 6.0).max(lowest_name + 38.0);
        lowest_name = middle;
        let x = frame.x.end + 12.0;
        let name =
            if limit.far { format!("{} \u{2191}", limit.name) } else { limit.name.to_owned() };
        add(group, text(&name, x, middle - 2.0, SMALL, Anchor::Start));
        let size = ByteSize(limit.bytes).to_string().replace(".00 ", " ");
        let size = fit(&size, SMALL, RIGHT - 12.0);
        add(group, text(&size, x, middle + 15.0, SMALL, Anchor::Start).set("fill", NOTE));
    }
}
