//! A Burn operation as an op of remat's: what it is called, how much work it is, and what it needs to run again with the same
//! bits.

use crate::name::name_of;
use burn_backend::DType;
use burn_ir::{
    BaseOperationIr as Base, FloatOperationIr as Float, IntOperationIr as Int, IrVisitorMut,
    ModuleOperationIr as Module, OperationIr, TensorId, TensorIr, TensorStatus,
};
use remat::op::{OpError, Operation, Outputs};
use remat::{Dims, Layout};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An operation that can be run as often as it takes. Behind a pointer: Burn's are 600 bytes, and most that are kept never run
/// again.
#[derive(Clone, Debug)]
pub(crate) struct BurnOp(Arc<Body>);

#[derive(Debug)]
pub(crate) struct Body {
    name: Cow<'static, str>,
    /// With every input read-only: running it leaves them alone.
    pub ir: OperationIr,
    /// Ops that make the views it reads of the storages it reads, in order. What they make is there for this run only.
    pub views: Vec<Arc<OperationIr>>,
    /// For each input, the tensor whose storage it looks at; itself, if it is no view.
    pub reads: SmallVec<[TensorId; 3]>,
    /// Of random ops: what to seed the backend with.
    pub seed: Option<u64>,
    /// Whether Burn has no more use for the first input.
    pub ends_first: bool,
    /// Whether the next run may write over the first input.
    gives_first: AtomicBool,
    /// Whether it may run again.
    again: bool,
}

impl BurnOp {
    /// The others as in [`Body`]; `pure` says which custom ops are.
    pub fn new(
        mut ir: OperationIr,
        views: Vec<Arc<OperationIr>>,
        reads: SmallVec<[TensorId; 3]>,
        seed: Option<u64>,
        ends_first: bool,
        pure: &BTreeMap<String, bool>,
    ) -> Self {
        read_only(&mut ir);
        let again = match &ir {
            // Nobody else knows what it does besides.
            OperationIr::Custom(op) => pure.get(&op.id).copied().unwrap_or(false),
            // It needs the others.
            OperationIr::Distributed(_) => false,
            _ => true,
        };
        let (name, gives_first) = (name_of(&ir), AtomicBool::new(false));
        Self(Arc::new(Body { name, ir, views, reads, seed, ends_first, gives_first, again }))
    }
}

impl Body {
    /// The next run may write over the first input. Not over others: Flex swaps the operands of a sum to do so, and a sum of two
    /// NaN has the sign of the first, which must be the same when it is made again.
    pub fn give_first(&self) {
        self.gives_first.store(true, Ordering::Relaxed);
    }

    /// Whether this run may: no later one may then.
    pub fn takes_first(&self) -> bool {
        self.gives_first.swap(false, Ordering::Relaxed)
    }
}

impl std::ops::Deref for BurnOp {
    type Target = Body;

    fn deref(&self) -> &Body {
        &self.0
    }
}

impl Operation for BurnOp {
    fn name(&self) -> &str {
        &self.name
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Outputs, OpError> {
        Ok(Outputs::fresh(self.ir.outputs().map(layout_of)))
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        flops(&self.ir)
    }

    fn rematerializable(&self) -> bool {
        self.again
    }
}

/// What remat needs to know of a tensor: its bytes, and its shape where that can be said.
pub(crate) fn layout_of(tensor: &TensorIr) -> Layout {
    layout(&tensor.shape, tensor.dtype)
}

/// The same by shape and element type. Types that remat does not know count as so many bytes.
pub(crate) fn layout(shape: &[usize], dtype: DType) -> Layout {
    use burn_backend::BoolStore;
    let known = match dtype {
        DType::F64 => remat::DType::F64,
        // Stored as `f32`, whatever it is computed in.
        DType::F32 | DType::Flex32 => remat::DType::F32,
        DType::F16 => remat::DType::F16,
        DType::BF16 => remat::DType::BF16,
        DType::I64 => remat::DType::I64,
        DType::I32 => remat::DType::I32,
        DType::U32 => remat::DType::U32,
        DType::U8 => remat::DType::U8,
        DType::Bool(BoolStore::Native) => remat::DType::Bool,
        _ => return Layout::raw(bytes(shape, dtype)),
    };
    match Dims::try_new(shape) {
        Some(dims) => Layout::contiguous(known, dims),
        None => Layout::raw(bytes(shape, dtype)),
    }
}

/// Bytes of a tensor's elements. Quantized ones do not come this far: Burn's router refuses them.
fn bytes(shape: &[usize], dtype: DType) -> usize {
    shape.iter().product::<usize>() * dtype.size()
}

/// An operation that leaves its inputs alone and makes the same bits each time.
pub(crate) fn read_only(ir: &mut OperationIr) {
    // What is in an empty tensor is left open by Burn, and by some backends to chance.
    match ir {
        OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op) => {
            if let Base::Empty(out) = op {
                *op = Base::Zeros(out.clone());
            }
        }
        _ => {}
    }
    // Not Burn's `mark_read_only`, which forgets the indices of max pooling.
    ir.visit_mut(&mut ReadOnly);
}

struct ReadOnly;

impl IrVisitorMut for ReadOnly {
    fn visit_tensor_mut(&mut self, tensor: &mut TensorIr) {
        if tensor.status == TensorStatus::ReadWrite {
            tensor.status = TensorStatus::ReadOnly;
        }
    }
}

/// Floating-point operations of one run: those of products in full, otherwise one for each element made, or read by a reduction.
fn flops(ir: &OperationIr) -> f64 {
    let made: f64 = ir.outputs().map(elements).sum();
    // Products for each element made: all elements of a filter.
    let filter = |weight: &TensorIr| elements(weight) / first(weight).max(1.0);
    match ir {
        OperationIr::Float(_, Float::Matmul(op)) | OperationIr::Int(Int::Matmul(op)) => {
            2.0 * made * last(&op.lhs)
        }
        OperationIr::NumericFloat(..) | OperationIr::NumericInt(..) => {
            made.max(ir.inputs().map(elements).fold(0.0, f64::max))
        }
        OperationIr::Module(op) => match op {
            Module::Linear(op) => 2.0 * made * first(&op.weight),
            Module::LinearXBackward(op) => 2.0 * made * last(&op.weight),
            Module::LinearWeightBackward(op) => 2.0 * elements(&op.x) * last(&op.out),
            Module::Conv1d(op) => 2.0 * made * filter(&op.weight),
            Module::Conv1dXBackward(op) => 2.0 * elements(&op.output_grad) * filter(&op.weight),
            Module::Conv1dWeightBackward(op) => {
                2.0 * elements(&op.output_grad) * filter(&op.weight)
            }
            Module::Conv2d(op) => 2.0 * made * filter(&op.weight),
            Module::Conv2dXBackward(op) => 2.0 * elements(&op.output_grad) * filter(&op.weight),
            Module::Conv2dWeightBackward(op) => {
                2.0 * elements(&op.output_grad) * filter(&op.weight)
            }
            Module::Conv3d(op) => 2.0 * made * filter(&op.weight),
            Module::Conv3dXBackward(op) => 2.0 * elements(&op.output_grad) * filter(&op.weight),
            Module::Conv3dWeightBackward(op) => {
                2.0 * elements(&op.output_grad) * filter(&op.weight)
            }
            Module::DeformableConv2d(op) => 2.0 * made * filter(&op.weight),
            Module::DeformableConv2dBackward(op) => {
                6.0 * elements(&op.out_grad) * filter(&op.weight)
            }
            Module::ConvTranspose1d(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose2d(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose3d(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose1dWeightBackward(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose2dWeightBackward(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose3dWeightBackward(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            // Two products, each of all queries with all keys.
            Module::Attention(op) => {
                let rows = |tensor: &TensorIr| elements(tensor) / last(tensor).max(1.0);
                let keys = from_end(&op.key, 2);
                2.0 * rows(&op.query) * keys * (last(&op.query) + last(&op.value))
            }
            Module::AvgPool1d(op) => made * op.kernel_size as f64,
            Module::MaxPool1d(op) => made * op.kernel_size as f64,
            Module::MaxPool1dWithIndices(op) => elements(&op.out) * op.kernel_size as f64,
            Module::AvgPool2d(op) => made * area(op.kernel_size),
            Module::MaxPool2d(op) => made * area(op.kernel_size),
            Module::MaxPool2dWithIndices(op) => elements(&op.out) * area(op.kernel_size),
            _ => made,
        },
        _ => made,
    }
}

fn elements(tensor: &TensorIr) -> f64 {
    tensor.shape.iter().map(|&size| size as f64).product()
}

fn first(tensor: &TensorIr) -> f64 {
    tensor.shape.first().map_or(1.0, |&size| size as f64)
}

fn last(tensor: &TensorIr) -> f64 {
    from_end(tensor, 1)
}

/// The size of a dimension, counted from the last one, which is 1.
fn from_end(tensor: &TensorIr, place: usize) -> f64 {
    tensor.shape.iter().rev().nth(place - 1).map_or(1.0, |&size| size as f64)
}

fn area(kernel: [usize; 2]) -> f64 {
    kernel[0] as f64 * kernel[1] as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use std::collections::HashSet;

    /// Running an op must leave its inputs for the next time. Burn's `mark_read_only` forgets some.
    #[test]
    fn every_operation_leaves_its_inputs_alone() {
        let all = samples::all();
        assert!(all.len() > 300, "{} operations: are they all there?", all.len());
        for mut ir in all {
            let given = serde_json::to_string(&ir).unwrap();
            let statuses = given.matches("ReadWrite").count();
            let tensors = ir.inputs().chain(ir.outputs()).count();
            assert_eq!(statuses, tensors, "{given}");
            read_only(&mut ir);
            let prepared = serde_json::to_string(&ir).unwrap();
            assert_eq!(prepared.matches("ReadOnly").count(), tensors, "{prepared}");
            assert!(!prepared.contains("ReadWrite"), "{prepared}");
        }
    }

    #[test]
    fn every_operation_has_a_name_and_work() {
        let mut names = HashSet::new();
        for ir in samples::all() {
            let op = BurnOp::new(ir, Vec::new(), SmallVec::new(), None, false, &BTreeMap::new());
            let work = op.flops(&[], &[]);
            assert!(work.is_finite() && work >= 0.0, "{op:?}");
            assert!(!op.name().is_empty() && op.name() == op.name().to_lowercase());
            assert_eq!(
                op.rematerializable(),
                !["custom", "all_reduce", "sync_collective"].contains(&op.name())
            );
            assert_eq!(op.infer(&[]).unwrap().len(), op.ir.outputs().count());
            names.insert(op.name().to_owned());
        }
        assert!(names.len() > 190, "{} names", names.len());
    }

    #[test]
    fn every_type_takes_the_bytes_that_burn_says() {
        use burn_backend::BoolStore;
        for dtype in [
            DType::F64,
            DType::F32,
            DType::Flex32,
            DType::F16,
            DType::BF16,
            DType::I64,
            DType::I32,
            DType::I16,
            DType::I8,
            DType::U64,
            DType::U32,
            DType::U16,
            DType::U8,
            DType::Bool(BoolStore::Native),
            DType::Bool(BoolStore::U8),
            DType::Bool(BoolStore::U32),
        ] {
            for shape in [&[][..], &[0], &[3, 5], &[1; 300]] {
                let elements: usize = shape.iter().product();
                assert_eq!(
                    layout(shape, dtype).bytes(),
                    (elements * dtype.size()) as u64,
                    "{dtype:?}{shape:?}"
                );
            }
        }
    }
}
