//! Horizontal lines across a plot, each at a number of bytes, with names at the right.

use super::draw::{Anchor, SMALL, add, fit, px, stroke, text};
use super::frame::Frame;
use super::style::{INK, NOTE};
use crate::ByteSize;
use svg::node::element::Group;

/// Space right of the plot for the names.
pub(super) const RIGHT: f64 = 112.0;

/// Factor: a limit above the highest data value times this factor is named, but not drawn at its
/// height. An axis up to a far limit would make the data too flat.
const FAR: f64 = 3.0;

/// A limit on bytes.
pub(super) struct Limit {
    pub name: &'static str,
    pub dash: &'static str,
    pub bytes: u64,
    /// Earlier values of the limit, in order. An entry is the position on the x axis where the
    /// value ended, and the bytes.
    pub before: Vec<(f64, u64)>,
    /// Whether the limit is too far above the data to be drawn at its height.
    pub far: bool,
}

impl Limit {
    /// A limit at `bytes` bytes. `None` for `u64::MAX`, which means no limit.
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

/// Whether a limit of `bytes` is too far above `held`, the highest data value, to be drawn.
pub(super) fn is_far(bytes: u64, held: u64) -> bool {
    held > 0 && bytes as f64 > FAR * held as f64
}

/// Draws limits, the highest first, with their names right of the plot. The axis has units of
/// `bytes` bytes.
pub(super) fn draw(group: &mut Group, frame: &Frame, limits: &[Limit], bytes: f64) {
    let mut lowest_name = f64::NEG_INFINITY;
    for limit in limits {
        let y = frame.y.at(limit.bytes as f64 / bytes);
        // Limits above the end of the axis are drawn at its end.
        let level = |limit: u64| frame.y.at(limit as f64 / bytes).max(frame.y.end);
        if !limit.far {
            let first = limit.before.first().map_or(limit.bytes, |(_, bytes)| *bytes);
            let mut data = format!("M{} {:.1}", px(frame.x.start), level(first));
            let next = limit.before.iter().skip(1).map(|(_, bytes)| *bytes).chain([limit.bytes]);
            for (&(end, _), next) in limit.before.iter().zip(next) {
                data += &format!("H{}V{:.1}", px(frame.x.at(end)), level(next));
            }
            data += &format!("H{}", px(frame.x.end + 8.0));
            // A white outline keeps the line visible on the edge of a dark area.
            add(group, stroke(data.clone(), "#FFFFFF", 4.0).set("opacity", 0.7));
            add(group, stroke(data, INK, 2.0).set("stroke-dasharray", limit.dash));
        }
        // A name has two lines of text. If two limits are close, the name of the lower limit moves
        // down.
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
