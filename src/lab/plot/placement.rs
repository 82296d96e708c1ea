//! Blocks over time and address.

mod cells;
mod shades;

use self::cells::Cells;
use self::shades::{SHADES, shades};
use super::draw::{
    Anchor, LARGE, MEDIUM, SMALL, WIDTH, add, border, canvas, fit, named, px, rect, text,
    text_upwards, text_width,
};
use super::frame::{Axis, Frame};
use super::legend::{Entry, KEY, Legend};
use super::limits::{self, Limit, RIGHT};
use super::style::INK;
use super::{Block, Blocks, Kind, PlotError, ticks};
use remat_plan::Class;
use std::cmp::Reverse;
use svg::Node;
use svg::node::element::{Group, Path};

const LEFT: f64 = 84.0;
const TITLE: f64 = 32.0;
const PLOT: f64 = 420.0;
const NUMBERS: f64 = 56.0;
/// Blocks with a side shorter than this, in px, are drawn as whole pixels.
const THIN: f64 = 1.5;
/// Blocks whose sides are all at least this long, in px, are drawn with an outline.
const EDGED: f64 = 4.0;
/// Largest number of blocks with names in the picture.
const NAMED: usize = 200;
/// Dash of the line at the load, which is the most bytes alive at the same time.
const LOAD_DASH: &str = "8 5";

/// Roles of blocks in the order of the legend, with their names and shades. Roles differ in color
/// and in lightness.
const LOOKS: [(Option<Kind>, &str, [&str; SHADES]); 7] = [
    (None, "buffer", ["#56A0D3", "#8CC0E4", "#C0DDF1", "#72B0DC"]),
    (Some(Kind::Class(Class::Kept)), "kept", ["#28282E", "#34343B", "#42424A", "#2E2E34"]),
    (
        Some(Kind::Class(Class::Updated)),
        "kept, updated in place",
        ["#174F7D", "#215D8F", "#2E6DA2", "#1C5686"],
    ),
    (Some(Kind::Class(Class::Result)), "result", ["#DA7637", "#E38A50", "#EC9E69", "#DF8044"]),
    (
        Some(Kind::Class(Class::Transient)),
        "transient",
        ["#74B9E2", "#8FC8EA", "#ABD7F1", "#82C1E6"],
    ),
    (Some(Kind::Class(Class::Input)), "input", ["#F0C96B", "#F4D588", "#F8E2A8", "#F2CF79"]),
    (Some(Kind::Workspace), "workspace", ["#EBDDE8", "#F0E5EE", "#F5EDF4", "#EDE1EB"]),
];

pub(super) fn plot(blocks: &Blocks) -> Result<String, PlotError> {
    let drawn: Vec<&Block> = blocks.blocks.iter().filter(|block| block.size > 0).collect();
    let from = drawn.iter().map(|block| block.time.start).min();
    let to = drawn.iter().map(|block| block.time.end).max();
    let (Some(from), Some(to)) = (from, to) else {
        return Err(PlotError::Nothing("buffer has bytes"));
    };
    let limits = limits_of(blocks);
    let highest = limits.iter().filter(|limit| !limit.far).map(|limit| limit.bytes).max();
    let (scale, unit) = ticks::byte_unit(highest.unwrap_or(1) as f64);

    let present = LOOKS.iter().filter(|(kind, ..)| drawn.iter().any(|block| block.kind == *kind));
    let legend =
        Legend::new(present.map(|(_, name, fills)| entry(name, fills)).collect(), WIDTH - LEFT);
    let top = TITLE + legend.height() + 10.0;
    let bottom = top + PLOT;
    let x = Axis {
        from: from as f64,
        to: (to as f64).max(from as f64 + 1.0),
        start: LEFT,
        end: WIDTH - RIGHT,
    };
    let most = highest.unwrap_or(1).max(1) as f64;
    let y = Axis { from: 0.0, to: most * 1.04 / scale, start: bottom, end: top };
    let frame = Frame { x, y };
    let (x_step, y_step) = (ticks::step(x.to - x.from, 8.0).max(1.0), ticks::step(y.to, 6.0));

    let mut picture = canvas(bottom + NUMBERS);
    let title = fit(&blocks.title, LARGE * 1.1, WIDTH - 2.0 * LEFT);
    let title = text(&title, (x.start + x.end) / 2.0, 22.0, LARGE, Anchor::Middle);
    picture.append(title.set("font-weight", "bold"));
    let legend_left = LEFT + (WIDTH - LEFT - RIGHT - legend.width()).max(0.0) / 2.0;
    picture.append(legend.draw(legend_left, TITLE));

    let mut plot = named("placement");
    frame.rows(&mut plot, y_step);
    let placed = Placed::new(&frame, &drawn, scale);
    placed.draw(&mut plot);
    if drawn.len() <= NAMED {
        placed.names(&mut plot);
    }
    limits::draw(&mut plot, &frame, &limits, scale);
    frame.y_numbers(&mut plot, y_step);
    frame.x_numbers(&mut plot, x_step);
    add(&mut plot, text_upwards(&format!("address ({unit})"), 20.0, bottom - PLOT / 2.0, MEDIUM));
    let time = fit(&blocks.time, MEDIUM, x.end - x.start);
    add(&mut plot, text(&time, (x.start + x.end) / 2.0, bottom + 44.0, MEDIUM, Anchor::Middle));
    add(&mut plot, border(x.start, top, x.end - x.start, PLOT));
    picture.append(plot);
    Ok(picture.to_string())
}

/// Limits to draw, the highest first.
fn limits_of(blocks: &Blocks) -> Vec<Limit> {
    let held = blocks.size.max(blocks.load);
    let budget = blocks.budget.and_then(|bytes| Limit::new("budget", "2 4", bytes, held));
    let own = match blocks.size == blocks.load {
        true => [Limit::new("size = load", "none", held, held), None],
        false => [
            Limit::new("size", "none", blocks.size, held),
            Limit::new("load", LOAD_DASH, blocks.load, held),
        ],
    };
    let mut limits: Vec<Limit> = own.into_iter().flatten().chain(budget).collect();
    limits.sort_by_key(|limit| Reverse(limit.bytes));
    limits
}

/// Legend entry with the first three shades of a role, side by side.
fn entry(name: &str, fills: &[&str; SHADES]) -> Entry {
    let width = KEY / 3.0;
    let part = |(i, fill): (usize, &&str)| rect(i as f64 * width, -7.0, width, 14.0, fill);
    let parts = fills.iter().take(3).enumerate().map(part);
    let all = border(0.0, -7.0, KEY, 14.0);
    Entry::new(parts.fold(Group::new(), Group::add).add(all), name)
}

/// Blocks in pixels.
struct Placed<'a> {
    blocks: Vec<(&'a Block, Rect)>,
    /// Block -> index of its shade in the role's shades.
    shades: Vec<usize>,
    frame: Frame,
}

/// Rectangle in pixels. The upper edge has the smaller y.
#[derive(Clone, Copy, Debug)]
struct Rect {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Rect {
    fn least(&self) -> f64 {
        (self.right - self.left).min(self.bottom - self.top)
    }

    fn path(&self) -> String {
        let (left, top) = (px(self.left), px(self.top));
        format!("M{left} {top}H{}V{}H{left}z", px(self.right), px(self.bottom))
    }
}

impl<'a> Placed<'a> {
    fn new(frame: &Frame, blocks: &[&'a Block], scale: f64) -> Self {
        let at = |block: &Block| Rect {
            left: frame.x.at(block.time.start as f64),
            right: frame.x.at(block.time.end as f64),
            top: frame.y.at((block.offset as f64 + block.size as f64) / scale),
            bottom: frame.y.at(block.offset as f64 / scale),
        };
        Self {
            blocks: blocks.iter().map(|&block| (block, at(block))).collect(),
            shades: shades(blocks),
            frame: *frame,
        }
    }

    /// Draws thin blocks first and larger blocks on top, so that thin blocks hide no larger block.
    fn draw(&self, group: &mut Group) {
        let mut cells = Cells::new(&self.frame, LOOKS.len());
        for (look, (kind, ..)) in LOOKS.iter().enumerate() {
            let of_kind = self.blocks.iter().filter(|(block, _)| block.kind == *kind);
            of_kind.filter(|(_, at)| at.least() < THIN).for_each(|(_, at)| cells.fill(at, look));
        }
        for (look, path) in
            cells.paths().into_iter().enumerate().filter(|(_, path)| !path.is_empty())
        {
            add(group, area(path, LOOKS[look].2[1]).set("shape-rendering", "crispEdges"));
        }
        for (kind, _, fills) in &LOOKS {
            for (shade, fill) in fills.iter().enumerate() {
                let of_shade = self.blocks.iter().zip(&self.shades);
                let of_shade = of_shade
                    .filter(|((block, _), its)| block.kind == *kind && **its == shade)
                    .map(|((_, at), _)| at);
                let path = |has_edge: bool| -> String {
                    let fits = |at: &&Rect| at.least() >= THIN && (at.least() >= EDGED) == has_edge;
                    of_shade.clone().filter(fits).map(Rect::path).collect()
                };
                let (plain, edged) = (path(false), path(true));
                if !plain.is_empty() {
                    add(group, area(plain, fill));
                }
                if !edged.is_empty() {
                    add(group, area(edged, fill).set("stroke", "#FFFFFF").set("stroke-width", 0.8));
                }
            }
        }
    }

    /// Draws the names of all blocks that are large enough for their names.
    fn names(&self, group: &mut Group) {
        for (block, at) in &self.blocks {
            let fits = text_width(&block.name, SMALL) + 6.0 <= at.right - at.left;
            if fits && at.bottom - at.top >= SMALL + 4.0 {
                let (x, y) = ((at.left + at.right) / 2.0, (at.top + at.bottom) / 2.0 + 5.0);
                let is_dark = matches!(block.kind, Some(Kind::Class(Class::Kept | Class::Updated)));
                let ink = if is_dark { "#FFFFFF" } else { INK };
                add(group, text(&block.name, x, y, SMALL, Anchor::Middle).set("fill", ink));
            }
        }
    }
}

fn area(path: String, fill: &str) -> Path {
    Path::new().set("d", path).set("fill", fill)
}

#[cfg(test)]
mod tests;
