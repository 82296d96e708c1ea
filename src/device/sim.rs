//! A device that only counts bytes: it stores no data and computes no results. A formula gives the
//! duration of a run.
//!
//! The simulator runs the engine on a [`Sim`]. If a simulated device has the workspaces and costs
//! of a real device, evictions and recomputations are the same as on the real device.

use crate::device::cpu::Kernels;
use crate::device::{Call, Device, DeviceError, Memory, Place, Took};
use crate::host::HostTensor;
use crate::layout::Layout;
use crate::op::Operation;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Speed of a simulated device. A run of an op takes `overhead + flops / flops_per_second + bytes /
/// bytes_per_second` seconds, where `bytes` is the number of bytes of the op's inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Floating-point operations per second.
    pub flops_per_second: f64,
    /// Bytes of memory traffic per second.
    pub bytes_per_second: f64,
    /// Seconds to start an op.
    pub overhead: f64,
}

impl Speed {
    /// Two cores of a server: 2e11 flop/s, 2e10 B/s, and one microsecond to start an op. The ratio
    /// of the two speeds affects which storages are evicted: ten flops cost as much as one byte.
    pub const CPU: Self = Self { flops_per_second: 2e11, bytes_per_second: 2e10, overhead: 1e-6 };

    /// A data-center GPU of 2022: 5e13 flop/s in f32, 2e12 B/s, and 3 microseconds for each kernel.
    pub const GPU: Self = Self { flops_per_second: 5e13, bytes_per_second: 2e12, overhead: 3e-6 };

    /// Seconds that a run takes.
    #[must_use]
    pub fn seconds(&self, flops: f64, bytes: f64) -> f64 {
        self.overhead + flops / self.flops_per_second + bytes / self.bytes_per_second
    }
}

/// Host values that a simulated device can receive.
///
/// A simulated device stores no elements. A read therefore returns a new value of the right shape
/// and type, whose elements have no meaning ([`HostValue::of`]).
pub trait HostValue: Sized + Send + Sync + 'static {
    /// Layout that the value has on the device: contiguous with offset 0.
    fn layout(&self) -> Layout;

    /// Makes a value of the shape and type of `layout`, with arbitrary elements.
    ///
    /// # Errors
    /// Fails if the host has no memory for the value.
    fn of(layout: &Layout) -> Result<Self, DeviceError>;
}

impl HostValue for HostTensor {
    fn layout(&self) -> Layout {
        Self::layout(self)
    }

    fn of(layout: &Layout) -> Result<Self, DeviceError> {
        Self::zeros(layout.dtype(), *layout.shape()).map_err(|e| DeviceError::new(e.to_string()))
    }
}

/// A layout can be a host value: data of known size without elements.
impl HostValue for Layout {
    fn layout(&self) -> Layout {
        Layout::contiguous(self.dtype(), *self.shape())
    }

    fn of(layout: &Layout) -> Result<Self, DeviceError> {
        Ok(layout.layout())
    }
}

/// Function that returns the scratch bytes of a run; see [`Device::workspace`].
type Workspace<O> = Arc<dyn Fn(&O, &[Layout], &[Layout]) -> u64 + Send + Sync>;

/// A device that only counts bytes.
pub struct Sim<O, H> {
    memory: Memory,
    speed: Speed,
    workspace: Workspace<O>,
    host: PhantomData<fn() -> H>,
}

impl<O: Operation, H: HostValue> Sim<O, H> {
    /// Makes a device of `bytes` bytes that has the speed `speed`, and whose ops need no workspace.
    /// Tensors have offsets, as on the CPU and on a GPU.
    #[must_use]
    pub fn new(bytes: u64, speed: Speed) -> Self {
        let memory = Memory::arena(bytes);
        Self { memory, speed, workspace: Arc::new(|_, _, _| 0), host: PhantomData }
    }

    /// Changes the memory to [`Memory::Counted`]. Tensors then have no offsets, so memory is never
    /// lost in free ranges that are too small.
    #[must_use]
    pub const fn without_places(mut self) -> Self {
        self.memory = Memory::Counted { bytes: self.memory.bytes() };
        self
    }

    /// Sets the workspaces of ops to the real device's workspaces.
    #[must_use]
    pub fn with_workspace(
        mut self,
        workspace: impl Fn(&O, &[Layout], &[Layout]) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.workspace = Arc::new(workspace);
        self
    }
}

impl<O: Kernels> Sim<O, HostTensor> {
    /// Makes a device that simulates a `cpu` device of `bytes` bytes: it computes nothing, but has
    /// the same peak of memory.
    #[must_use]
    pub fn cpu(bytes: u64) -> Self {
        Self::new(bytes, Speed::CPU).with_workspace(O::cpu_workspace)
    }
}

impl<O: Operation, H: HostValue> Device for Sim<O, H> {
    type Op = O;
    type Host = H;

    fn name(&self) -> &str {
        "sim"
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn layout_of(host: &H) -> Layout {
        host.layout()
    }

    fn write(&mut self, _host: &H, to: Place) -> Result<Took, DeviceError> {
        Ok(Took::Seconds(self.speed.seconds(0.0, to.layout.bytes() as f64)))
    }

    fn read(&mut self, from: Place) -> Result<H, DeviceError> {
        H::of(&from.layout)
    }

    fn copy(&mut self, _from: u64, _to: u64, _bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Does nothing, because an op must have no effect in a simulation.
    fn skip(&mut self, _op: &O, _why: &(dyn std::error::Error + 'static)) {}

    fn workspace(&self, op: &O, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        (self.workspace)(op, inputs, outputs)
    }

    fn execute(&mut self, call: Call<'_, O>) -> Result<Took, DeviceError> {
        let mut bytes = 0.0;
        for place in call.inputs.iter().chain(call.outputs) {
            bytes += place.layout.bytes() as f64;
        }
        Ok(Took::Seconds(self.speed.seconds(call.flops, bytes)))
    }
}

impl<O, H> Clone for Sim<O, H> {
    fn clone(&self) -> Self {
        let workspace = Arc::clone(&self.workspace);
        Self { memory: self.memory, speed: self.speed, workspace, host: PhantomData }
    }
}

impl<O, H> fmt::Debug for Sim<O, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("memory", &self.memory)
            .field("speed", &self.speed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostTensor;
    use crate::layout::DType;
    use crate::ops::{Conv2d, MatMul, Op};

    fn sim() -> Sim<Op, HostTensor> {
        Sim::cpu(1 << 20)
    }

    #[test]
    fn seconds_are_those_of_the_formula() {
        let mut sim = sim();
        let place =
            |shape: [usize; 2]| Place { storage: 0, layout: Layout::contiguous(DType::F32, shape) };
        let (inputs, outputs) = ([place([10, 20]), place([20, 30])], [place([10, 30])]);
        let call = Call {
            op: &MatMul.into(),
            inputs: &inputs,
            outputs: &outputs,
            flops: 360e3,
            workspace: 0..0,
            timed: false,
        };
        let expected = Speed::CPU.seconds(360e3, 4.0 * (200.0 + 600.0 + 300.0));
        assert_eq!(sim.execute(call).unwrap(), Took::Seconds(expected));
    }

    #[test]
    fn workspaces_are_those_of_the_cpu() {
        let layouts = [[2, 16, 8, 8], [8, 16, 3, 3], [2, 8, 8, 8]]
            .map(|shape| Layout::contiguous(DType::F32, shape));
        let conv = Conv2d::new([1, 1], [1, 1]).into();
        let bytes = sim().workspace(&conv, &layouts[..2], &layouts[2..]);
        let cpu = crate::device::cpu::Cpu::new(0, Some(1)).unwrap();
        assert_eq!(bytes, cpu.workspace(&conv, &layouts[..2], &layouts[2..]));
        assert!(bytes > 0);
        assert_eq!(sim().workspace(&MatMul.into(), &layouts[..2], &layouts[2..]), 0);
    }

    #[test]
    fn a_value_read_has_the_requested_shape() {
        let turned = Layout::contiguous(DType::I32, [2, 3]).permute(&[1, 0]).unwrap();
        let host = sim().read(Place { storage: 1 << 40, layout: turned }).unwrap();
        assert_eq!(host.layout(), Layout::contiguous(DType::I32, [3, 2]));
        let absurd = Layout::contiguous(DType::F32, [usize::MAX]);
        let error = sim().read(Place { storage: 0, layout: absurd }).unwrap_err();
        assert!(error.to_string().contains("does not have the memory"), "{error}");
        let mut bytes = Sim::<Op, Layout>::new(u64::MAX, Speed::CPU);
        assert_eq!(
            bytes.read(Place { storage: 0, layout: Layout::raw(1 << 50) }).unwrap().bytes(),
            1 << 50
        );
    }

    #[test]
    fn places_are_given_up_and_bytes_are_not() {
        assert_eq!(sim().memory(), Memory::Arena { bytes: 1 << 20, granularity: 256 });
        assert_eq!(sim().without_places().memory(), Memory::Counted { bytes: 1 << 20 });
        assert_eq!(sim().without_places().clone().memory().bytes(), 1 << 20);
    }
}
