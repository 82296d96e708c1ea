//! Basic marks of pictures.

use super::style::{FRAME, INK};
use svg::node::element::{Group, Path, Rectangle, Text, Title};
use svg::{Document, Node};

/// Width of each picture in px.
pub(super) const WIDTH: f64 = 960.0;
/// Sizes of text in px. In a picture printed 17 cm wide, 14 px are 7 points.
pub(super) const SMALL: f64 = 14.0;
pub(super) const MEDIUM: f64 = 15.0;
pub(super) const LARGE: f64 = 16.0;

/// Text of a number of pixels for an attribute, rounded to tenths.
pub(super) fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// An empty white picture.
pub(super) fn canvas(height: f64) -> Document {
    Document::new()
        .set("viewBox", (0, 0, WIDTH, px(height)))
        .set("width", WIDTH)
        .set("height", px(height))
        .set("font-family", "sans-serif")
        .set("fill", INK)
        .add(rect(0.0, 0.0, WIDTH, height, "#FFFFFF"))
}

pub(super) fn rect(x: f64, y: f64, width: f64, height: f64, fill: &str) -> Rectangle {
    Rectangle::new()
        .set("x", px(x))
        .set("y", px(y))
        .set("width", px(width))
        .set("height", px(height))
        .set("fill", fill)
}

/// A stroke along path data.
pub(super) fn stroke(data: impl Into<String>, color: &str, width: f64) -> Path {
    Path::new()
        .set("d", data.into())
        .set("fill", "none")
        .set("stroke", color)
        .set("stroke-width", width)
        .set("stroke-linejoin", "round")
}

/// The border of a plot.
pub(super) fn border(x: f64, y: f64, width: f64, height: f64) -> Rectangle {
    rect(x, y, width, height, "none").set("stroke", FRAME).set("stroke-width", 1)
}

/// Alignment of text relative to the position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Line of text with the baseline at `y`.
pub(super) fn text(content: &str, x: f64, y: f64, size: f64, anchor: Anchor) -> Text {
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    Text::new(printable(content))
        .set("x", px(x))
        .set("y", px(y))
        .set("font-size", size)
        .set("text-anchor", anchor)
}

/// Text reading upwards, centred at the position.
pub(super) fn text_upwards(content: &str, x: f64, y: f64, size: f64) -> Text {
    text(content, 0.0, 0.0, size, Anchor::Middle)
        .set("transform", format!("translate({} {}) rotate(-90)", px(x), px(y)))
}

/// A group with a name. Viewers show the name under the mouse pointer.
pub(super) fn named(name: &str) -> Group {
    Group::new().add(Title::new(printable(name)))
}

/// Adds a mark to a group.
pub(super) fn add(to: &mut impl Node, mark: impl Into<Box<dyn Node>>) {
    to.append(mark);
}

/// Text that XML can hold: control characters, which XML cannot escape, are replaced. The crate
/// `svg` escapes all other characters.
fn printable(content: &str) -> String {
    content
        .chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Estimate of the width of text in px. The font is unknown, so the estimate is usually too large.
pub(super) fn text_width(content: &str, size: f64) -> f64 {
    let ems: f64 = content
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.33,
            'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '-' | '/' => 0.42,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.96,
            'A'..='Z' => 0.7,
            c if c.is_ascii() => 0.62,
            c if c < '\u{2e80}' => 0.7,
            _ => 1.05,
        })
        .sum();
    ems * size
}

/// The text, cut to `width`. If the text is too long, its beginning with an ellipsis.
pub(super) fn fit(content: &str, size: f64, width: f64) -> String {
    if text_width(content, size) <= width {
        return content.to_owned();
    }
    let room = width - size;
    let mut short = String::new();
    let mut used = 0.0;
    for c in content.chars() {
        used += text_width(c.encode_utf8(&mut [0; 4]), size);
        if used > room {
            break;
        }
        short.push(c);
    }
    short.truncate(short.trim_end().len());
    short.push('\u{2026}');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_made_safe() {
        let svg = text("a<b>&c\u{0}\nd\u{1b}", 0.0, 0.0, 14.0, Anchor::Start).to_string();
        assert!(svg.contains("a&lt;b&gt;&amp;c\u{fffd} d\u{fffd}"), "{svg}");
    }

    #[test]
    fn long_text_is_cut() {
        let cut = fit(&"long ".repeat(100), 14.0, 100.0);
        assert!(cut.ends_with("g\u{2026}") || cut.ends_with('\u{2026}'));
        assert!(text_width(&cut, 14.0) <= 100.0);
        assert_eq!(fit("short", 14.0, 100.0), "short");
    }
}
