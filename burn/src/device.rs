//! A Burn backend as a device of remat's. The memory is Burn's: buffers have the numbers that the engine gives them.

use crate::backend::Facts;
use crate::form::layout;
use crate::op::{BurnOp, Looks, Seen};
use crate::random::{self, alone, draw};
use burn_backend::{DType, Shape, TensorData, TensorMetadata};
use burn_ir::{
    BackendIr, BaseOperationIr as Base, FlipOpIr, HandleKind, OperationIr, TensorId, TensorIr,
    TensorStatus,
};
use burn_router::{CustomOpRegistry, TensorInterpreter};
use remat::Layout;
use remat::device::{Call, Device, DeviceError, Memory, Place, Took};
use smallvec::SmallVec;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    /// Knows buffers by the numbers of their places, and views, while an op runs, by [`Seen::number`].
    interpreter: TensorInterpreter<B>,
    facts: Facts,
    bytes: u64,
    /// What Flex or CubeCL really holds: of each place, which buffer, and how long it is. `None` where nobody looks.
    #[cfg(test)]
    pub live: Option<std::collections::BTreeMap<u64, (usize, usize)>>,
}

impl<B: BackendIr> BurnDevice<B> {
    /// With so many bytes, and these custom operations.
    pub fn new(
        device: B::Device,
        facts: Facts,
        bytes: u64,
        custom_ops: CustomOpRegistry<B>,
    ) -> Self {
        Self {
            name: B::name(&device),
            interpreter: TensorInterpreter::with_custom_ops(device, custom_ops),
            facts,
            bytes,
            #[cfg(test)]
            live: Some(Default::default()),
        }
    }

    /// The value of a tensor whose storage is at `place`. If it is a view, `looks` has it as its only input.
    pub fn read_view(
        &mut self,
        looks: Option<&Looks>,
        ir: &TensorIr,
        place: Place,
    ) -> Result<TensorData, DeviceError> {
        let number = looks.map_or(place.storage, |looks| looks.inputs[0].number(&[place]));
        let (id, status) = (TensorId::new(number), TensorStatus::ReadOnly);
        let ir = TensorIr { id, status, ..ir.clone() };
        self.attempt(looks, &[place], |device| {
            burn_std::future::block_on(device.interpreter.read_tensor_async(ir))
        })?
        .map_err(|error| DeviceError::new(error.to_string()))
    }

    /// Does something for which views are made. They go again, also if it panics.
    fn attempt<T>(
        &mut self,
        looks: Option<&Looks>,
        at: &[Place],
        with: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, DeviceError> {
        let steps = looks.map_or(&[][..], |looks| &looks.steps);
        let made = |step: usize| Seen::Step(step as u32).number(at);
        let done = catch_unwind(AssertUnwindSafe(|| {
            for (step, (op, seen)) in steps.iter().enumerate() {
                self.look(op, seen.number(at), made(step));
            }
            with(self)
        }));
        (0..steps.len()).for_each(|step| self.forget(made(step)));
        done.map_err(|panic| DeviceError::new(words(&*panic)))
    }

    /// Makes a view.
    fn look(&mut self, op: &BurnOp, of: u64, made: u64) {
        let ir = op.form.with([of].into_iter(), [made].into_iter(), false);
        #[cfg(test)]
        let dtypes = ir.inputs().next().zip(ir.outputs().next()).map(|(a, b)| (a.dtype, b.dtype));
        self.interpreter.register_op(ir);
        #[cfg(test)]
        if let Some((input, view)) = dtypes {
            let at = [(of, input), (made, view)]
                .map(|(number, dtype)| self.buffer(number, dtype).unwrap_or_default());
            assert_eq!(at[0], at[1], "what is taken for a view has a buffer of its own");
        }
    }

    /// Which buffer a tensor of Flex's or CubeCL's has, and how long that is.
    #[cfg(test)]
    fn buffer(&mut self, number: u64, dtype: DType) -> Option<(usize, usize)> {
        let id = TensorId::new(number);
        let (shape, status) = (Shape::from(Vec::<usize>::new()), TensorStatus::ReadOnly);
        let ir = TensorIr { id, shape, status, dtype };
        #[cfg(feature = "wgpu")]
        if let Some(cubecl) =
            (self as &mut dyn Any).downcast_mut::<BurnDevice<burn::backend::Wgpu>>()
        {
            let handle = cubecl.interpreter.get_tensor_handle(&ir).handle;
            let bytes = handle.size() as usize;
            return Some((handle.memory.binding().id().value, bytes));
        }
        let flex = (self as &mut dyn Any).downcast_mut::<BurnDevice<burn_flex::Flex>>()?;
        match flex.interpreter.get_tensor_handle(&ir) {
            HandleKind::Float(tensor) | HandleKind::Int(tensor) | HandleKind::Bool(tensor) => {
                Some((tensor.bytes().as_ptr() as usize, tensor.bytes().len()))
            }
            HandleKind::Quantized(_) => None,
        }
    }

    #[cfg(test)]
    fn note(&mut self, place: u64, shape: &[usize], dtype: DType) {
        if self.live.is_none() {
            return;
        }
        let buffer = self.buffer(place, dtype);
        if let (Some(live), Some((buffer, bytes))) = (&mut self.live, buffer) {
            // CubeCL has buffers in pieces of 32 bytes, which are not counted.
            let counted = layout(shape, dtype).bytes() as usize;
            let padded = self.facts.unshare && bytes == counted.next_multiple_of(32);
            live.insert(place, (buffer, if padded { counted } else { bytes }));
        }
    }

    /// Panics unless the buffers of the backend are as many bytes as remat counts, and no two are one.
    #[cfg(test)]
    pub fn check(&self, used: u64) {
        let seen = self.name == "flex" || cfg!(feature = "wgpu") && self.facts.unshare;
        let Some(live) = self.live.as_ref().filter(|_| seen) else { return };
        let held: usize = live.values().map(|(_, bytes)| bytes).sum();
        assert_eq!(held as u64, used, "bytes that are there, and bytes that are counted");
        let mut all: Vec<usize> =
            live.values().filter(|(_, bytes)| *bytes > 0).map(|(at, _)| *at).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]), "a view was not taken for one");
        assert!(used <= self.bytes);
    }

    fn forget(&mut self, number: u64) {
        let none = TensorIr {
            id: TensorId::new(number),
            shape: Shape::from(Vec::<usize>::new()),
            status: TensorStatus::ReadWrite,
            dtype: DType::F32,
        };
        self.interpreter.register_op(OperationIr::Drop(none));
    }

    fn run(&mut self, call: &Call<'_, BurnOp>) {
        let op = call.op;
        let takes_first = op.takes_first();
        let reads = (0..call.inputs.len()).map(|input| match &op.looks {
            None => call.inputs[input].storage,
            Some(looks) => looks.inputs[input].number(call.inputs),
        });
        let makes = call.outputs.iter().map(|place| place.storage);
        let ir = || op.form.with(reads, makes.clone(), takes_first);
        match op.seed {
            None => {
                let ir = ir();
                let made: SmallVec<[TensorIr; 2]> = match self.facts.unshare {
                    true => ir.outputs().cloned().collect(),
                    false => SmallVec::new(),
                };
                let custom = match &ir {
                    OperationIr::Custom(op) => op.outputs.clone(),
                    _ => Vec::new(),
                };
                self.interpreter.register_op(ir);
                custom.into_iter().for_each(|out| self.expect(out));
                made.into_iter().for_each(|out| self.unshare(out));
            }
            Some(seed) => match random::random(&op.form.ir) {
                Some(random) if self.facts.on_host => {
                    let data = draw(random, seed);
                    for number in makes {
                        self.interpreter
                            .register_tensor_data_id(TensorId::new(number), data.clone());
                    }
                }
                _ => {
                    let _alone = alone();
                    self.interpreter.seed(seed);
                    self.interpreter.register_op(ir());
                }
            },
        }
    }
}

impl<B: BackendIr> BurnDevice<B> {
    /// Gives a tensor a buffer of its own if it shares one: the budget counts it as one, and the other's may be evicted alone.
    fn unshare(&mut self, tensor: TensorIr) {
        let (id, dtype) = (tensor.id, tensor.dtype);
        if tensor.shape.contains(&0) || matches!(dtype, DType::QFloat(_)) {
            return;
        }
        let tensor = TensorIr { status: TensorStatus::ReadWrite, ..tensor };
        let made = self.interpreter.get_tensor(&tensor);
        let alone = match &made {
            HandleKind::Float(made) => made.can_mut(),
            HandleKind::Int(made) => made.can_mut(),
            HandleKind::Bool(made) => made.can_mut(),
            HandleKind::Quantized(_) => true,
        };
        self.interpreter.register_tensor_to_device(id, made);
        if alone {
            return;
        }
        // Flipping nothing is what always copies.
        let out = TensorIr { status: TensorStatus::NotInit, ..tensor.clone() };
        let copy = Base::Flip(FlipOpIr { input: tensor, out, axes: Vec::new() });
        self.interpreter.register_op(match dtype {
            DType::Bool(_) => OperationIr::BaseBool(copy),
            dtype if dtype.is_float() => OperationIr::BaseFloat(copy),
            _ => OperationIr::BaseInt(copy),
        });
    }

    /// Panics unless a tensor is there, and is as its description says: the budget counts what that says.
    fn expect(&mut self, tensor: TensorIr) {
        let tensor = TensorIr { status: TensorStatus::ReadOnly, ..tensor };
        let made = match self.interpreter.get_tensor(&tensor) {
            HandleKind::Float(tensor) => (tensor.shape(), tensor.dtype()),
            HandleKind::Int(tensor) => (tensor.shape(), tensor.dtype()),
            HandleKind::Bool(tensor) => (tensor.shape(), tensor.dtype()),
            HandleKind::Quantized(_) => return,
        };
        let said = (tensor.shape, tensor.dtype);
        assert!(made == said, "its handler made {made:?}, and the operation says {said:?}");
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
        self.attempt(None, &[], |device| {
            device.interpreter.register_tensor_data_id(TensorId::new(to.storage), data);
        })?;
        #[cfg(test)]
        self.note(to.storage, &host.shape, host.dtype);
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
        self.forget(storage);
        #[cfg(test)]
        self.live.iter_mut().for_each(|live| {
            live.remove(&storage);
        });
    }

    fn execute(&mut self, call: Call<'_, BurnOp>) -> Result<Took, DeviceError> {
        let start = call.timed.then(Instant::now);
        let ran = self.attempt(call.op.looks.as_deref(), call.inputs, |device| device.run(&call));
        if ran.is_err() {
            // Of several outputs, some may be there.
            call.outputs.iter().for_each(|place| self.forget(place.storage));
        }
        #[cfg(test)]
        if ran.is_ok() {
            for (out, place) in call.op.form.ir.outputs().zip(call.outputs) {
                self.note(place.storage, &out.shape, out.dtype);
            }
        }
        let took =
            start.map_or(Took::Unknown, |start| Took::Seconds(start.elapsed().as_secs_f64()));
        ran.map(|()| took)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.attempt(None, &[], |device| device.interpreter.sync())?
            .map_err(|error| DeviceError::new(error.to_string()))
    }
}

/// What a panic said.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
