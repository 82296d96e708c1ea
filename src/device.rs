//! The device contract: memory for tensors, copies, and ops that run.
//!
//! A device is made with its memory, and [`Device::memory`] says what that memory is: an arena or
//! buffers of the device's own. In an arena, the engine decides which offsets hold what. Reads,
//! writes and runs take effect in the order of the calls.

pub(crate) mod conv_shape;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub(crate) mod pack;
pub mod sim;
pub(crate) mod walk;

use crate::layout::Layout;
use crate::memory::ALIGNMENT;
use crate::op::Operation;
use std::ops::Range;
use std::sync::Arc;

/// The kind of memory that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// One range of bytes, addressed by offsets `0..bytes`. The engine decides which offsets hold
    /// what, so holes, free neighbours and compaction count.
    Arena {
        /// Bytes in the range.
        bytes: u64,
        /// Alignment of tensors and workspaces: offsets and sizes are multiples of `granularity`. A
        /// power of two up to 2^31.
        granularity: u64,
    },
    /// Buffers of the device's own, one for each storage. A buffer has a number
    /// ([`Place::storage`]) instead of an offset. The number is new at the first write to the
    /// buffer, and is given up by [`Device::release`]. The engine counts the bytes of the buffers.
    ///
    /// A run makes all its outputs anew. An output that is recomputed while its old buffer is
    /// resident has two numbers until the run is over. A framework that owns its memory can be a
    /// device by this variant.
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

    /// Number of bytes, whatever the kind of memory.
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
    /// The tensor within that storage.
    pub layout: Layout,
}

/// One run of an op.
#[derive(Debug)]
pub struct Call<'a, O> {
    /// Op to run.
    pub op: &'a O,
    /// Places of the inputs, in order. The input that an in-place output updates has the same place
    /// as the output, and holds the old value.
    pub inputs: &'a [Place],
    /// Places of the outputs, in order. Outputs are disjoint from each other, and from all inputs
    /// but their own old value.
    pub outputs: &'a [Place],
    /// Floating-point operations, as the op states them; a simulated device computes its time from
    /// this figure.
    pub flops: f64,
    /// Scratch bytes, as many as [`Device::workspace`] asked for; contents undefined.
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
/// as long as later calls see what earlier ones did. A failure that is found after its call
/// returned is an error of a later call: at the latest, of the next [`Device::read`] or
/// [`Device::sync`].
pub trait Device: 'static {
    /// Ops that the device can run.
    type Op: Operation;
    /// Data on the host: values that are put on the device, or read back from it.
    type Host: Send + Sync + 'static;

    /// Name for people: `cpu`, `sim`, ...
    fn name(&self) -> &str;

    /// Kind and size of the memory: the most that the engine may hold. Always the same answer.
    fn memory(&self) -> Memory;

    /// The layout a host value has on the device: contiguous with offset 0.
    fn layout_of(host: &Self::Host) -> Layout;

    /// Copies a host value to `to`, whose layout is the one [`Device::layout_of`] gave. The caller
    /// may change or drop `host` as soon as this call returns.
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

    /// Reads like [`Device::read`], without waiting if the device runs behind its caller. The value
    /// is the current one, whatever later calls write to the place.
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
    /// A failure of the copy. The bytes at `from` are then taken to be unchanged.
    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Scratch bytes that a run of `op` needs: all memory beside the operands that grows with their
    /// shapes. The answer must depend on the arguments alone.
    fn workspace(&self, _op: &Self::Op, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Allows the use of a range of offsets. Called for ranges that were given to
    /// [`Device::give_back`] before. If memory is taken as needed
    /// ([`Settings::allow_growth`](crate::Settings::allow_growth)), the engine also calls this for
    /// each new region, in order from offset 0.
    ///
    /// # Errors
    /// Too little memory. The engine may then ask for less, or evict something instead.
    fn take(&mut self, _offsets: Range<u64>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Announces that the engine will not use a range of offsets until [`Device::take`]. No tensor
    /// lies there, so the device may use the memory for something else. Called when the budget is
    /// lowered.
    fn give_back(&mut self, _offsets: Range<u64>) {}

    /// Frees the buffer with the number `_storage` ([`Place::storage`]). Called if the device owns
    /// its memory; the number is never used again.
    fn release(&mut self, _storage: u64) {}

    /// Copies the elements of a tensor to another place of the same shape and type; the target is
    /// packed. Called for in-place updates whose old value is still needed. If the engine hands out
    /// offsets, this is a [`Device::copy`].
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
    /// A failure of the run. A panic counts as a failure too. [`DeviceError::out_of_memory`] may be
    /// returned only before anything is written; the engine then evicts something and makes the
    /// same call again.
    fn execute(&mut self, call: Call<'_, Self::Op>) -> Result<Took, DeviceError>;

    /// Foretells the seconds of the next run of `op`, without running it. A device that replays a
    /// recording knows them. Default: `None`, not known.
    fn foretell(&mut self, _op: &Self::Op) -> Option<f64> {
        None
    }

    /// Foretells the seconds of a [`Device::write`] of `host`. Default: `None`, not known.
    fn foretell_write(&mut self, _host: &Self::Host) -> Option<f64> {
        None
    }

    /// Takes the seconds of the oldest call that returned [`Took::Later`] and whose time was not
    /// taken yet. `None` if the time is not known yet, NaN if it will never be known. Never waits.
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

    /// An error for lack of memory: the device has done nothing of what was asked.
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
