//! Line breaks for text on a terminal.

use std::borrow::Cow;
use std::io::{stderr, stdout};
use terminal_size::terminal_size_of;
use textwrap::{Options, WordSplitter, fill};

/// Destination of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Number of characters in a line; `None` if the stream is no terminal.
    pub fn width(self) -> Option<usize> {
        let size = match self {
            Self::Stdout => terminal_size_of(stdout()),
            Self::Stderr => terminal_size_of(stderr()),
        };
        size.map(|(width, _)| width.0.into())
    }

    /// The text, with long lines broken if the stream is a terminal.
    pub fn fit(self, text: &str) -> Cow<'_, str> {
        self.width().map_or(text.into(), |width| wrapped(text, width).into())
    }
}

/// Breaks long lines at spaces. A continuation line has the indent of the broken line, plus two
/// spaces.
fn wrapped(text: &str, width: usize) -> String {
    let wrap = |line: &str| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let more = format!("{indent}  ");
        let options = Options::new(width).subsequent_indent(&more).break_words(false);
        fill(line, options.word_splitter(WordSplitter::NoHyphenation))
    };
    text.split('\n').map(wrap).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_lines_are_broken_and_words_stay_whole() {
        let text = "a   table\n\nwarning: raise --eviction-threshold to 56%, or drop it\n  memory      peak 1 of 2; more\n";
        let expected = "a   table\n\nwarning: raise\n  --eviction-threshold\n  to 56%, or drop it\n  memory      peak 1\n    of 2; more\n";
        assert_eq!(wrapped(text, 20), expected);
        assert_eq!(wrapped(text, 80), text);
        // Escape sequences for color have no width.
        let colored = "\u{1b}[1m\u{1b}[33mwarning:\u{1b}[0m twenty chars";
        assert_eq!(wrapped(colored, 21), colored);
        for width in 0..60 {
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&wrapped(text, width)), words(text));
        }
    }
}
