//! Device of remat that owns its memory: the table of storages in the shim.

use crate::ffi::{rm_adopt, rm_clone, rm_execute, rm_release, rm_synchronize};
use crate::op::TorchOp;
use remat::Layout;
use remat::device::{Call, Device, DeviceError, Memory, Place, Took};
use std::ffi::{c_char, c_void};
use std::time::Instant;

/// Storage that becomes a leaf.
#[derive(Debug)]
pub(crate) struct Outside {
    pub storage: *mut c_void,
    pub tensor: u64,
    pub bytes: u64,
    pub tainted: bool,
}

// SAFETY: used only under the session's lock, in the command that puts the storage, whose caller holds it.
unsafe impl Send for Outside {}
// SAFETY: as for `Send`: nothing reads the pointer without the session's lock.
unsafe impl Sync for Outside {}

#[derive(Debug)]
pub(crate) struct TorchDevice {
    pub name: String,
    /// Whether runs are timed, which takes a synchronization on a GPU.
    pub timed: bool,
}

impl TorchDevice {
    /// Limit of the memory, to which the budget may rise. The budget is far smaller.
    pub const MOST: u64 = 1 << 60;
}

impl Device for TorchDevice {
    type Op = TorchOp;
    type Host = Outside;

    fn name(&self) -> &str {
        &self.name
    }

    fn memory(&self) -> Memory {
        Memory::Owned { bytes: Self::MOST }
    }

    fn layout_of(host: &Outside) -> Layout {
        Layout::raw(host.bytes as usize)
    }

    fn write(&mut self, host: &Outside, to: Place) -> Result<Took, DeviceError> {
        // SAFETY: the storage is alive, because the caller of the running command holds it.
        unsafe { rm_adopt(host.storage, host.tensor, to.storage, host.tainted) };
        Ok(Took::Unknown)
    }

    /// Always fails, because the program reads tensors directly in memory.
    fn read(&mut self, _from: Place) -> Result<Outside, DeviceError> {
        Err(DeviceError::new("a tensor of PyTorch's is read where it lies"))
    }

    fn copy(&mut self, _from: u64, _to: u64, _bytes: u64) -> Result<(), DeviceError> {
        Err(DeviceError::new("storages of PyTorch's have no offsets to copy between"))
    }

    fn duplicate(&mut self, from: Place, to: Place) -> Result<(), DeviceError> {
        // SAFETY: the engine passes the number of a resident storage, and a new number.
        match unsafe { rm_clone(from.storage, to.storage) } {
            0 => Ok(()),
            2 => Err(DeviceError::out_of_memory("no memory for a copy of a tensor")),
            _ => Err(DeviceError::new("the copy of a tensor failed")),
        }
    }

    fn release(&mut self, storage: u64) {
        // SAFETY: the shim ignores numbers that it does not know.
        unsafe { rm_release(storage) };
    }

    fn execute(&mut self, call: Call<'_, TorchOp>) -> Result<Took, DeviceError> {
        extern "C" fn say(text: *mut c_void, from: *const c_char, length: usize) {
            // SAFETY: `text` is the string below, and `from` has `length` bytes.
            let (text, bytes) = unsafe {
                (&mut *text.cast::<String>(), std::slice::from_raw_parts(from.cast::<u8>(), length))
            };
            *text = String::from_utf8_lossy(bytes).into_owned();
        }
        let number = |place: &Place| place.storage;
        let inputs: Vec<u64> = call.inputs.iter().map(number).collect();
        let outputs: Vec<u64> = call.outputs.iter().map(number).collect();
        let mut text = String::new();
        let now = || {
            // SAFETY: the caller of the command holds the session's lock.
            unsafe { rm_synchronize() };
            Instant::now()
        };
        let start = (self.timed && call.timed).then(now);
        // SAFETY: the record is alive, and the numbers are those of resident inputs and of new outputs.
        let code = unsafe {
            rm_execute(
                call.op.record.0,
                inputs.as_ptr(),
                inputs.len(),
                outputs.as_ptr(),
                outputs.len(),
                (&raw mut text).cast(),
                say,
            )
        };
        match code {
            0 => {
                let seconds = start.map(|start| (now() - start).as_secs_f64());
                Ok(seconds.map_or(Took::Unknown, Took::Seconds))
            }
            2 => Err(DeviceError::out_of_memory(text)),
            _ => Err(DeviceError::new(text)),
        }
    }
}
