//! Burn backend as a device of remat. Burn owns the memory, and the engine assigns each buffer a
//! number.

use crate::backend::Facts;
use crate::behind::Behind;
use crate::form::layout;
use crate::op::{BurnOp, Looks};
use crate::runner::{Run, Runner};
use burn_backend::{DType, Shape, TensorData};
use burn_ir::{BackendIr, TensorIr};
use burn_router::CustomOpRegistry;
use remat::Layout;
use remat::device::{Call, Device, DeviceError, Memory, Place, Took};
use remat::error::DeviceFault;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Value from the host.
#[derive(Debug)]
pub(crate) struct Host {
    shape: Shape,
    dtype: DType,
    /// Data of the value; `None` after it was taken.
    data: Mutex<Option<TensorData>>,
    /// Whether the value is uploaded only once. If so, the upload takes `data`.
    once: bool,
}

impl Host {
    pub fn new(data: TensorData, once: bool) -> Self {
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        Self { shape, dtype, data: Mutex::new(Some(data)), once }
    }

    /// Layout of the value on the device.
    pub fn layout(&self) -> Layout {
        layout(&self.shape, self.dtype)
    }

    fn data(&self) -> Result<TensorData, DeviceError> {
        let mut data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        let data = if self.once { data.take() } else { data.clone() };
        data.ok_or_else(|| DeviceError::new("an upload that is kept only once was requested again"))
    }
}

/// Burn backend that may use `bytes` bytes of memory.
pub(crate) struct BurnDevice<B: BackendIr> {
    name: String,
    bytes: u64,
    runs: Runs<B>,
}

/// Thread on which operations run.
enum Runs<B: BackendIr> {
    /// The engine's thread.
    Here(Runner<B>),
    Behind(Behind<B>),
    /// Simulation: no operation runs, and all values that are read are zeros.
    Sim,
}

impl<B: BackendIr> BurnDevice<B> {
    /// Makes a device with `bytes` bytes of memory and these custom operations. Operations run on
    /// the caller's thread.
    pub fn new(
        device: B::Device,
        facts: Facts,
        bytes: u64,
        custom_ops: CustomOpRegistry<B>,
    ) -> Self {
        let name = B::name(&device);
        Self { name, bytes, runs: Runs::Here(Runner::new(device, facts, custom_ops)) }
    }

    /// Moves the runner to a separate thread.
    pub fn behind(mut self) -> std::io::Result<Self> {
        if let Runs::Here(runner) = self.runs {
            self.runs = Runs::Behind(Behind::new(runner)?);
        }
        Ok(self)
    }

    /// Makes a device that runs nothing and takes no memory.
    pub fn sim(device: &B::Device, bytes: u64) -> Self {
        Self { name: B::name(device), bytes, runs: Runs::Sim }
    }

    /// Reads a tensor whose storage is at `place`. If the tensor is a view, the only input of
    /// `looks` contains the ops that make the view.
    ///
    /// The inner error is the failure of the op that should have made the tensor.
    pub fn read_view(
        &mut self,
        looks: Option<&Looks>,
        ir: &TensorIr,
        place: Place,
    ) -> Result<Result<TensorData, DeviceFault>, DeviceError> {
        match &mut self.runs {
            Runs::Here(runner) => runner.read(looks, ir, place.storage).map(Ok),
            Runs::Behind(behind) => behind.read(looks.cloned(), ir.clone(), place.storage),
            Runs::Sim => Ok(Ok(TensorData::full_dtype(ir.shape.clone(), 0, ir.dtype))),
        }
    }

    /// Waits until the backend has received all operations so far, if operations run on another
    /// thread.
    pub fn catch_up(&self) {
        if let Runs::Behind(behind) = &self.runs {
            behind.catch_up();
        }
    }

    /// Takes the first unreported failure of an op that ran on another thread.
    pub fn take_failure(&self) -> Option<DeviceFault> {
        match &self.runs {
            Runs::Behind(behind) => behind.take_failure(),
            Runs::Here(_) | Runs::Sim => None,
        }
    }

    /// Checks the backend's buffers.
    ///
    /// # Panics
    /// Panics if the bytes of the buffers differ from the bytes that remat counts, or two tensors share a
    /// buffer.
    #[cfg(test)]
    pub fn check(&self, used: u64) {
        match &self.runs {
            Runs::Here(runner) => runner.check(used),
            Runs::Behind(behind) => behind.look(move |runner| runner.check(used)),
            Runs::Sim => {}
        }
        assert!(used <= self.bytes);
    }

    /// Stops recording which buffers the backend holds.
    #[cfg(test)]
    pub fn look_away(&mut self) {
        match &mut self.runs {
            Runs::Here(runner) => runner.live = None,
            Runs::Behind(behind) => behind.look(|runner| runner.live = None),
            Runs::Sim => {}
        }
    }
}

impl<B: BackendIr> Device for BurnDevice<B> {
    type Op = BurnOp;
    type Host = Host;

    fn name(&self) -> &str {
        &self.name
    }

    fn memory(&self) -> Memory {
        Memory::Owned { bytes: self.bytes }
    }

    fn layout_of(host: &Host) -> Layout {
        host.layout()
    }

    fn write(&mut self, host: &Host, to: Place) -> Result<Took, DeviceError> {
        let start = Instant::now();
        let data = host.data()?;
        match &mut self.runs {
            Runs::Here(runner) => runner.write(to.storage, data)?,
            Runs::Behind(behind) => behind.write(to.storage, data)?,
            Runs::Sim => {}
        }
        Ok(Took::Seconds(start.elapsed().as_secs_f64()))
    }

    /// Always fails. Values are read by [`BurnDevice::read_view`], which also gets the shape and
    /// type of the tensor.
    fn read(&mut self, _from: Place) -> Result<Host, DeviceError> {
        Err(DeviceError::new("a tensor of Burn's is read through a visit"))
    }

    fn copy(&mut self, _from: u64, _to: u64, _bytes: u64) -> Result<(), DeviceError> {
        Err(DeviceError::new("buffers of Burn's have no offsets to copy between"))
    }

    fn release(&mut self, storage: u64) {
        match &mut self.runs {
            Runs::Here(runner) => runner.forget(storage),
            Runs::Behind(behind) => behind.forget(storage),
            Runs::Sim => {}
        }
    }

    fn execute(&mut self, call: Call<'_, BurnOp>) -> Result<Took, DeviceError> {
        let run = Run {
            op: call.op.clone(),
            inputs: call.inputs.iter().map(|place| place.storage).collect(),
            outputs: call.outputs.iter().map(|place| place.storage).collect(),
            takes_first: call.op.takes_first(),
            timed: call.timed,
        };
        match &mut self.runs {
            Runs::Here(runner) => {
                runner.run(&run).map(|seconds| seconds.map_or(Took::Unknown, Took::Seconds))
            }
            Runs::Behind(behind) => {
                behind.run(run);
                Ok(if call.timed { Took::Later } else { Took::Unknown })
            }
            Runs::Sim => Ok(Took::Unknown),
        }
    }

    fn take_time(&mut self) -> Option<f64> {
        match &self.runs {
            Runs::Behind(behind) => behind.take_time(),
            Runs::Here(_) | Runs::Sim => None,
        }
    }

    /// Waits for all operations. A failed op is not reported here, but by
    /// [`BurnDevice::take_failure`].
    fn sync(&mut self) -> Result<(), DeviceError> {
        match &mut self.runs {
            Runs::Here(runner) => runner.sync(),
            Runs::Behind(behind) => behind.sync(),
            Runs::Sim => Ok(()),
        }
    }
}
