//! Files packed by gzip.

use flate2::bufread::GzDecoder;
use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

/// First bytes of every member of a gzip file.
const START: [u8; 2] = [0x1f, 0x8b];

/// Whether a file that begins with `start` is packed by gzip.
pub(crate) fn is_packed(start: &[u8]) -> bool {
    start.starts_with(&START)
}

/// Unpacks a gzip file. A gzip file has one member or several, one after the other.
pub(crate) struct Members<R> {
    /// The current member; `None` after the last.
    member: Option<GzDecoder<Counted<R>>>,
    /// Packed bytes read so far.
    packed: Rc<Cell<u64>>,
}

impl<R: BufRead> Members<R> {
    pub fn new(file: R) -> Self {
        let counted = Counted { read: file, bytes: Rc::default() };
        let packed = Rc::clone(&counted.bytes);
        Self { member: Some(GzDecoder::new(counted)), packed }
    }

    /// Number of packed bytes read so far.
    pub fn packed(&self) -> u64 {
        self.packed.get()
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(to)?;
            if count > 0 || to.is_empty() {
                return Ok(count);
            }
            let mut rest = self.member.take().map(GzDecoder::into_inner).expect("it was just read");
            match rest.fill_buf()?.first() {
                None => {}
                Some(first) if *first == START[0] => self.member = Some(GzDecoder::new(rest)),
                Some(_) => {
                    let message = format!(
                        "the compressed data ends after {} bytes, but other bytes follow; remove them, or copy the \
                         file again",
                        self.packed()
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
            }
        }
        Ok(0)
    }
}

/// Reader that counts the bytes read from it.
struct Counted<R> {
    read: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.read.read(to)?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.read.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.bytes.set(self.bytes.get() + count as u64);
        self.read.consume(count);
    }
}
