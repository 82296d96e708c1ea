use flate2::bufread::MultiGzDecoder;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

/// Number of unpacked bytes that every packed file may have, whatever its size.
const FREE_BYTES: u64 = 64 << 20;
/// Limit on the ratio of unpacked to packed bytes, for files with more than `FREE_BYTES` unpacked
/// bytes. Recordings and logs unpack to 10 to 40 times their size. A gzip file can unpack to 1,032
/// times its size.
const MOST_FROM_ONE: u64 = 100;

/// Reader of a file's text. A file packed by gzip is unpacked. The first two bytes of the file
/// decide whether it is packed; the name of the file does not matter.
///
/// Reading fails once a packed file has given more than 64 MiB and more than 100 times the packed
/// bytes read so far. Without such a limit, a small packed file could unpack to more than fits in
/// memory.
///
/// ```
/// use remat::unstable::trace::unpacked;
/// use std::io::Read as _;
///
/// let mut text = String::new();
/// unpacked(&b"id,lower,upper,size"[..])?.read_to_string(&mut text)?;
/// assert_eq!(text, "id,lower,upper,size");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If the first bytes cannot be read.
pub fn unpacked<'a>(mut file: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut start = Vec::with_capacity(2);
    // `fill_buf` would not do here, because it may return a single byte.
    file.by_ref().take(2).read_to_end(&mut start)?;
    let is_packed = start == [0x1f, 0x8b];
    let whole = Cursor::new(start).chain(file);
    if !is_packed {
        return Ok(Box::new(whole));
    }
    let packed = Counted { read: whole, bytes: Rc::default() };
    let bytes = Rc::clone(&packed.bytes);
    let text = MultiGzDecoder::new(packed);
    Ok(Box::new(BufReader::with_capacity(1 << 16, Limited { text, packed: bytes, out: 0 })))
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

/// Reader that fails once more bytes are unpacked than `FREE_BYTES` and `MOST_FROM_ONE` allow.
struct Limited<R> {
    text: R,
    /// Packed bytes read so far.
    packed: Rc<Cell<u64>>,
    out: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.text.read(to)?;
        self.out += count as u64;
        let packed = self.packed.get();
        if self.out > FREE_BYTES.max(packed.saturating_mul(MOST_FROM_ONE)) {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!(
                    "{} bytes unpack from the first {packed} bytes of the file, but more than {FREE_BYTES} may be at \
                     most {MOST_FROM_ONE} times the packed bytes; if the file is as intended, unpack it with gunzip",
                    self.out
                ),
            ));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn length(packed: &[u8]) -> io::Result<u64> {
        io::copy(&mut unpacked(packed)?, &mut io::sink())
    }

    #[test]
    fn a_little_that_unpacks_to_a_lot_is_an_error() {
        // A gzip member that unpacks to a mebibyte of newlines. The file is this member, repeated.
        let nothing = packed(&vec![b'\n'; 1 << 20]);
        for (times, is_read) in [(1, true), (64, true), (65, false), (4096, false)] {
            let found = length(&nothing.repeat(times));
            assert_eq!(found.is_ok(), is_read, "{times}: {found:?}");
            if let Err(error) = found {
                let text = error.to_string();
                assert!(text.contains("67108864") && text.contains("gunzip"), "{text}");
            }
        }
    }

    #[test]
    fn a_lot_that_is_packed_as_usual_is_read() {
        // One thirty-second of each member consists of random bytes, which gzip cannot compress.
        let mut rng = remat_rng::SplitMix64::new(3);
        let mut bytes = vec![b'x'; 1 << 20];
        bytes[..1 << 15].iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
        let member = packed(&bytes);
        assert!((1 << 20) / member.len() < 50);
        assert_eq!(length(&member.repeat(80)).unwrap(), 80 << 20);
    }

    #[test]
    fn plain_text_is_read_unchanged() {
        for text in ["", "a", "ab", "\u{1f}", "\u{1f}\u{8b}x"] {
            let mut found = String::new();
            unpacked(text.as_bytes()).unwrap().read_to_string(&mut found).unwrap();
            assert_eq!(found, text);
        }
    }
}
