//! The CPU as a device: a mapped range of memory, and a team of threads that share the work of each
//! op.
//!
//! Every kernel gives the same bits in every run, with any number of threads. Threads compute
//! separate outputs, or fixed pieces whose results are joined in a fixed order.
//!
//! Tensors and workspaces lie in the memory that the device reserved when it was made. The device
//! allocates no other memory that grows with the shapes. For a matrix product, each thread packs
//! operands into at most [`PACKING_BYTES`] of heap memory. To share work among threads, the device
//! needs a few KiB. Host values that are written to the device or read from it belong to the
//! caller.

#![deny(unsafe_code)]

pub(crate) mod copy;
pub(crate) mod lanes;
pub(crate) mod math;
pub(crate) mod numbers;
mod operands;
mod region;
pub(crate) mod split;
mod team;
#[allow(unsafe_code)]
pub(crate) mod wide;

use self::region::{Region, WORD, Word};
use crate::device::{Call, Device, DeviceError, Memory, Place, Took};
use crate::host::HostTensor;
use crate::layout::Layout;
use crate::op::Operation;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Instant;

/// Largest number of heap bytes that a thread allocates for a matrix product of any shape. The
/// allocator may hold as many bytes again in reserve.
pub const PACKING_BYTES: usize = 640 << 10;

/// Largest number of threads of a [`Team`]. No larger number is accepted: even large machines have
/// at most about this number of threads, so a larger number is probably a mistake.
pub const MAX_THREADS: usize = 1024;

pub use self::operands::Operands;
#[doc(hidden)]
pub use self::team::Team;

/// Ops that run on the CPU.
#[doc(hidden)]
pub trait Kernels: Operation + Sync {
    /// Number of leading inputs that the op updates in place, for an op with `_inputs` inputs. The
    /// updated inputs are the first outputs.
    fn updates(&self, _inputs: usize) -> usize {
        0
    }

    /// Scratch bytes of a run. The result must depend only on the arguments, so that a simulated
    /// device can request the same number of bytes.
    fn cpu_workspace(&self, inputs: &[Layout], outputs: &[Layout]) -> u64;

    /// Runs the op, on a thread of the device's [`Team`].
    ///
    /// # Errors
    /// A failure of the run.
    fn cpu(&self, operands: Operands<'_>) -> Result<(), DeviceError>;
}

/// A device that runs ops on the CPU.
#[derive(Debug)]
pub struct Cpu<O> {
    team: Team,
    region: Region,
    ops: PhantomData<fn(O)>,
}

impl<O: Kernels> Cpu<O> {
    /// Makes a device with `bytes` bytes and a [`Team`] of its own. The team has `threads` threads,
    /// or as many as the system offers for `None`. The threads end when the device is dropped.
    ///
    /// # Errors
    /// Fails if there is too little address space, or the system does not start the threads.
    pub fn new(bytes: u64, threads: Option<usize>) -> Result<Self, DeviceError> {
        Self::of(&Team::new(threads)?, bytes)
    }

    /// Makes a device with `bytes` bytes whose work the threads of a team share. If a thread of the
    /// team calls the device, small ops start at once. If any other thread calls the device, it
    /// passes each op to the team, and waits for the op.
    ///
    /// # Errors
    /// Too little address space.
    pub fn of(team: &Team, bytes: u64) -> Result<Self, DeviceError> {
        Ok(Self { team: team.clone(), region: Region::new(bytes)?, ops: PhantomData })
    }
}

impl<O: Kernels> Device for Cpu<O> {
    type Op = O;
    type Host = HostTensor;

    fn name(&self) -> &str {
        "cpu"
    }

    fn memory(&self) -> Memory {
        Memory::arena(self.region.len())
    }

    fn layout_of(host: &HostTensor) -> Layout {
        host.layout()
    }

    fn write(&mut self, host: &HostTensor, to: Place) -> Result<Took, DeviceError> {
        let start = Instant::now();
        if to.layout != host.layout() {
            return Err(DeviceError::new(format!(
                "a value of {} does not fit into a place of {}",
                host.layout(),
                to.layout
            )));
        }
        let words = self.region.one(words_of(&to)?)?;
        elements_mut(words, &to).copy_from_slice(host.as_bytes());
        Ok(Took::Seconds(start.elapsed().as_secs_f64()))
    }

    fn read(&mut self, from: Place) -> Result<HostTensor, DeviceError> {
        let Place { layout, .. } = from;
        let words: &[Word] = self.region.one(words_of(&from)?)?;
        let pack = |out: &mut [u8]| copy::packed(out, elements(words, &from), &layout);
        HostTensor::written(layout.dtype(), *layout.shape(), pack)
            .map_err(|e| DeviceError::new(e.to_string()))
    }

    fn has_bits(&self) -> bool {
        true
    }

    fn bits(&mut self, from: Place, see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        if from.layout.is_contiguous() {
            see(elements(self.region.one(words_of(&from)?)?, &from));
        } else {
            see(self.read(from)?.as_bytes());
        }
        Ok(())
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        self.region.copy(from, to, bytes)
    }

    fn give_back(&mut self, offsets: Range<u64>) {
        self.region.forget(offsets);
    }

    fn workspace(&self, op: &O, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        op.cpu_workspace(inputs, outputs)
    }

    fn execute(&mut self, call: Call<'_, O>) -> Result<Took, DeviceError> {
        let start = Instant::now();
        let region = &mut self.region;
        self.team.run(|| call.op.cpu(Operands::lend(&call, region)?))?;
        Ok(Took::Seconds(start.elapsed().as_secs_f64()))
    }
}

/// Range of bytes from the first to the last element of a tensor; an empty range if the tensor has
/// no elements.
fn bytes_of(Place { storage, layout }: &Place) -> Range<u64> {
    let (first, end) = (layout.offset(), layout.span());
    if first == end {
        return *storage..*storage;
    }
    let size = layout.dtype().bytes() as u64;
    let at = |elements: usize| storage.saturating_add((elements as u64).saturating_mul(size));
    at(first)..at(end)
}

/// Range of bytes of a tensor, extended to whole words on both sides. A word never belongs to two
/// storages, because storages begin at multiples of many words.
fn words_of(place: &Place) -> Result<Range<u64>, DeviceError> {
    let Place { storage, layout } = place;
    let size = layout.dtype().bytes() as u64;
    if !storage.is_multiple_of(size) {
        return Err(DeviceError::new(format!(
            "{layout} is at byte {storage}, which is not a multiple of {size} bytes, the size of an element"
        )));
    }
    let Range { start, end } = bytes_of(place);
    let first = start - start % WORD;
    Ok(if start == end { first..first } else { first..words_end(end) })
}

fn words_end(end: u64) -> u64 {
    end.checked_next_multiple_of(WORD).unwrap_or(end)
}

/// Elements of a tensor, as a slice of the words that the device lends to the kernel. The slice is
/// empty if no words were lent.
fn elements<'a, T: Pod>(words: &'a [Word], place: &Place) -> &'a [T] {
    if words.is_empty() {
        return &[];
    }
    bytemuck::cast_slice(&bytemuck::cast_slice::<_, u8>(words)[within_words(words, place)])
}

/// Like [`elements`], but returns a mutable slice.
fn elements_mut<'a, T: Pod>(words: &'a mut [Word], place: &Place) -> &'a mut [T] {
    if words.is_empty() {
        return &mut [];
    }
    let part = within_words(words, place);
    bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<_, u8>(words)[part])
}

/// Range of the bytes of a tensor's elements, within the words that the device lends for the
/// tensor.
fn within_words(words: &[Word], place: &Place) -> Range<usize> {
    if (place.layout.dtype().bytes() as u64).is_multiple_of(WORD) {
        return 0..size_of_val(words);
    }
    let Range { start, end } = bytes_of(place);
    let first = (start % WORD) as usize;
    first..first + (end - start) as usize
}

#[cfg(test)]
mod tests;
