//! Where bytes are and ops run.
//!
//! A device is made with its memory, and says what that is: one range of bytes, of which the engine decides which
//! offsets hold what, or buffers of the device's own. It reads, writes and computes there, in the order of the calls.

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

/// What a device's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// One range of bytes, addressed by offsets `0..bytes`. The engine decides which offsets hold what: holes, free
    /// neighbours and compaction count.
    Arena {
        /// All there are.
        bytes: u64,
        /// Tensors and workspaces begin at multiples of this, and take up multiples of it. A power of two up to 2^31.
        granularity: u64,
    },
    /// Buffers of the device's own, as many as there are tensors. Each has a number ([`Place::storage`]) in place of an
    /// offset, which comes up with the first write to it, and goes by [`Device::release`]. The engine counts their bytes.
    /// A run makes all its outputs anew, also one that it makes again beside another: that one has two numbers until the
    /// run is over. So a framework that owns its memory can be a device.
    Owned {
        /// As many as there may be at once.
        bytes: u64,
    },
    /// None: a simulation, in which free bytes are free bytes.
    Counted {
        /// As many as there may be at once.
        bytes: u64,
    },
}

impl Memory {
    /// One range of so many bytes, in which tensors begin at multiples of 256.
    #[must_use]
    pub const fn arena(bytes: u64) -> Self {
        Self::Arena { bytes, granularity: ALIGNMENT }
    }

    /// How many bytes it has.
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
    /// Byte offset of the storage's front. Where the device owns its buffers: a number that nothing else has or had.
    pub storage: u64,
    /// The tensor within that storage.
    pub layout: Layout,
}

/// One run of an op.
#[derive(Debug)]
pub struct Call<'a, O> {
    /// What to run.
    pub op: &'a O,
    /// Where the inputs are, in order. For an in-place output the matching input is the same place
    /// as the output and holds the old value.
    pub inputs: &'a [Place],
    /// Where the outputs go. Disjoint from each other, and from all inputs but their own old value.
    pub outputs: &'a [Place],
    /// Floating-point operations, as the op states them: what a device that only counts goes by.
    pub flops: f64,
    /// Scratch bytes, as many as [`Device::workspace`] asked for; contents undefined.
    pub workspace: Range<u64>,
    /// Whether the caller wants to know how long it takes. A device that measures at no cost may always answer.
    pub timed: bool,
}

/// How long a call took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Took {
    /// So many seconds.
    Seconds(f64),
    /// The device runs behind its caller: [`Device::take_time`] will return the time.
    Later,
    /// Unknown.
    Unknown,
}

/// The result of a read that does not wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading<H> {
    /// Here is the value.
    Done(H),
    /// The device runs behind its caller: [`Device::take_read`] will give it.
    Later,
}

/// A device the engine can drive. See `examples/04_your_own_device.rs` for one of a few lines.
///
/// Calls take effect in the order they are made. A device may run behind its caller (a GPU stream)
/// as long as later calls see what earlier ones did. What goes wrong there after a call returned is an
/// error of a later call: of the next [`Device::read`] or [`Device::sync`], if of no other.
pub trait Device: 'static {
    /// The ops it can run.
    type Op: Operation;
    /// Data on the host: what is put on the device and read back.
    type Host: Send + Sync + 'static;

    /// Name for people: `cpu`, `sim`, ...
    fn name(&self) -> &str;

    /// What its memory is: always the same answer. What the engine may hold at most.
    fn memory(&self) -> Memory;

    /// The layout a host value has on the device: contiguous with offset 0.
    fn layout_of(host: &Self::Host) -> Layout;

    /// Copies a host value to `to`, whose layout is the one [`Device::layout_of`] gave. The value may
    /// change or go as soon as this returns.
    ///
    /// # Errors
    /// If the copy failed. After [`DeviceError::out_of_memory`], something is evicted and the same is called again.
    fn write(&mut self, host: &Self::Host, to: Place) -> Result<Took, DeviceError>;

    /// Copies a tensor to the host, packed in row-major order whatever its strides.
    ///
    /// # Errors
    /// If the copy failed. After [`DeviceError::out_of_memory`], something is evicted and the same is called again.
    fn read(&mut self, from: Place) -> Result<Self::Host, DeviceError>;

    /// Whether it has bits that [`Device::bits`] shows. Not if it only counts.
    fn has_bits(&self) -> bool {
        false
    }

    /// Shows the bits of a tensor to `see`, once: the bytes of its elements, packed in row-major order. It is asked where
    /// what is recomputed is verified ([`Settings::verify_recomputed`](crate::Settings::verify_recomputed)), of devices
    /// that [have some](Device::has_bits). Such a device waits here for what it runs behind.
    ///
    /// # Errors
    /// If they cannot be had.
    fn bits(&mut self, _from: Place, _see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        Err(DeviceError::new("the device does not show its bits"))
    }

    /// The same as [`Device::read`] without waiting, where the device runs behind. The value is the one that is there now,
    /// whatever later calls put in its place.
    ///
    /// # Errors
    /// If the copy failed.
    fn read_later(&mut self, from: Place) -> Result<Reading<Self::Host>, DeviceError> {
        self.read(from).map(Reading::Done)
    }

    /// The value of the oldest read that returned [`Reading::Later`] and was not taken yet, or its error. `None` if
    /// it is not known yet. Values come in the order of the reads, each once. Never waits.
    fn take_read(&mut self) -> Option<Result<Self::Host, DeviceError>> {
        None
    }

    /// Copies `bytes` bytes from offset `from` to offset `to`; the ranges may overlap.
    ///
    /// # Errors
    /// If the copy failed. The bytes at `from` are taken to be still there.
    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Scratch bytes a run of `op` needs: all it takes beside its operands that grows with their shapes. Must not
    /// depend on anything but the arguments.
    fn workspace(&self, _op: &Self::Op, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Offsets in this range may be used from now on, where [`Device::give_back`] was told of them before, or memory is
    /// taken as needed ([`Settings::allow_growth`](crate::Settings::allow_growth)): regions then come one after the
    /// other from 0 on.
    ///
    /// # Errors
    /// If the memory is not to be had. Less may be asked for then, or something is evicted instead.
    fn take(&mut self, _offsets: Range<u64>) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Nothing lies in this range of offsets, and nothing will before [`Device::take`]: the memory may be used for
    /// something else. Called when the budget is lowered.
    fn give_back(&mut self, _offsets: Range<u64>) {}

    /// The bytes behind this [`Place::storage`] are needed no more. Called where the device owns its memory; the number
    /// is not used again.
    fn release(&mut self, _storage: u64) {}

    /// Copies a tensor's elements to another place of the same layout but for strides and offset; the target is packed.
    /// Called for updates that keep the old value. Where the engine hands out offsets, this is a [`Device::copy`].
    ///
    /// # Errors
    /// If the copy failed. After [`DeviceError::out_of_memory`], something is evicted and the same is called again.
    fn duplicate(&mut self, from: Place, to: Place) -> Result<(), DeviceError> {
        let skip = from.layout.offset() as u64 * from.layout.dtype().bytes() as u64;
        self.copy(from.storage + skip, to.storage, to.layout.bytes())
    }

    /// Runs an op.
    ///
    /// # Errors
    /// If it could not be run. A panic is taken as an error too. After [`DeviceError::out_of_memory`], which must come
    /// before anything is written, something is evicted and the same is called again.
    fn execute(&mut self, call: Call<'_, Self::Op>) -> Result<Took, DeviceError>;

    /// Seconds that a run of `op` will take that is put off for want of room, where the device knows as if it had been made: one
    /// that does what was recorded does. Default: it is not known.
    fn foretell(&mut self, _op: &Self::Op) -> Option<f64> {
        None
    }

    /// The same for a [`Device::write`].
    fn foretell_write(&mut self, _host: &Self::Host) -> Option<f64> {
        None
    }

    /// The seconds of the oldest call that returned [`Took::Later`] and whose time was not taken yet. `None` if
    /// they are not known yet, NaN if they never will be. Never waits.
    fn take_time(&mut self) -> Option<f64> {
        None
    }

    /// Waits until all calls have taken effect.
    ///
    /// # Errors
    /// A failure of one of them that was not returned before.
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

    /// The device has no room for what it was asked to do, and has done nothing of it.
    #[must_use]
    pub fn out_of_memory(message: impl AsRef<str>) -> Self {
        Self { out_of_memory: true, ..Self::new(message) }
    }

    /// Whether it is for want of memory.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        self.out_of_memory
    }
}
