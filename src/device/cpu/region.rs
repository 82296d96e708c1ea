//! Memory of the device: one range of bytes, from which the device lends disjoint pieces to
//! kernels.
//!
//! The only unsafe code of this module gives memory back to the system. Making an anonymous map is
//! safe, and pieces are split off in address order without unsafe code.

use crate::device::DeviceError;
use crate::hint::cold;
use memmap2::{MmapMut, MmapOptions};
use smallvec::SmallVec;
use std::ops::Range;

/// Unit in which memory is lent: 4 bytes. Kernels get the lent words as slices of the tensor's
/// element type.
pub(super) type Word = u32;

/// Bytes of a word. Every lent range starts and ends at a multiple of this number.
pub(super) const WORD: u64 = size_of::<Word>() as u64;

/// Bytes of a large page of the system. Memory is given back to the system in whole large pages.
const PAGE: u64 = 2 << 20;

/// Bytes at offsets `0..len`, which are zero until they are written. A page takes physical memory
/// only after it is first accessed.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// `None` if the region has no bytes.
    map: Option<MmapMut>,
}

/// Pieces that may be read.
pub(super) type Shared<'a> = SmallVec<[&'a [Word]; 6]>;
/// Pieces that may be written.
pub(super) type Exclusive<'a> = SmallVec<[&'a mut [Word]; 6]>;

/// A range of words to lend, the index of the range in the result, and whether the range may be
/// written.
#[derive(Clone, Copy)]
struct Loan {
    start: usize,
    end: usize,
    slot: usize,
    exclusive: bool,
}

impl Region {
    /// Reserves `bytes` bytes of address space.
    pub(super) fn new(bytes: u64) -> Result<Self, DeviceError> {
        if bytes == 0 {
            return Ok(Self::default());
        }
        let refused = |e: &dyn std::fmt::Display| {
            DeviceError::new(format!("cannot reserve {bytes} bytes: {e}"))
        };
        let len = usize::try_from(bytes).map_err(|e| refused(&e))?;
        let map =
            MmapOptions::new().len(len).no_reserve_swap().map_anon().map_err(|e| refused(&e))?;
        // Request large pages, so that the first step has fewer page faults. The request is a hint,
        // so an error is ignored.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map: Some(map) })
    }

    /// Number of bytes.
    pub(super) fn len(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.len() as u64)
    }

    /// Allows the system to use the memory of the bytes in `range` for other purposes until the
    /// bytes are written again. Until the next write, the contents of the bytes are undefined. The
    /// system may ignore the request.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        #[cfg(unix)]
        if let Some(map) = &mut self.map {
            // Only whole large pages can be given back, so round the range inwards.
            let start = range.start.next_multiple_of(PAGE);
            let end = range.end.min(map.len() as u64) / PAGE * PAGE;
            if start < end {
                let (start, len) = (start as usize, (end - start) as usize);
                // SAFETY: the map is private and anonymous, so a page that is accessed again
                // contains zeros or its old contents. Any bytes are valid words. `&mut self`
                // guarantees that no slice of the map is in use.
                #[allow(unsafe_code)]
                let _ = unsafe {
                    map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len)
                };
            }
        }
    }

    /// All bytes of the map.
    fn bytes(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }

    /// Lends one range, for reading and writing.
    pub(super) fn one(&mut self, range: Range<u64>) -> Result<&mut [Word], DeviceError> {
        let (_, mut exclusive) = self.lend(std::iter::empty(), std::iter::once(Ok(range)))?;
        Ok(exclusive.pop().unwrap_or_default())
    }

    /// Copies `bytes` bytes within the region; the ranges may overlap.
    pub(super) fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        let all = self.bytes();
        let range = |start: u64| bounded(all.len(), &(start..start.saturating_add(bytes)));
        let (source, target) = (range(from)?, range(to)?);
        all.copy_within(source, target.start);
        Ok(())
    }

    /// Lends the `shared` ranges of bytes for reading and the `exclusive` ranges for writing.
    /// Shared ranges may overlap each other. An exclusive range must not overlap any other range.
    /// Empty ranges overlap no range. Fails with the first range that is an error.
    pub(super) fn lend(
        &mut self,
        shared: impl Iterator<Item = Result<Range<u64>, DeviceError>>,
        exclusive: impl Iterator<Item = Result<Range<u64>, DeviceError>>,
    ) -> Result<(Shared<'_>, Exclusive<'_>), DeviceError> {
        let bytes = self.bytes();
        let reserved = bytes.len();
        // If the last word of the region is not complete, the bytes of this word cannot be lent.
        let whole = reserved - reserved % WORD as usize;
        let mut rest: &mut [Word] = match whole {
            0 => &mut [],
            // The map starts at a page, so its bytes are aligned for words.
            _ => bytemuck::cast_slice_mut(&mut bytes[..whole]),
        };
        let mut loans = SmallVec::<[Loan; 12]>::new();
        let (mut read, mut write) = (Shared::new(), Exclusive::new());
        for range in shared {
            if let Some(loan) = loan(reserved, &range?, read.len(), false)? {
                loans.push(loan);
            }
            read.push(&[]);
        }
        for range in exclusive {
            if let Some(loan) = loan(reserved, &range?, write.len(), true)? {
                loans.push(loan);
            }
            write.push(&mut []);
        }
        loans.sort_unstable_by_key(|loan| loan.start);

        // Split the region from front to back, one group of overlapping loans after another.
        let mut cut = 0; // offset at which `rest` starts, in words
        let mut loans = &loans[..];
        while let Some(first) = loans.first() {
            // A group of loans, in which each loan after the first overlaps an earlier loan. A
            // group of more than one loan may contain shared loans only.
            let (mut end, mut count) = (first.end, 1);
            while let Some(next) = loans.get(count).filter(|next| next.start < end) {
                end = end.max(next.end);
                count += 1;
            }
            let (group, later) = loans.split_at(count);
            let (_, tail) = rest.split_at_mut(first.start - cut);
            let (piece, tail) = tail.split_at_mut(end - first.start);
            (rest, cut, loans) = (tail, end, later);
            match group {
                [only] if only.exclusive => write[only.slot] = piece,
                _ => {
                    if let Some(taken) = group.iter().find(|loan| loan.exclusive) {
                        let [start, end] = [taken.start, taken.end].map(|at| at as u64 * WORD);
                        return Err(DeviceError::new(format!(
                            "the op writes bytes {start}..{end}, but another operand uses them"
                        )));
                    }
                    let piece: &[Word] = piece;
                    for loan in group {
                        read[loan.slot] = &piece[loan.start - first.start..loan.end - first.start];
                    }
                }
            }
        }
        Ok((read, write))
    }
}

/// Loan of a range to operand `slot`, of `reserved` bytes; `None` if the range is empty.
#[inline(always)]
fn loan(
    reserved: usize,
    range: &Range<u64>,
    slot: usize,
    exclusive: bool,
) -> Result<Option<Loan>, DeviceError> {
    let Range { start, end } = bounded(reserved, range)?;
    if !range.start.is_multiple_of(WORD) || !range.end.is_multiple_of(WORD) {
        return Err(cold(DeviceError::new(format!(
            "range {range:?} is not of whole elements of {WORD} bytes"
        ))));
    }
    let words = |bytes: usize| bytes / WORD as usize;
    let loan = Loan { start: words(start), end: words(end), slot, exclusive };
    Ok((start < end).then_some(loan))
}

/// Converts `range` to indices; an error unless the range lies within `len` bytes.
#[inline]
fn bounded(len: usize, range: &Range<u64>) -> Result<Range<usize>, DeviceError> {
    if range.start > range.end || range.end > len as u64 {
        return Err(cold(DeviceError::new(format!(
            "range {range:?} is outside the {len} reserved bytes"
        ))));
    }
    Ok(range.start as usize..range.end as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lends ranges, none of which is an error.
    fn lend<'a>(
        region: &'a mut Region,
        shared: &[Range<u64>],
        exclusive: &[Range<u64>],
    ) -> Result<(Shared<'a>, Exclusive<'a>), DeviceError> {
        region.lend(shared.iter().cloned().map(Ok), exclusive.iter().cloned().map(Ok))
    }

    #[test]
    fn pieces_are_the_ranges_asked_for() {
        let mut region = Region::new(64).unwrap();
        for (i, word) in region.one(0..64).unwrap().iter_mut().enumerate() {
            *word = i as u32;
        }
        let (read, mut write) =
            lend(&mut region, &[8..20, 48..56, 12..16, 20..20], &[60..64, 20..32, 4..4]).unwrap();
        assert_eq!(
            (read[0], read[1], read[2], read[3]),
            (&[2, 3, 4][..], &[12, 13][..], &[3][..], &[][..])
        );
        assert_eq!((&*write[0], &*write[1], write[2].len()), (&[15][..], &[5, 6, 7][..], 0));
        write[1].fill(99);
        drop((read, write));
        assert_eq!(region.one(16..24).unwrap(), [4, 99]);
    }

    #[test]
    fn an_exclusive_range_overlaps_no_other_range() {
        type Pairs = &'static [[u64; 2]];
        let mut region = Region::new(64).unwrap();
        let ranges =
            |pairs: &[[u64; 2]]| pairs.iter().map(|&[from, to]| from..to).collect::<Vec<_>>();
        let cases: [(Pairs, Pairs); 6] = [
            (&[[0, 8]], &[[4, 12]]),
            (&[[0, 8]], &[[0, 8]]),
            (&[[0, 32], [4, 8]], &[[28, 36]]),
            (&[[8, 12]], &[[0, 64]]),
            (&[], &[[0, 8], [4, 12]]),
            (&[], &[[0, 8], [0, 8]]),
        ];
        for (shared, exclusive) in cases {
            let (shared, exclusive) = (ranges(shared), ranges(exclusive));
            let error = lend(&mut region, &shared, &exclusive).unwrap_err();
            assert!(error.to_string().contains("another operand uses them"), "{error}");
        }
        assert!(lend(&mut region, &[0..8, 8..16], &[16..24, 24..32]).is_ok());
        assert!(lend(&mut region, &[0..16, 0..16, 8..12], &[16..24, 12..12]).is_ok());
    }

    #[test]
    fn ranges_outside_or_across_elements_are_refused() {
        let mut region = Region::new(66).unwrap();
        for range in
            [60..68, 64..68, 60..66, 64..66, Range { start: 8, end: 4 }, 0..u64::MAX, 2..6, 4..6]
        {
            let ranges = std::slice::from_ref(&range);
            assert!(lend(&mut region, ranges, &[]).is_err(), "{range:?}");
            assert!(lend(&mut region, &[], ranges).is_err(), "{range:?}");
        }
        assert!(region.copy(0, 60, 8).is_err());
        assert!(region.copy(u64::MAX, 0, 8).is_err());
        assert!(Region::new(u64::MAX).is_err());
    }

    #[test]
    fn copies_may_overlap() {
        let mut region = Region::new(16).unwrap();
        region.one(0..16).unwrap().copy_from_slice(&[1, 2, 3, 4]);
        region.copy(0, 4, 12).unwrap();
        assert_eq!(region.one(0..16).unwrap(), [1, 1, 2, 3]);
    }

    #[test]
    fn no_bytes_are_a_region_too() {
        let mut region = Region::new(0).unwrap();
        assert!(region.one(0..0).unwrap().is_empty());
        assert!(region.one(0..4).is_err());
    }
}
