//! A Burn backend as a device of remat's. The memory is Burn's: buffers have the numbers that the engine gives them.

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

/// A value from the host.
#[derive(Debug)]
pub(crate) struct Host {
    shape: Shape,
    dtype: DType,
    /// `None` once it was given away.
    data: Mutex<Option<TensorData>>,
    /// Uploaded once, so that nothing of it need be kept here.
    once: bool,
}

impl Host {
    pub fn new(data: TensorData, once: bool) -> Self {
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        Self { shape, dtype, data: Mutex::new(Some(data)), once }
    }

    /// What it is on the device.
    pub fn layout(&self) -> Layout {
        layout(&self.shape, self.dtype)
    }

    fn data(&self) -> Result<TensorData, DeviceError> {
        let mut data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        let data = if self.once { data.take() } else { data.clone() };
        data.ok_or_else(|| DeviceError::new("an upload that is made once was asked for again"))
    }
}

/// The backend, and the memory that it may use.
pub(crate) struct BurnDevice<B: BackendIr> {
    name: String,
    bytes: u64,
    runs: Runs<B>,
}

/// Where operations run.
enum Runs<B: BackendIr> {
    /// On the engine's thread.
    Here(Runner<B>),
    Behind(Behind<B>),
    /// Nowhere: values are zeros.
    Sim,
}

impl<B: BackendIr> BurnDevice<B> {
    /// With so many bytes, and these custom operations. Operations run on the thread that asks for them.
    pub fn new(
        device: B::Device,
        facts: Facts,
        bytes: u64,
        custom_ops: CustomOpRegistry<B>,
    ) -> Self {
        let name = B::name(&device);
        Self { name, bytes, runs: Runs::Here(Runner::new(device, facts, custom_ops)) }
    }

    /// Operations run on a thread of their own.
    pub fn behind(mut self) -> std::io::Result<Self> {
        if let Runs::Here(runner) = self.runs {
            self.runs = Runs::Behind(Behind::new(runner)?);
        }
        Ok(self)
    }

    /// Nothing runs, and nothing takes memory.
    pub fn sim(device: &B::Device, bytes: u64) -> Self {
        Self { name: B::name(device), bytes, runs: Runs::Sim }
    }

    /// The value of a tensor whose storage is at `place`; or why it is not there, if that is an op that failed. If it is a view,
    /// `looks` has it as its only input.
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

    /// Waits until what was told so far is done here, if that may be behind.
    pub fn catch_up(&self) {
        if let Runs::Behind(behind) = &self.runs {
            behind.catch_up();
        }
    }

    /// The first op that failed after the engine had gone on, and that nobody was told of.
    pub fn take_failure(&self) -> Option<DeviceFault> {
        match &self.runs {
            Runs::Behind(behind) => behind.take_failure(),
            Runs::Here(_) | Runs::Sim => None,
        }
    }

    /// Panics unless the buffers of the backend are as many bytes as remat counts, and no two are one.
    #[cfg(test)]
    pub fn check(&self, used: u64) {
        match &self.runs {
            Runs::Here(runner) => runner.check(used),
            Runs::Behind(behind) => behind.look(move |runner| runner.check(used)),
            Runs::Sim => {}
        }
        assert!(used <= self.bytes);
    }

    /// Nobody looks at buffers any more.
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

    /// Values are read by [`BurnDevice::read_view`], which knows the tensor.
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

    /// An op that failed is no failure of this: see [`BurnDevice::take_failure`].
    fn sync(&mut self) -> Result<(), DeviceError> {
        match &mut self.runs {
            Runs::Here(runner) => runner.sync(),
            Runs::Behind(behind) => behind.sync(),
            Runs::Sim => Ok(()),
        }
    }
}
