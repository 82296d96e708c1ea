//! Lines of text with their numbers.

use super::TraceProblem;
use std::io::{BufRead, Read as _};

/// No line of a trace is nearly that long, and a file without line ends must not fill the memory.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// A text line by line. Holds one line at a time.
pub(super) struct Lines<R> {
    reader: R,
    text: String,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub const fn new(reader: R) -> Self {
        Self { reader, text: String::new(), number: 0 }
    }

    /// Goes on to the next line that is not blank. False at the end of the text.
    pub fn advance(&mut self) -> Result<bool, TraceProblem> {
        loop {
            let mut bytes = std::mem::take(&mut self.text).into_bytes();
            bytes.clear();
            // The line that is being read is the one an error is about.
            self.number += 1;
            let mut limited = self.reader.by_ref().take(MAX_LINE_BYTES as u64 + 1);
            let read = limited.read_until(b'\n', &mut bytes).map_err(TraceProblem::Read)?;
            if read == 0 {
                self.number -= 1;
                return Ok(false);
            }
            if bytes.len() > MAX_LINE_BYTES && bytes.last() != Some(&b'\n') {
                return Err(TraceProblem::LineTooLong);
            }
            self.text = String::from_utf8(bytes).map_err(|error| TraceProblem::NotText {
                column: error.utf8_error().valid_up_to() + 1,
            })?;
            if !self.text.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// The line at hand.
    pub fn text(&self) -> &str {
        self.text.trim_ascii_end()
    }

    /// Number of the line at hand, from 1; 0 before the first.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// An error that comes up now is about that line, and not about the one at hand.
    pub const fn blame(&mut self, number: u64) {
        self.number = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    #[test]
    fn blank_lines_count_and_are_left_out() {
        let mut lines = Lines::new("\n  \r\na\r\n\nb".as_bytes());
        assert!(lines.advance().unwrap());
        assert_eq!((lines.text(), lines.number()), ("a", 3));
        assert!(lines.advance().unwrap());
        assert_eq!((lines.text(), lines.number()), ("b", 5));
        assert!(!lines.advance().unwrap());
        assert_eq!(lines.number(), 5);
    }

    #[test]
    fn a_line_without_end_is_an_error_and_not_a_full_memory() {
        let endless = "\n".as_bytes().chain(std::io::repeat(b'x'));
        let mut lines = Lines::new(BufReader::new(endless));
        assert!(matches!(lines.advance(), Err(TraceProblem::LineTooLong)));
        assert_eq!(lines.number(), 2);
    }

    #[test]
    fn what_is_not_text_is_found_in_its_column() {
        let mut lines = Lines::new(&b"ab\xffc\n"[..]);
        assert!(matches!(lines.advance(), Err(TraceProblem::NotText { column: 3 })));
    }
}
