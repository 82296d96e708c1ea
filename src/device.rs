//! The contract of a device: memory for tensors, copies, and runs of ops.
//!
//! The memory of a device is fixed when the device is made. [`Device::memory`] returns the kind of
//! the memory: an arena, buffers that the device allocates itself, or only a count of bytes. In an
//! arena, the engine chooses the offset of each tensor. Reads, writes and runs take effect in the
//! order of the calls.

pub(crate) mod conv_shape;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub(crate) mod pack;
pub mod sim;
pub(crate) mod walk;

use crate::layout::Layout;
use crate::op::Operation;
use remat_memory::ALIGNMENT;
use std::ops::Range;
use std::sync::Arc;

/// The kind of memory that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// One range of bytes, addressed by offsets `0..bytes`. The engine chooses the offset of each
    /// tensor. Free ranges between tensors may be too small for a new tensor. The engine therefore
    /// merges neighbouring free ranges, and moves tensors to make larger ones.
    Arena {
        /// Size of the range in bytes.
        bytes: u64,
        /// Alignment of tensors and workspaces: offsets and sizes are multiples of `granularity`,
        /// which is a power of two up to 2^31.
        granularity: u64,
    },
    /// Buffers that the device allocates itself, one for each storage. A buffer has a number
    /// ([`Place::storage`]) instead of an offset. The first call that uses a number is the first
    /// write to the buffer. After [`Device::release`], the number is never used again. The engine
    /// keeps the sum of the buffers' bytes within the limit.
    ///
    /// Each run writes all its outputs to new buffers. If an output is recomputed while its old
    /// buffer is still resident, the output has two buffers, with two numbers, until the run ends.
    /// A framework that allocates its own memory can be a device of this kind.
    Owned {
        /// Largest number of bytes that the buffers may hold at once.
        bytes: u64,
    },
    /// No memory: a simulation that only counts bytes. Tensors have no offsets, so memory is never
    /// lost in free ranges that are too small.
    Counted {
        /// Largest number of bytes that may be in use.
        bytes: u64,
    },
}

impl Memory {
    /// An arena of `bytes` bytes, in which tensors begin at multiples of 256.
    #[must_use]
    pub const fn arena(bytes: u64) -> Self {
        Self::Arena { bytes, granularity: ALIGNMENT }
    }

    /// Size of an arena in bytes; for the other kinds of memory, the largest number of bytes in
    /// use.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Arena { bytes, .. } | Self::Owned { bytes } | Self::Counted { bytes } => bytes,
        }
    }
}

/// A tensor's bytes on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset of the storage's first byte, in bytes. If the device allocates its own buffers, the
    /// field is the number of the buffer instead, and the device never uses one number for two
    /// buffers.
    pub storage: u64,
    /// Layout of the tensor within the storage.
    pub layout: Layout,
}

/// One run of an op.
#[derive(Debug)]
pub struct Call<'a, O> {
    /// Op to run.
    pub op: &'a O,
    /// Places of the inputs, in order. An input that is updated in place holds the old value, and
    /// shares its place with the output that overwrites the value.
    pub inputs: &'a [Place],
    /// Places of the outputs, in order. Outputs overlap neither each other nor any input. The only
    /// exception is an output that updates an input in place: the input and the output share one
    /// place.
    pub outputs: &'a [Place],
    /// Number of floating-point operations of the run, as returned by [`Operation::flops`]. A
    /// simulated device computes the time of the run from this number.
    pub flops: f64,
    /// Offsets of the scratch bytes of the run, as many bytes as [`Device::workspace`] returned.
    /// The contents of the bytes are undefined.
    pub workspace: Range<u64>,
    /// Whether the caller needs the duration of the run. A device that measures durations at no
    /// cost may always return a duration.
    pub timed: bool,
}

/// How long a call took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Took {
    /// Duration in seconds.
    Seconds(f64),
    /// The call is not finished, because the device works asynchronously. [`Device::take_time`]
    /// will return the duration.
    Later,
    /// The duration was not measured.
    Unknown,
}

/// The result of a read that does not wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading<H> {
    /// The value.
    Done(H),
    /// The read is not finished, because the device works asynchronously. [`Device::take_read`]
    /// will return the value.
    Later,
}

/// A device that the engine can use. `examples/04_your_own_device.rs` implements a device in a few
/// lines.
///
/// Calls take effect in the order in which they are made. A device may work asynchronously (a GPU
/// stream), as long as later calls see the effects of earlier calls. The device may detect a
/// failure after the failed call has returned. A later call then returns the error, at the latest
/// the next [`Device::read`] or [`Device::sync`].
pub trait Device: 'static {
    /// Ops that the device can run.
    type Op: Operation;
    /// Data on the host: values that are put on the device, or read back from it.
    type Host: Send + Sync + 'static;

    /// Name of the device in messages: `cpu`, `sim`, ...
    fn name(&self) -> &str;

    /// Kind of the memory, and the largest number of bytes that the engine may use. Every call of
    /// this function returns the same value.
    fn memory(&self) -> Memory;

    /// Layout that a host value has on the device: contiguous with offset 0.
    fn layout_of(host: &Self::Host) -> Layout;

    /// Copies a host value to `to`, whose layout is the result of [`Device::layout_of`] for this
    /// value. The caller may change or drop `host` as soon as this call returns.
    ///
    /// # Errors
    /// A failure of the copy. If the error is [`DeviceError::out_of_memory`], the engine evicts a
    /// storage and repeats the call.
    fn write(&mut self, host: &Self::Host, to: Place) -> Result<Took, DeviceError>;

    /// Copies a tensor to the host. The copy is packed in row-major order, for any strides of the
    /// tensor.
    ///
    /// # Errors
    /// A failure of the copy. If the error is [`DeviceError::out_of_memory`], the engine evicts a
    /// storage and repeats the call.
    fn read(&mut self, from: Place) -> Result<Self::Host, DeviceError>;

    /// Tells an op that it is skipped: the op was issued, and will not run. A simulation runs no
    /// ops, and tells them nothing.
    fn skip(&mut self, op: &Self::Op, why: &(dyn std::error::Error + 'static)) {
        op.skipped(why);
    }

    /// Whether [`Device::bits`] works. A device that only counts bytes has no bits.
    fn has_bits(&self) -> bool {
        false
    }

    /// Calls `see` once, with the bytes of a tensor, packed in row-major order. The engine calls
    /// this function to verify recomputed values
    /// ([`Settings::verify_recomputed`](crate::Settings::verify_recomputed)), and only if
    /// [`Device::has_bits`] is true. An asynchronous device waits in this call until the bytes are
    /// computed.
    ///
    /// # Errors
    /// Fails if the bits cannot be read, or the device has no bits.
    fn bits(&mut self, _from: Place, _see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        Err(DeviceError::new("the device does not show its bits"))
    }

    /// Reads like [`Device::read`], but an asynchronous device does not wait. If a later call
    /// writes to the place before the read is finished, the read still returns the old value.
    ///
    /// # Errors
    /// A failure of the copy.
    fn read_later(&mut self, from: Place) -> Result<Reading<Self::Host>, DeviceError> {
        self.read(from).map(Reading::Done)
    }

    /// Takes the value, or the error, of the oldest read that returned [`Reading::Later`] and was
    /// not taken before. Returns `None` if that read is not finished. The values come in the order
    /// of the reads, each value once. This function never waits.
    fn take_read(&mut self) -> Option<Result<Self::Host, DeviceError>> {
        None
    }

    /// Copies `bytes` bytes from offset `from` to offset `to`; the ranges may overlap.
    ///
    /// # Errors
    /// A failure of the copy. After a failure, the engine assumes that the bytes at `from` are
    /// unchanged.
    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Number of scratch bytes that a run of `op` needs: all memory that grows with the shapes of
    /// the operands, except the operands themselves. The result must depend only on the arguments.
    /// Only a run that returns [`DeviceError::out_of_memory`] may enlarge the result.
    fn workspace(&self, _op: &Self::Op, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Makes the memory of a range of offsets available to the engine. The engine calls this
    /// function to take back a range that it passed to [`Device::give_back`] before. If the budget
    /// is allocated in regions as needed
    /// ([`Settings::allow_growth`](crate::Settings::allow_growth)), the engine also calls this
    /// function for each new region, in order from offset 0.
    ///
    /// # Errors
    /// Too little memory. The engine may then request a smaller range, or evict storages instead.
    fn take(&mut self, _offsets: Range<u64>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Announces that the engine will not use a range of offsets until it calls [`Device::take`]
    /// for the range. No tensor lies in the range, so the device may use the memory for other
    /// purposes. The engine calls this function when the budget is lowered.
    fn give_back(&mut self, _offsets: Range<u64>) {}

    /// Frees the buffer with the number `_storage` ([`Place::storage`]). The engine calls this
    /// function only if the device allocates its own buffers ([`Memory::Owned`]), and never uses
    /// the number again.
    fn release(&mut self, _storage: u64) {}

    /// Copies the elements of a tensor to another place, which has the shape and type of the
    /// tensor. The elements at `to` are packed. The engine calls this function before an in-place
    /// update if the old value is still needed. The default is a [`Device::copy`] of the bytes, as
    /// in an arena.
    ///
    /// # Errors
    /// A failure of the copy. If the error is [`DeviceError::out_of_memory`], the engine evicts a
    /// storage and repeats the call.
    fn duplicate(&mut self, from: Place, to: Place) -> Result<(), DeviceError> {
        let skip = from.layout.offset() as u64 * from.layout.dtype().bytes() as u64;
        self.copy(from.storage + skip, to.storage, to.layout.bytes())
    }

    /// Runs an op.
    ///
    /// # Errors
    /// A failure of the run. A panic in the run is also a failure. The device may return
    /// [`DeviceError::out_of_memory`] only if it has written nothing. After an out-of-memory error,
    /// the engine asks for the workspace again, and evicts a storage if the workspace is not larger
    /// than before. Then the engine repeats the call.
    fn execute(&mut self, call: Call<'_, Self::Op>) -> Result<Took, DeviceError>;

    /// Predicts the duration of the next run of `op` in seconds, without running the op. A device
    /// that replays a recording knows the duration from the recording. The default is `None`, which
    /// means no prediction.
    fn foretell(&mut self, _op: &Self::Op) -> Option<f64> {
        None
    }

    /// Predicts the duration of a [`Device::write`] of `host`, in seconds. The default is `None`,
    /// which means no prediction.
    fn foretell_write(&mut self, _host: &Self::Host) -> Option<f64> {
        None
    }

    /// Takes the duration, in seconds, of the oldest call that returned [`Took::Later`] and whose
    /// duration was not taken before. Returns `None` if that call is not finished, and NaN if its
    /// duration cannot be measured. This function never waits.
    fn take_time(&mut self) -> Option<f64> {
        None
    }

    /// Waits until all calls have taken effect.
    ///
    /// # Errors
    /// Returns the failure of an earlier call, if no call has returned it yet.
    fn sync(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A failure of a device.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct DeviceError {
    message: Arc<str>,
    out_of_memory: bool,
}

impl DeviceError {
    /// Makes an error with the given message.
    #[must_use]
    pub fn new(message: impl AsRef<str>) -> Self {
        Self { message: message.as_ref().into(), out_of_memory: false }
    }

    /// Makes an error that means too little memory. By returning this error, a device guarantees
    /// that the failed call had no effect.
    #[must_use]
    pub fn out_of_memory(message: impl AsRef<str>) -> Self {
        Self { out_of_memory: true, ..Self::new(message) }
    }

    /// Whether the error means too little memory.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        self.out_of_memory
    }
}
