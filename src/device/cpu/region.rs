//! The memory of the device: one range of bytes, lent out in disjoint pieces.
//!
//! There is no unsafe code here or anywhere in the device: an anonymous map is safe to make, and pieces
//! are cut off it one after the other in address order.

use crate::device::DeviceError;
use memmap2::{MmapMut, MmapOptions};
use smallvec::SmallVec;
use std::ops::Range;

/// Every range lent out starts and ends at a multiple of this many bytes: an element.
pub(super) const ALIGN: u64 = 4;

/// Bytes at offsets `0..len`, zero until written. Pages take up memory once they are touched.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// None while there are no bytes.
    map: Option<MmapMut>,
}

/// Bytes that may be read.
pub(super) type Shared<'a> = SmallVec<[&'a [u8]; 6]>;
/// Bytes that may be written.
pub(super) type Exclusive<'a> = SmallVec<[&'a mut [u8]; 6]>;

/// A range being lent: where it goes in the answer, and for what.
#[derive(Clone, Copy)]
struct Loan {
    start: usize,
    end: usize,
    slot: usize,
    exclusive: bool,
}

impl Region {
    /// Takes `bytes` bytes of address space.
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
        // Large pages where the system has them: fewer faults on the first step. A hint, so a refusal
        // is no matter.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map: Some(map) })
    }

    /// All bytes.
    fn bytes(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }

    /// The bytes of one range, to read and write.
    pub(super) fn one(&mut self, range: Range<u64>) -> Result<&mut [u8], DeviceError> {
        let (_, mut exclusive) = self.lend(&[], &[range])?;
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

    /// Lends the bytes of all `shared` ranges, which may overlap each other, and of all `exclusive`
    /// ranges, which may overlap nothing. Empty ranges overlap nothing.
    pub(super) fn lend(
        &mut self,
        shared: &[Range<u64>],
        exclusive: &[Range<u64>],
    ) -> Result<(Shared<'_>, Exclusive<'_>), DeviceError> {
        let mut rest = self.bytes();
        let mut loans = SmallVec::<[Loan; 12]>::new();
        for (ranges, exclusive) in [(shared, false), (exclusive, true)] {
            for (slot, range) in ranges.iter().enumerate() {
                let Range { start, end } = bounded(rest.len(), range)?;
                if range.start % ALIGN != 0 || range.end % ALIGN != 0 {
                    return Err(DeviceError::new(format!(
                        "range {range:?} is not of whole elements of {ALIGN} bytes"
                    )));
                }
                if start < end {
                    loans.push(Loan { start, end, slot, exclusive });
                }
            }
        }
        loans.sort_unstable_by_key(|loan| loan.start);

        let mut read: Shared<'_> = shared.iter().map(|_| <&[u8]>::default()).collect();
        let mut write: Exclusive<'_> = exclusive.iter().map(|_| <&mut [u8]>::default()).collect();
        let mut cut = 0; // `rest` starts at this offset
        let mut loans = &loans[..];
        while let Some(first) = loans.first() {
            // A group of loans without a gap between them; only shared ones may be in a group of many.
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
                        let Loan { start, end, .. } = taken;
                        return Err(DeviceError::new(format!(
                            "bytes {start}..{end} are to be written, but also used by another operand"
                        )));
                    }
                    let piece: &[u8] = piece;
                    for loan in group {
                        read[loan.slot] = &piece[loan.start - first.start..loan.end - first.start];
                    }
                }
            }
        }
        Ok((read, write))
    }
}

/// `range` as indices, if it lies within `len` bytes.
fn bounded(len: usize, range: &Range<u64>) -> Result<Range<usize>, DeviceError> {
    if range.start > range.end || range.end > len as u64 {
        return Err(DeviceError::new(format!(
            "range {range:?} is outside the {len} bytes reserved"
        )));
    }
    Ok(range.start as usize..range.end as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_ranges_asked_for() {
        let mut region = Region::new(64).unwrap();
        for i in 0..16 {
            region.one(i * 4..i * 4 + 4).unwrap().fill(i as u8);
        }
        let (read, mut write) =
            region.lend(&[8..20, 48..56, 12..16, 20..20], &[60..64, 20..32, 4..4]).unwrap();
        assert_eq!(read[0], [2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]);
        assert_eq!(read[1], [12, 12, 12, 12, 13, 13, 13, 13]);
        assert_eq!((read[2], read[3]), (&[3; 4][..], &[][..]));
        assert_eq!((&*write[0], write[1].len(), write[2].len()), (&[15; 4][..], 12, 0));
        write[1].fill(99);
        assert_eq!(region.one(16..24).unwrap(), [4, 4, 4, 4, 99, 99, 99, 99]);
    }

    #[test]
    fn what_is_written_is_used_by_nothing_else() {
        let mut region = Region::new(64).unwrap();
        for (shared, exclusive) in [
            (vec![0..8], vec![4..12]),
            (vec![0..8], vec![0..8]),
            (vec![0..32, 4..8], vec![28..36]),
            (vec![8..12], vec![0..64]),
            (vec![], vec![0..8, 4..12]),
            (vec![], vec![0..8, 0..8]),
        ] {
            let error = region.lend(&shared, &exclusive).unwrap_err();
            assert!(error.to_string().contains("also used"), "{error}");
        }
        assert!(region.lend(&[0..8, 8..16], &[16..24, 24..32]).is_ok());
        assert!(region.lend(&[0..16, 0..16, 8..12], &[16..24, 12..12]).is_ok());
    }

    #[test]
    fn ranges_outside_or_across_elements_are_refused() {
        let mut region = Region::new(64).unwrap();
        for range in [60..68, 64..68, Range { start: 8, end: 4 }, 0..u64::MAX, 2..6, 4..6] {
            assert!(region.lend(&[range.clone()], &[]).is_err(), "{range:?}");
            assert!(region.lend(&[], &[range.clone()]).is_err(), "{range:?}");
        }
        assert!(region.copy(0, 60, 8).is_err());
        assert!(region.copy(u64::MAX, 0, 8).is_err());
        assert!(Region::new(u64::MAX).is_err());
    }

    #[test]
    fn copies_may_overlap() {
        let mut region = Region::new(16).unwrap();
        region.one(0..16).unwrap().copy_from_slice(&(0..16).collect::<Vec<u8>>());
        region.copy(0, 4, 12).unwrap();
        assert_eq!(region.one(0..16).unwrap(), [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn no_bytes_are_a_region_too() {
        let mut region = Region::new(0).unwrap();
        assert!(region.one(0..0).unwrap().is_empty());
        assert!(region.one(0..4).is_err());
    }
}
