//! The device contract: memory for tensors, copies, and ops that run.
//!
//! The memory of a device is fixed when the device is made. [`Device::memory`] says which of three
//! kinds the memory is: an arena, buffers that the device allocates itself, or only a count of
//! bytes. In an arena, the engine decides which offsets hold which tensors. Reads, writes and runs
//! take effect in the order of the calls.

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
    /// One range of bytes, addressed by offsets `0..bytes`. The engine decides which offsets hold
    /// which tensors. Tensors may leave holes that are too small for a new tensor. The engine
    /// therefore merges free neighbours, and moves tensors to make larger free ranges.
    Arena {
        /// Bytes in the range.
        bytes: u64,
        /// Alignment of tensors and workspaces: offsets and sizes are multiples of `granularity`. A
        /// power of two up to 2^31.
        granularity: u64,
    },
    /// Buffers that the device allocates itself, one for each storage. A buffer has a number
    /// ([`Place::storage`]) instead of an offset. The number is used for the first time in the
    /// first write to the buffer. After [`Device::release`], the number is not used any more. The
    /// engine counts the bytes of the buffers.
    ///
    /// A run makes all its outputs in new buffers. An output that is recomputed while its old
    /// buffer is resident has two numbers until the run is over. With this variant, a framework
    /// that allocates its own memory can be a device.
    Owned {
        /// Largest number of bytes that the buffers may hold at once.
        bytes: u64,
    },
    /// No memory: a simulation that only counts bytes, without holes.
    Counted {
        /// Largest number of bytes that may be counted as in use.
        bytes: u64,
    },
}

impl Memory {
    /// An arena of `bytes` bytes, in which tensors begin at multiples of 256.
    #[must_use]
    pub const fn arena(bytes: u64) -> Self {
        Self::Arena { bytes, granularity: ALIGNMENT }
    }

    /// Size in bytes of an arena; for any other kind of memory, the limit in bytes.
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
    /// Byte offset of the first byte of the storage. If the device owns its buffers: a number that
    /// no other buffer has or had.
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
    /// has the same place as the output that replaces the value.
    pub inputs: &'a [Place],
    /// Places of the outputs, in order. Outputs overlap neither each other nor any input. The only
    /// exception is an output of an update in place, which has the place of its old value.
    pub outputs: &'a [Place],
    /// Floating-point operations, as the op states them. A simulated device computes the time of
    /// the run from this number.
    pub flops: f64,
    /// Scratch bytes: as many as [`Device::workspace`] returned, with undefined contents.
    pub workspace: Range<u64>,
    /// Whether the caller wants the duration of the run. A device that measures at no cost may
    /// always return a duration.
    pub timed: bool,
}

/// How long a call took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Took {
    /// Duration in seconds.
    Seconds(f64),
    /// Not known yet: the device runs behind its caller, and [`Device::take_time`] will return the
    /// duration.
    Later,
    /// Not measured.
    Unknown,
}

/// The result of a read that does not wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading<H> {
    /// The value.
    Done(H),
    /// Not known yet: the device runs behind its caller, and [`Device::take_read`] will return the
    /// value.
    Later,
}

/// A device that the engine can drive. `examples/04_your_own_device.rs` has one of a few lines.
///
/// Calls take effect in the order they are made. A device may run behind its caller (a GPU stream)
/// as long as later calls see the effects of earlier calls. A failure that the device finds after
/// the failed call has returned is an error of a later call: at the latest, of the next
/// [`Device::read`] or [`Device::sync`].
pub trait Device: 'static {
    /// Ops that the device can run.
    type Op: Operation;
    /// Data on the host: values that are put on the device, or read back from it.
    type Host: Send + Sync + 'static;

    /// Name for people: `cpu`, `sim`, ...
    fn name(&self) -> &str;

    /// Kind and size of the memory: the most that the engine may hold. Every call returns the same
    /// answer.
    fn memory(&self) -> Memory;

    /// The layout a host value has on the device: contiguous with offset 0.
    fn layout_of(host: &Self::Host) -> Layout;

    /// Copies a host value to `to`, whose layout is the result of [`Device::layout_of`] for this
    /// value. The caller may change or drop `host` as soon as this call returns.
    ///
    /// # Errors
    /// A failure of the copy. After [`DeviceError::out_of_memory`], the engine evicts something and
    /// makes the same call again.
    fn write(&mut self, host: &Self::Host, to: Place) -> Result<Took, DeviceError>;

    /// Copies a tensor to the host, packed in row-major order whatever its strides.
    ///
    /// # Errors
    /// A failure of the copy. After [`DeviceError::out_of_memory`], the engine evicts something and
    /// makes the same call again.
    fn read(&mut self, from: Place) -> Result<Self::Host, DeviceError>;

    /// Whether [`Device::bits`] works. A device that only counts has no bits.
    fn has_bits(&self) -> bool {
        false
    }

    /// Passes the bytes of a tensor to `see`, once, packed in row-major order. The engine calls
    /// this if recomputed values are verified
    /// ([`Settings::verify_recomputed`](crate::Settings::verify_recomputed)), and only if
    /// [`Device::has_bits`]. A device that runs behind its caller waits here.
    ///
    /// # Errors
    /// A failure to read the bits, or a device without bits.
    fn bits(&mut self, _from: Place, _see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        Err(DeviceError::new("the device does not show its bits"))
    }

    /// Reads like [`Device::read`], without waiting if the device runs behind its caller. Writes to
    /// the place by later calls do not change the value that is read.
    ///
    /// # Errors
    /// A failure of the copy.
    fn read_later(&mut self, from: Place) -> Result<Reading<Self::Host>, DeviceError> {
        self.read(from).map(Reading::Done)
    }

    /// Takes the value, or the error, of the oldest read that returned [`Reading::Later`] and was
    /// not taken yet. `None` if the value is not known yet. Values are returned in the order of the
    /// reads, each once. Never waits.
    fn take_read(&mut self) -> Option<Result<Self::Host, DeviceError>> {
        None
    }

    /// Copies `bytes` bytes from offset `from` to offset `to`; the ranges may overlap.
    ///
    /// # Errors
    /// A failure of the copy. After a failure, the engine assumes that the bytes at `from` are
    /// unchanged.
    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Scratch bytes that a run of `op` needs: all memory of the run that grows with the shapes of
    /// the operands, without the operands themselves. The answer must depend on the arguments
    /// alone.
    fn workspace(&self, _op: &Self::Op, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Allows the engine's use of a range of offsets from now on. Called for ranges that were given
    /// to [`Device::give_back`] before. If memory is taken as needed
    /// ([`Settings::allow_growth`](crate::Settings::allow_growth)), the engine also calls this for
    /// each new region, in order from offset 0.
    ///
    /// # Errors
    /// Too little memory. The engine may then ask for a smaller range, or evict something instead.
    fn take(&mut self, _offsets: Range<u64>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Announces that the engine will not use a range of offsets until [`Device::take`] is called
    /// for this range. No tensor lies in the range, so the device may use the memory for something
    /// else. Called when the budget is lowered.
    fn give_back(&mut self, _offsets: Range<u64>) {}

    /// Frees the buffer with the number `_storage` ([`Place::storage`]). Called if the device owns
    /// its memory; the number is never used again.
    fn release(&mut self, _storage: u64) {}

    /// Copies the elements of a tensor to another place of the same shape and type; the target is
    /// packed. Called for in-place updates whose old value is still needed. In an arena,
    /// [`Device::copy`] does this, which is the default.
    ///
    /// # Errors
    /// A failure of the copy. After [`DeviceError::out_of_memory`], the engine evicts something and
    /// makes the same call again.
    fn duplicate(&mut self, from: Place, to: Place) -> Result<(), DeviceError> {
        let skip = from.layout.offset() as u64 * from.layout.dtype().bytes() as u64;
        self.copy(from.storage + skip, to.storage, to.layout.bytes())
    }

    /// Runs an op.
    ///
    /// # Errors
    /// A failure of the run. A panic in the run is also a failure. [`DeviceError::out_of_memory`]
    /// may be returned only before anything is written; the engine then evicts something and makes
    /// the same call again.
    fn execute(&mut self, call: Call<'_, Self::Op>) -> Result<Took, DeviceError>;

    /// Foretells the seconds of the next run of `op`, without running it. A device that replays a
    /// recording knows the seconds. Default: `None`, not known.
    fn foretell(&mut self, _op: &Self::Op) -> Option<f64> {
        None
    }

    /// Foretells the seconds of a [`Device::write`] of `host`. Default: `None`, not known.
    fn foretell_write(&mut self, _host: &Self::Host) -> Option<f64> {
        None
    }

    /// Takes the duration, in seconds, of the oldest call that returned [`Took::Later`] and whose
    /// duration was not taken yet. `None` if the duration is not known yet, NaN if it will never be
    /// known. Never waits.
    fn take_time(&mut self) -> Option<f64> {
        None
    }

    /// Waits until all calls have taken effect.
    ///
    /// # Errors
    /// A failure of an earlier call that was not returned before.
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
    /// An error with a message for people.
    #[must_use]
    pub fn new(message: impl AsRef<str>) -> Self {
        Self { message: message.as_ref().into(), out_of_memory: false }
    }

    /// An error for lack of memory. The device guarantees that the failed call had no effect.
    #[must_use]
    pub fn out_of_memory(message: impl AsRef<str>) -> Self {
        Self { out_of_memory: true, ..Self::new(message) }
    }

    /// Whether the error is a lack of memory.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        self.out_of_memory
    }
}
