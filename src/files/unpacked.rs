use super::members::{Members, is_packed};
use std::io::{self, BufRead, BufReader, Cursor, Read};

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
/// bytes read so far. Without a limit, a small packed file could unpack to more than fits in
/// memory.
///
/// ```
/// use remat::unstable::files::unpacked;
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
    // Do not use `fill_buf`, which may return a single byte.
    file.by_ref().take(2).read_to_end(&mut start)?;
    let is_plain = !is_packed(&start);
    let whole = Cursor::new(start).chain(file);
    if is_plain {
        return Ok(Box::new(whole));
    }
    let limited = Limited { text: Members::new(whole), out: 0 };
    Ok(Box::new(BufReader::with_capacity(1 << 16, limited)))
}

/// Reader that fails once more bytes are unpacked than `FREE_BYTES` and `MOST_FROM_ONE` allow.
struct Limited<R> {
    text: Members<R>,
    out: u64,
}

impl<R: BufRead> Read for Limited<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.text.read(to)?;
        self.out += count as u64;
        let packed = self.text.packed();
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
        // A gzip member that unpacks to a mebibyte of newlines. The test file repeats the member.
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
    fn bytes_behind_the_end_are_told_from_a_file_that_was_cut_off() {
        for text in [&b""[..], b"a", &[b'x'; 1 << 17]] {
            for members in [1, 2, 9] {
                let whole = packed(text).repeat(members);
                assert_eq!(length(&whole).unwrap(), (text.len() * members) as u64);
                for behind in [&b"\0"[..], b"x", b"{}\n", &[7; 1 << 17]] {
                    let told = length(&[&whole[..], behind].concat()).unwrap_err().to_string();
                    let ends = format!("ends after {} bytes, but other bytes follow", whole.len());
                    assert!(told.contains(&ends), "{told}");
                }
                for cut in [1, 4, 8] {
                    let error = length(&whole[..whole.len() - cut]).unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
                }
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
