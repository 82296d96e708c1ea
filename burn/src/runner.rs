//! Runner: a Burn backend, with tensors named by numbers.

use crate::backend::Facts;
#[cfg(test)]
use crate::form::layout;
use crate::op::{BurnOp, Looks, Seen};
use crate::random::{self, alone, draw};
use burn_backend::{DType, Shape, TensorData, TensorMetadata};
use burn_ir::{
    BackendIr, BaseOperationIr as Base, FlipOpIr, HandleKind, OperationIr, TensorId, TensorIr,
    TensorStatus,
};
use burn_router::{CustomOpRegistry, TensorInterpreter};
use remat::device::DeviceError;
use smallvec::SmallVec;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Burn's interpreter of operations, and the properties of its backend.
pub(crate) struct Runner<B: BackendIr> {
    /// Burn's interpreter. Each tensor has the number of its storage as its id. A view exists only
    /// while an op runs, and has the id given by [`Seen::number`].
    interpreter: TensorInterpreter<B>,
    facts: Facts,
    /// Actual buffers of Flex or CubeCL: address and length of the buffer of each storage. `None`
    /// if buffers are not recorded.
    #[cfg(test)]
    pub live: Option<std::collections::BTreeMap<u64, (usize, usize)>>,
}

/// Run of an op.
pub(crate) struct Run {
    pub op: BurnOp,
    /// Numbers of the storages that the op reads.
    pub inputs: SmallVec<[u64; 4]>,
    /// Numbers of the storages that the op makes.
    pub outputs: SmallVec<[u64; 2]>,
    /// Whether the op may overwrite its first input.
    pub takes_first: bool,
    /// Whether the run is timed.
    pub timed: bool,
}

impl<B: BackendIr> Runner<B> {
    pub fn new(device: B::Device, facts: Facts, custom_ops: CustomOpRegistry<B>) -> Self {
        Self {
            interpreter: TensorInterpreter::with_custom_ops(device, custom_ops),
            facts,
            #[cfg(test)]
            live: Some(Default::default()),
        }
    }

    /// Uploads a value as the tensor `number`.
    pub fn write(&mut self, number: u64, data: TensorData) -> Result<(), DeviceError> {
        #[cfg(test)]
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        self.attempt(None, &[], |runner| {
            runner.interpreter.register_tensor_data_id(TensorId::new(number), data);
        })?;
        #[cfg(test)]
        self.note(number, &shape, dtype);
        Ok(())
    }

    /// Reads the tensor in `storage`. If the tensor is a view, the only input of `looks` contains
    /// the ops that make the view.
    pub fn read(
        &mut self,
        looks: Option<&Looks>,
        ir: &TensorIr,
        storage: u64,
    ) -> Result<TensorData, DeviceError> {
        let number = looks.map_or(storage, |looks| looks.inputs[0].number(&[storage]));
        let (id, status) = (TensorId::new(number), TensorStatus::ReadOnly);
        let ir = TensorIr { id, status, ..ir.clone() };
        self.attempt(looks, &[storage], |runner| {
            burn_std::future::block_on(runner.interpreter.read_tensor_async(ir))
        })?
        .map_err(|error| DeviceError::new(error.to_string()))
    }

    /// Runs an op. Returns the seconds that the run took, if `run.timed`.
    pub fn run(&mut self, run: &Run) -> Result<Option<f64>, DeviceError> {
        let start = run.timed.then(Instant::now);
        let ran = self.attempt(run.op.looks.as_deref(), &run.inputs, |runner| runner.execute(run));
        if ran.is_err() {
            // Some of the outputs may have been made.
            run.outputs.iter().for_each(|&made| self.forget(made));
        }
        #[cfg(test)]
        if ran.is_ok() {
            for (out, made) in run.op.form.ir.outputs().zip(&run.outputs) {
                self.note(*made, &out.shape, out.dtype);
            }
        }
        ran.map(|()| start.map(|start| start.elapsed().as_secs_f64()))
    }

    /// Releases the tensor `number`.
    pub fn forget(&mut self, number: u64) {
        let none = TensorIr {
            id: TensorId::new(number),
            shape: Shape::from(Vec::<usize>::new()),
            status: TensorStatus::ReadWrite,
            dtype: DType::F32,
        };
        self.interpreter.register_op(OperationIr::Drop(none));
        #[cfg(test)]
        self.live.iter_mut().for_each(|live| {
            live.remove(&number);
        });
    }

    /// Waits until all work is done.
    pub fn sync(&mut self) -> Result<(), DeviceError> {
        self.attempt(None, &[], |runner| runner.interpreter.sync())?
            .map_err(|error| DeviceError::new(error.to_string()))
    }

    /// Makes the views of `looks`, calls `with`, and drops the views, also after a panic.
    ///
    /// # Errors
    /// A [`DeviceError`] with the message of the panic.
    fn attempt<T>(
        &mut self,
        looks: Option<&Looks>,
        at: &[u64],
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

    /// Makes a view of the tensor number `of`. The view gets the number `made`.
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

    /// Address of the buffer of a tensor, and the buffer's length in bytes. Known for Flex and
    /// CubeCL only.
    #[cfg(test)]
    fn buffer(&mut self, number: u64, dtype: DType) -> Option<(usize, usize)> {
        let id = TensorId::new(number);
        let (shape, status) = (Shape::from(Vec::<usize>::new()), TensorStatus::ReadOnly);
        let ir = TensorIr { id, shape, status, dtype };
        #[cfg(feature = "wgpu")]
        if let Some(cubecl) = (self as &mut dyn Any).downcast_mut::<Runner<burn::backend::Wgpu>>() {
            let handle = cubecl.interpreter.get_tensor_handle(&ir).handle;
            let bytes = handle.size() as usize;
            return Some((handle.memory.binding().id().value, bytes));
        }
        let flex = (self as &mut dyn Any).downcast_mut::<Runner<burn_flex::Flex>>()?;
        match flex.interpreter.get_tensor_handle(&ir) {
            HandleKind::Float(tensor) | HandleKind::Int(tensor) | HandleKind::Bool(tensor) => {
                Some((tensor.bytes().as_ptr() as usize, tensor.bytes().len()))
            }
            HandleKind::Quantized(_) => None,
        }
    }

    fn execute(&mut self, run: &Run) {
        let op = &run.op;
        let reads = (0..run.inputs.len()).map(|input| match &op.looks {
            None => run.inputs[input],
            Some(looks) => looks.inputs[input].number(&run.inputs),
        });
        let makes = run.outputs.iter().copied();
        let ir = || op.form.with(reads, makes, run.takes_first);
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
                    let made = TensorId::new(run.outputs[0]);
                    self.interpreter.register_tensor_data_id(made, draw(random, seed));
                }
                _ => {
                    let _alone = alone();
                    self.interpreter.seed(seed);
                    self.interpreter.register_op(ir());
                }
            },
        }
    }

    /// Copies the tensor into a buffer of its own, if another tensor shares its buffer. The budget
    /// counts the bytes of both tensors, and each tensor may be evicted without the other.
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
        // A flip of no axes copies the tensor.
        let out = TensorIr { status: TensorStatus::NotInit, ..tensor.clone() };
        let copy = Base::Flip(FlipOpIr { input: tensor, out, axes: Vec::new() });
        self.interpreter.register_op(match dtype {
            DType::Bool(_) => OperationIr::BaseBool(copy),
            dtype if dtype.is_float() => OperationIr::BaseFloat(copy),
            _ => OperationIr::BaseInt(copy),
        });
    }

    /// Checks that a tensor has the shape and type of its description, because the budget counts
    /// the bytes by the description.
    ///
    /// # Panics
    /// Panics if the tensor is missing, or has another shape or type.
    fn expect(&mut self, tensor: TensorIr) {
        let tensor = TensorIr { status: TensorStatus::ReadOnly, ..tensor };
        let made = match self.interpreter.get_tensor(&tensor) {
            HandleKind::Float(tensor) => (tensor.shape(), tensor.dtype()),
            HandleKind::Int(tensor) => (tensor.shape(), tensor.dtype()),
            HandleKind::Bool(tensor) => (tensor.shape(), tensor.dtype()),
            HandleKind::Quantized(_) => return,
        };
        let said = (tensor.shape, tensor.dtype);
        assert!(made == said, "the handler made {made:?}, but the operation declares {said:?}");
    }

    #[cfg(test)]
    fn note(&mut self, place: u64, shape: &[usize], dtype: DType) {
        if self.live.is_none() {
            return;
        }
        let buffer = self.buffer(place, dtype);
        if let (Some(live), Some((buffer, bytes))) = (&mut self.live, buffer) {
            // CubeCL rounds the size of a buffer up to a multiple of 32 bytes. The rounding is not
            // part of the budget.
            let counted = layout(shape, dtype).bytes() as usize;
            let padded = self.facts.unshare && bytes == counted.next_multiple_of(32);
            live.insert(place, (buffer, if padded { counted } else { bytes }));
        }
    }

    /// Checks the backend's buffers.
    ///
    /// # Panics
    /// Panics if the bytes of the buffers differ from the bytes that remat counts, or two tensors share a
    /// buffer.
    #[cfg(test)]
    pub fn check(&self, used: u64) {
        let seen = self.facts.on_host || cfg!(feature = "wgpu") && self.facts.unshare;
        let Some(live) = self.live.as_ref().filter(|_| seen) else { return };
        let held: usize = live.values().map(|(_, bytes)| bytes).sum();
        assert_eq!(held as u64, used, "bytes that are there, and bytes that are counted");
        let mut all: Vec<usize> =
            live.values().filter(|(_, bytes)| *bytes > 0).map(|(at, _)| *at).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]), "a view was not taken for one");
    }
}

/// Message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
