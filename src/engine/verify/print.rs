//! Prints: records of a value's bits, kept while the value is evicted. A print shows whether the
//! recomputed value has the same bits, and if not, where it differs.
//!
//! A value of up to [`WHOLE`] elements is stored whole. A larger value is cut into chunks. Each
//! chunk has a hash, and two sums over its elements as numbers: the sum of `x`, and the sum of
//! `i * x`. An element `x` has the position `i` in the chunk.
//!
//! If one element of a chunk differs, the first sum gives the difference, and the second sum gives
//! the position of the element. To confirm the position, the old element is put back, and the hash
//! of the chunk is computed again. If several elements differ, only the chunk that contains them is
//! known. The first element of each chunk is also stored, so if that element differs, its position
//! and bits are known.

use rayon::prelude::*;
use rustc_hash::FxHasher;
use std::hash::Hasher as _;
use std::ops::Range;

/// Number of elements up to which a value is kept whole.
const WHOLE: usize = 64;

/// Minimum number of elements of a chunk; `MOST_IN_CHUNK` is the maximum.
const CHUNK: usize = 256;
const MOST_IN_CHUNK: usize = 1 << 16;

/// Number of chunks of a value, unless a chunk would have more than [`MOST_IN_CHUNK`] elements.
const CHUNKS: usize = 256;

/// Smallest number of bytes that several threads hash together.
const SHARED: usize = 1 << 18;

/// Print of a value. See the [module](self) documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Print {
    Whole(Box<[u8]>),
    Chunks(Box<[Chunk]>),
}

/// Print of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    hash: u64,
    sum: u64,
    weighted: u64,
    first: u64,
}

/// First difference between two values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Range of elements that includes the first element that differs; exactly that element if
    /// `bits` are known.
    pub elements: Range<usize>,
    /// Bits of the element in the evicted value and in the recomputed value.
    pub bits: Option<[u64; 2]>,
    /// Whether further elements are known to differ.
    pub more: bool,
}

impl Print {
    /// Makes a print of elements of `width` bytes each: 1, 2, 4 or 8.
    pub fn of(bytes: &[u8], width: usize) -> Self {
        let elements = bytes.len() / width;
        if elements <= WHOLE {
            return Self::Whole(bytes.into());
        }
        let chunk = width * elements_of_chunk(elements);
        // Hash in parallel only on a thread of a pool, so that only the threads of that pool share
        // the work.
        let is_shared = bytes.len() >= SHARED && rayon::current_thread_index().is_some();
        Self::Chunks(match is_shared {
            true => bytes.par_chunks(chunk).map(|bytes| Chunk::of(bytes, width)).collect(),
            false => bytes.chunks(chunk).map(|bytes| Chunk::of(bytes, width)).collect(),
        })
    }

    /// Bytes that the print takes on the heap.
    pub fn heap_bytes(&self) -> u64 {
        (match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Chunks(chunks) => size_of_val(&**chunks),
        }) as u64
    }

    /// First difference between the printed value and the value `now`. `None` if the bits are
    /// equal. Both values must have the same number of elements.
    pub fn difference(&self, now: &[u8], width: usize) -> Option<Difference> {
        let chunks = match self {
            Self::Whole(before) => return first_difference(before, now, width),
            Self::Chunks(chunks) => chunks,
        };
        let elements = elements_of_chunk(now.len() / width);
        let mut differing = chunks
            .iter()
            .zip(now.chunks(width * elements))
            .enumerate()
            .filter(|(_, (before, now))| Chunk::of(now, width) != **before);
        let (number, (before, now)) = differing.next()?;
        let start = number * elements;
        let others = differing.next().is_some();
        Some(match before.only_difference(now, width) {
            Some((at, was)) => Difference {
                elements: start + at..start + at + 1,
                bits: Some([was, element(now, width, at)]),
                more: others,
            },
            // The print has the first element of the chunk, so a difference in that element is
            // known exactly.
            None if before.first != element(now, width, 0) => Difference {
                elements: start..start + 1,
                bits: Some([before.first, element(now, width, 0)]),
                more: true,
            },
            None => {
                Difference { elements: start..start + now.len() / width, bits: None, more: true }
            }
        })
    }
}

impl Chunk {
    fn of(bytes: &[u8], width: usize) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        let (sum, weighted) = match width {
            1 => sums::<1>(bytes, |[x]| x.into()),
            2 => sums::<2>(bytes, |x| u16::from_le_bytes(x).into()),
            4 => sums::<4>(bytes, |x| u32::from_le_bytes(x).into()),
            _ => sums::<8>(bytes, u64::from_le_bytes),
        };
        Self { hash: hasher.finish(), sum, weighted, first: element(bytes, width, 0) }
    }

    /// Position and old bits of the only element that differs; `None` if not exactly one element
    /// differs.
    fn only_difference(&self, now: &[u8], width: usize) -> Option<(usize, u64)> {
        let is = Self::of(now, width);
        let by = is.sum.wrapping_sub(self.sum);
        let weighted = is.weighted.wrapping_sub(self.weighted);
        let mut before = now.to_vec();
        (0..now.len() / width).find_map(|at| {
            if by == 0 || (at as u64).wrapping_mul(by) != weighted {
                return None;
            }
            let was = element(now, width, at).wrapping_sub(by);
            let part = at * width..(at + 1) * width;
            let bytes = was.to_le_bytes();
            before[part.clone()].copy_from_slice(&bytes[..width]);
            let same =
                bytes[width..].iter().all(|&byte| byte == 0) && Self::of(&before, width) == *self;
            before[part.clone()].copy_from_slice(&now[part]);
            same.then_some((at, was))
        })
    }
}

/// Number of elements of a chunk, in a value of `elements` elements.
fn elements_of_chunk(elements: usize) -> usize {
    elements.div_ceil(CHUNKS).next_power_of_two().clamp(CHUNK, MOST_IN_CHUNK)
}

/// Sum of all elements, and sum of each element times its position.
fn sums<const WIDTH: usize>(bytes: &[u8], number: impl Fn([u8; WIDTH]) -> u64) -> (u64, u64) {
    let (elements, _) = bytes.as_chunks::<WIDTH>();
    let numbers = elements.iter().map(|&bytes| number(bytes));
    (0u64..).zip(numbers).fold((0, 0), |(sum, weighted), (at, x)| {
        (u64::wrapping_add(sum, x), u64::wrapping_add(weighted, at.wrapping_mul(x)))
    })
}

/// Bits of element number `at`.
fn element(bytes: &[u8], width: usize, at: usize) -> u64 {
    let mut all = [0; 8];
    all[..width].copy_from_slice(&bytes[at * width..(at + 1) * width]);
    u64::from_le_bytes(all)
}

fn first_difference(before: &[u8], now: &[u8], width: usize) -> Option<Difference> {
    let pairs = before.chunks(width).zip(now.chunks(width)).enumerate();
    let mut differing = pairs.filter(|(_, (before, now))| before != now).map(|(at, _)| at);
    let at = differing.next()?;
    Some(Difference {
        elements: at..at + 1,
        bits: Some([before, now].map(|bytes| element(bytes, width, at))),
        more: differing.next().is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_rng::SplitMix64;

    const COUNTS: [usize; 12] = [0, 1, 2, 63, 64, 65, 255, 256, 257, 1000, 65_537, 200_001];

    fn some(elements: usize, width: usize) -> Vec<u8> {
        let mut rng = SplitMix64::new(elements as u64);
        (0..elements * width).map(|_| rng.next() as u8).collect()
    }

    #[test]
    fn equal_bits_never_differ() {
        for width in [1, 2, 4, 8] {
            for elements in COUNTS {
                let bytes = some(elements, width);
                let print = Print::of(&bytes, width);
                assert_eq!(print, Print::of(&bytes.clone(), width));
                assert_eq!(print.difference(&bytes, width), None);
            }
        }
    }

    /// A single flipped bit, at any position, is found: its element, and the element's old and new
    /// bits.
    #[test]
    fn one_element_that_differs_is_found() {
        for width in [1, 2, 4, 8] {
            for elements in COUNTS.into_iter().filter(|&n| n > 0) {
                let before = some(elements, width);
                let print = Print::of(&before, width);
                let places = [0, 1, elements / 3, elements / 2, elements - 1];
                for at in places.into_iter().filter(|&at| at < elements) {
                    for bit in [0, 3, 8 * width - 1] {
                        let mut now = before.clone();
                        now[at * width + bit / 8] ^= 1 << (bit % 8);
                        assert_ne!(Print::of(&now, width), print);
                        let bits = [&before, &now].map(|bytes| element(bytes, width, at));
                        let found = print.difference(&now, width).unwrap();
                        let one =
                            Difference { elements: at..at + 1, bits: Some(bits), more: false };
                        assert_eq!(found, one, "{width} {elements} {at} {bit}");
                    }
                }
            }
        }
    }

    /// The first difference is always among the reported elements.
    #[test]
    fn of_several_the_first_is_among_those_named() {
        let mut rng = SplitMix64::new(7);
        for width in [1, 2, 4, 8] {
            for elements in COUNTS.into_iter().filter(|&n| n > 2) {
                for several in [2, 3, 10] {
                    let before = some(elements, width);
                    let mut now = before.clone();
                    for _ in 0..several {
                        let at = rng.next() as usize % elements;
                        now[at * width] ^= 0x55;
                    }
                    let first = (0..elements)
                        .find(|&at| element(&before, width, at) != element(&now, width, at));
                    let found = Print::of(&before, width).difference(&now, width);
                    match (first, found) {
                        (Some(first), Some(found)) => {
                            assert!(found.elements.contains(&first), "{first}: {found:?}");
                        }
                        (None, None) => {}
                        other => panic!("{other:?}"),
                    }
                }
                let before = some(elements, width);
                let all: Vec<u8> = before.iter().map(|byte| !byte).collect();
                let found = Print::of(&before, width).difference(&all, width).unwrap();
                assert_eq!((found.elements, found.more), (0..1, true), "{width} {elements}");
            }
        }
    }

    /// Two exchanged elements leave the sum unchanged, and three changed elements can leave both
    /// sums unchanged.
    #[test]
    fn sums_alone_do_not_hide_a_difference() {
        let before: Vec<u8> = (0..1000u32).flat_map(|x| (x + 10).to_le_bytes()).collect();
        let print = Print::of(&before, 4);
        for (changes, first) in [
            (&[(300, 1), (301, -1)][..], 300),
            (&[(512, 1), (513, -2), (514, 1)], 512),
            (&[(600, 1), (601, -2), (602, 1)], 600),
        ] {
            let mut now = before.clone();
            for &(at, by) in changes {
                let x = (at as u32 + 10).wrapping_add_signed(by);
                now[4 * at..4 * at + 4].copy_from_slice(&x.to_le_bytes());
            }
            let found = print.difference(&now, 4).unwrap();
            assert!(found.elements.contains(&first) && found.more, "{found:?}");
        }
    }

    #[test]
    fn a_print_is_small_beside_what_it_is_of() {
        for width in [1, 2, 4, 8] {
            for elements in [65, 256, 1000, 100_000, 5_000_000] {
                let bytes = elements as u64 * width as u64;
                let print = Print::of(&vec![0; bytes as usize], width).heap_bytes();
                assert!(print <= 32 + bytes * 32 / (256 * width as u64), "{print} of {bytes}");
                assert!(print <= 8192, "{print} of {bytes}");
            }
        }
    }
}
