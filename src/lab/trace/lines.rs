//! Lines of text with their numbers.

use super::TraceProblem;
use std::io::{BufRead, Read as _};

/// Limit on the length of a line. Every line of a trace is much shorter, even the line of an update
/// of all parameters. Without the limit, a file without line ends could fill the memory.
pub(super) const MAX_LINE_BYTES: usize = 16 << 20;

/// Limit on the number of successive blank bytes.
pub(super) const MAX_BLANK_BYTES: usize = 1 << 20;
/// Limit on the number of successive bytes that belong to no instruction.
pub(super) const MAX_IDLE_BYTES: usize = 32 << 20;

/// Limit on the number of lines. A program of more lines takes gigabytes of memory. A longer trace
/// has thousands of steps, and a replay needs only a few of them.
pub(super) const MAX_LINES: u64 = 1 << 23;

/// Text read line by line. One line is in memory at a time.
pub(super) struct Lines<R> {
    reader: R,
    text: String,
    number: u64,
    /// Bytes read since the last line that was an instruction.
    idle: usize,
}

impl<R: BufRead> Lines<R> {
    pub const fn new(reader: R) -> Self {
        Self { reader, text: String::new(), number: 0, idle: 0 }
    }

    /// Marks the current line as an instruction.
    pub const fn count(&mut self) {
        self.idle = 0;
    }

    /// Reads the next line that is not blank. Returns false at the end of the text.
    pub fn advance(&mut self) -> Result<bool, TraceProblem> {
        let mut blank = 0;
        loop {
            let mut bytes = std::mem::take(&mut self.text).into_bytes();
            bytes.clear();
            // The number is incremented first, so that a read error names the line that is being
            // read.
            self.number += 1;
            if self.number > MAX_LINES {
                return Err(TraceProblem::TooManyLines);
            }
            let mut limited = self.reader.by_ref().take(MAX_LINE_BYTES as u64 + 1);
            let read = limited.read_until(b'\n', &mut bytes).map_err(TraceProblem::Read)?;
            if read == 0 {
                self.number -= 1;
                return Ok(false);
            }
            if bytes.len() > MAX_LINE_BYTES && bytes.last() != Some(&b'\n') {
                return Err(TraceProblem::LineTooLong);
            }
            blank += bytes.len();
            self.idle += bytes.len();
            self.text = String::from_utf8(bytes).map_err(|error| TraceProblem::NotText {
                column: error.utf8_error().valid_up_to() + 1,
            })?;
            if self.idle > MAX_IDLE_BYTES {
                return Err(TraceProblem::Idle);
            }
            if !self.text.trim_ascii().is_empty() {
                return Ok(true);
            }
            if blank > MAX_BLANK_BYTES {
                return Err(TraceProblem::Blank);
            }
        }
    }

    /// Text of the current line, without trailing white space.
    pub fn text(&self) -> &str {
        self.text.trim_ascii_end()
    }

    /// Number of the current line, from 1; 0 before the first.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Makes the next error name the line `number`.
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
    fn blank_lines_without_end_are_an_error() {
        for (blank, per_line) in [(&b"\n"[..], 1), (b" \r\n", 3)] {
            let mut lines = Lines::new(BufReader::new(Endless(blank)));
            assert!(matches!(lines.advance(), Err(TraceProblem::Blank)));
            assert_eq!(lines.number(), (MAX_BLANK_BYTES / per_line) as u64 + 1);
        }
        // Each of the two lines follows exactly the allowed number of blank bytes.
        let text = format!("{0}a\n{0}b", "\n".repeat(MAX_BLANK_BYTES));
        let mut lines = Lines::new(text.as_bytes());
        assert!(lines.advance().unwrap() && lines.advance().unwrap());
        assert_eq!(lines.text(), "b");
    }

    #[test]
    fn lines_without_end_are_an_error_at_last() {
        let mut lines = Lines::new(BufReader::with_capacity(1 << 16, Endless(b"{}\n")));
        for _ in 0..MAX_LINES {
            assert!(lines.advance().unwrap());
            lines.count();
        }
        assert!(matches!(lines.advance(), Err(TraceProblem::TooManyLines)));
    }

    #[test]
    fn lines_that_do_not_count_are_an_error_at_last() {
        let line = [&[b'x'; 4095][..], b"\n"].concat();
        let mut lines = Lines::new(BufReader::new(Endless(&line)));
        let most = MAX_IDLE_BYTES / line.len();
        (0..most).for_each(|_| assert!(lines.advance().unwrap()));
        lines.count();
        (0..most).for_each(|_| assert!(lines.advance().unwrap()));
        assert!(matches!(lines.advance(), Err(TraceProblem::Idle)));
    }

    /// Reader that repeats the same bytes for ever.
    struct Endless<'a>(&'a [u8]);

    impl std::io::Read for Endless<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let whole = to.len() / self.0.len() * self.0.len();
            to[..whole]
                .chunks_exact_mut(self.0.len())
                .for_each(|piece| piece.copy_from_slice(self.0));
            Ok(whole)
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_found_with_their_column() {
        let mut lines = Lines::new(&b"ab\xffc\n"[..]);
        assert!(matches!(lines.advance(), Err(TraceProblem::NotText { column: 3 })));
    }
}
