//! Forms: operations without their tensors, so that operations on different tensors can share one
//! form.
//!
//! Each training step repeats the operations of the last step with other tensors. An operation of
//! Burn takes 600 bytes, so each form is stored only once.

use crate::name::name_of;
use crate::work::flops;
use burn_backend::DType;
use burn_ir::{
    BaseOperationIr as Base, IrVisitorMut, NumericOperationIr as Numeric, OperationIr, TensorId,
    TensorIr, TensorStatus,
};
use remat::op::Outputs;
use remat::unstable::program::TensorId as Number;
use remat::{Dims, Layout};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Operation without its tensors.
#[derive(Debug)]
pub(crate) struct Form {
    /// The operation, changed so that it leaves its inputs unchanged and gives the same bits in
    /// each run. In `ir`, the id of a tensor is its position in the order in which a visitor sees
    /// the tensors.
    pub ir: OperationIr,
    pub name: Cow<'static, str>,
    /// Floating-point operations of one run.
    pub flops: f64,
    /// Whether the operation may run again to recompute its outputs.
    pub again: bool,
    /// Whether a run that overwrites the first input gives the same bits as a run that does not.
    pub same_over: bool,
    /// Layouts of the outputs.
    pub layouts: Outputs,
    /// Positions of the inputs among the tensors, in Burn's order.
    inputs: SmallVec<[u32; 4]>,
    /// Positions of the outputs among the tensors, in Burn's order.
    outputs: SmallVec<[u32; 4]>,
}

/// Tensors of an operation, in the order in which a visitor sees them.
pub(crate) type Tensors = SmallVec<[(Number, TensorStatus); 6]>;

/// Takes the tensors out of an operation. The remaining operation is equal for all operations of a
/// form.
fn take_tensors(ir: &mut OperationIr) -> Tensors {
    struct Take(Tensors);
    impl IrVisitorMut for Take {
        fn visit_tensor_mut(&mut self, tensor: &mut TensorIr) {
            let place = TensorId::new(self.0.len() as u64);
            self.0.push((number(std::mem::replace(&mut tensor.id, place)), tensor.status));
            // Burn's `mark_read_only` is not used, because it skips the indices of max pooling.
            if tensor.status == TensorStatus::ReadWrite {
                tensor.status = TensorStatus::ReadOnly;
            }
        }
    }
    // The content of Burn's `empty` is unspecified, and random in some backends. Zeros give the
    // same bits in each run.
    if let OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op) = ir
        && let Base::Empty(out) = op
    {
        *op = Base::Zeros(out.clone());
    }
    let mut take = Take(Tensors::new());
    ir.visit_mut(&mut take);
    take.0
}

/// Number of a tensor in remat, which is equal to its number in Burn.
pub(crate) fn number(id: TensorId) -> Number {
    Number(id.value())
}

impl Form {
    /// Makes the form of an operation without its tensors, as `take_tensors` leaves it. `pure` says
    /// for each custom operation whether it is pure.
    fn new(ir: OperationIr, pure: &BTreeMap<String, bool>) -> Self {
        let again = match &ir {
            // Only the author of a custom operation knows whether it has side effects, and declares
            // this by `pure`.
            OperationIr::Custom(op) => pure.get(&op.id).copied().unwrap_or(false),
            // A collective operation cannot run again alone, without the other participants.
            OperationIr::Distributed(_) => false,
            _ => true,
        };
        // A sum or product of two NaNs has the sign of its first operand. Compilers may swap the
        // operands of sums and products, and swap them in one of a backend's loops only.
        let same_over =
            !matches!(ir, OperationIr::NumericFloat(_, Numeric::Add(_) | Numeric::Mul(_)));
        Self {
            name: name_of(&ir),
            flops: flops(&ir),
            again,
            same_over,
            layouts: Outputs::fresh(ir.outputs().map(layout_of)),
            inputs: ir.inputs().map(|tensor| tensor.id.value() as u32).collect(),
            outputs: ir.outputs().map(|tensor| tensor.id.value() as u32).collect(),
            ir,
        }
    }

    /// Inputs of the operation, taken from `tensors`.
    pub fn inputs_of<'a>(
        &'a self,
        tensors: &'a Tensors,
    ) -> impl ExactSizeIterator<Item = (Number, TensorStatus)> + Clone + 'a {
        self.inputs.iter().map(|&place| tensors[place as usize])
    }

    /// Numbers of the operation's outputs, taken from `tensors`.
    pub fn outputs_of<'a>(
        &'a self,
        tensors: &'a Tensors,
    ) -> impl ExactSizeIterator<Item = Number> + Clone + 'a {
        self.outputs.iter().map(|&place| tensors[place as usize].0)
    }

    /// Burn's operation on the tensors with these numbers. With `gives_first`, the run may
    /// overwrite the first input.
    pub fn with(
        &self,
        inputs: impl Iterator<Item = u64>,
        outputs: impl Iterator<Item = u64>,
        gives_first: bool,
    ) -> OperationIr {
        struct Fill<'a>(&'a [u64], Option<u64>);
        impl IrVisitorMut for Fill<'_> {
            fn visit_tensor_mut(&mut self, tensor: &mut TensorIr) {
                if self.1 == Some(tensor.id.value()) {
                    tensor.status = TensorStatus::ReadWrite;
                }
                tensor.id = TensorId::new(self.0[tensor.id.value() as usize]);
            }
        }
        let mut numbers: SmallVec<[u64; 6]> = smallvec![0; self.inputs.len() + self.outputs.len()];
        let places = self.inputs.iter().chain(&self.outputs);
        for (&place, number) in places.zip(inputs.chain(outputs)) {
            numbers[place as usize] = number;
        }
        let first = self.inputs.first().filter(|_| gives_first).map(|&first| u64::from(first));
        let mut ir = self.ir.clone();
        ir.visit_mut(&mut Fill(&numbers, first));
        ir
    }
}

/// Forms in use.
#[derive(Debug)]
pub(crate) struct Forms {
    /// Forms by hash. If two forms have the same hash, the later form replaces the earlier one.
    known: FxHashMap<u64, Arc<Form>>,
    /// Number of forms at which unused forms are removed.
    sweep_at: usize,
    /// Whether each custom operation is pure, by its id.
    pure: Arc<BTreeMap<String, bool>>,
}

impl Forms {
    const FEW: usize = 256;

    pub fn new(pure: Arc<BTreeMap<String, bool>>) -> Self {
        Self { known: FxHashMap::default(), sweep_at: Self::FEW, pure }
    }

    /// Form and tensors of an operation.
    pub fn of(&mut self, mut ir: OperationIr) -> (Arc<Form>, Tensors) {
        let tensors = take_tensors(&mut ir);
        (self.find_or_add(ir), tensors)
    }

    fn find_or_add(&mut self, ir: OperationIr) -> Arc<Form> {
        let mut hasher = FxHasher::default();
        ir.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(form) = self.known.get(&hash).filter(|form| form.ir == ir) {
            return Arc::clone(form);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, form| Arc::strong_count(form) > 1);
            self.sweep_at = Self::FEW.max(2 * self.known.len());
        }
        let form = Arc::new(Form::new(ir, &self.pure));
        self.known.insert(hash, Arc::clone(&form));
        form
    }
}

/// Layout of a tensor for remat. The layout always has the right number of bytes. The layout has
/// the tensor's shape if remat supports the shape.
pub(crate) fn layout_of(tensor: &TensorIr) -> Layout {
    layout(&tensor.shape, tensor.dtype)
}

/// Layout of a shape and an element type. Types that remat does not know count as raw bytes.
pub(crate) fn layout(shape: &[usize], dtype: DType) -> Layout {
    use burn_backend::BoolStore;
    let known = match dtype {
        DType::F64 => remat::DType::F64,
        // `Flex32` is stored as `f32`; only the computation may use another type.
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

/// Bytes of a tensor's elements. Quantized tensors do not occur, because Burn's router refuses
/// them.
fn bytes(shape: &[usize], dtype: DType) -> usize {
    shape.iter().product::<usize>() * dtype.size()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use burn_backend::Shape;
    use burn_ir::{ScalarIr, ScalarOpIr};
    use std::collections::HashSet;

    fn form(mut ir: OperationIr) -> Form {
        take_tensors(&mut ir);
        Form::new(ir, &BTreeMap::new())
    }

    /// A form must leave its inputs unchanged for the next run. Burn's `mark_read_only` would miss
    /// some inputs.
    #[test]
    fn every_operation_leaves_its_inputs_alone() {
        let all = samples::all();
        assert!(all.len() > 300, "{} operations: are they all there?", all.len());
        for ir in all {
            let given = serde_json::to_string(&ir).unwrap();
            let statuses = given.matches("ReadWrite").count();
            let tensors = ir.inputs().chain(ir.outputs()).count();
            assert_eq!(statuses, tensors, "{given}");
            let prepared = serde_json::to_string(&form(ir).ir).unwrap();
            assert_eq!(prepared.matches("ReadOnly").count(), tensors, "{prepared}");
            assert!(!prepared.contains("ReadWrite"), "{prepared}");
        }
    }

    /// Taking the tensors out of an operation and putting them back gives the same operation.
    #[test]
    fn every_operation_has_its_tensors_where_it_had_them() {
        for mut ir in samples::all() {
            if matches!(ir, OperationIr::Init(_) | OperationIr::Drop(_)) {
                continue;
            }
            let ids = |ir: &OperationIr| -> (Vec<u64>, Vec<u64>) {
                let ids = |tensor: &TensorIr| tensor.id.value();
                (ir.inputs().map(ids).collect(), ir.outputs().map(ids).collect())
            };
            let before = ids(&ir);
            let tensors = take_tensors(&mut ir);
            let form = Form::new(ir, &BTreeMap::new());
            let inputs: Vec<u64> = form.inputs_of(&tensors).map(|(id, _)| id.0).collect();
            let outputs: Vec<u64> = form.outputs_of(&tensors).map(|id| id.0).collect();
            assert_eq!(inputs.len() + outputs.len(), tensors.len(), "{:?}", form.ir);
            assert_eq!((&inputs, &outputs), (&before.0, &before.1), "{:?}", form.ir);
            for gives_first in [false, true] {
                let again = form.with(inputs.iter().copied(), outputs.iter().copied(), gives_first);
                assert_eq!(ids(&again), before, "{again:?}");
                let given = |input: &TensorIr| input.status == TensorStatus::ReadWrite;
                let expected = (0..inputs.len()).map(|input| gives_first && input == 0);
                assert!(again.inputs().map(given).eq(expected), "{again:?}");
            }
        }
    }

    #[test]
    fn every_operation_has_a_name_and_work() {
        let mut names = HashSet::new();
        for ir in samples::all() {
            let form = form(ir);
            assert!(form.flops.is_finite() && form.flops >= 0.0, "{form:?}");
            assert!(!form.name.is_empty() && form.name == form.name.to_lowercase());
            let again = !["custom", "all_reduce", "sync_collective"].contains(&&*form.name);
            assert_eq!(form.again, again, "{form:?}");
            assert_eq!(form.layouts.len(), form.ir.outputs().count());
            names.insert(form.name.to_string());
        }
        assert!(names.len() > 190, "{} names", names.len());
    }

    /// Makes `x + by` on a tensor of `numbers` elements.
    fn add(ids: [u64; 2], numbers: usize, by: f64) -> OperationIr {
        let [lhs, out] = ids.map(|id| TensorIr {
            id: TensorId::new(id),
            shape: Shape::from(vec![numbers]),
            status: TensorStatus::ReadOnly,
            dtype: DType::F32,
        });
        let op = ScalarOpIr { lhs, rhs: ScalarIr::Float(by), out };
        OperationIr::NumericFloat(DType::F32, Numeric::AddScalar(op))
    }

    #[test]
    fn operations_share_a_form_where_only_their_tensors_differ() {
        let mut forms = Forms::new(Arc::default());
        let mut of = |ir| forms.of(ir).0;
        let first = of(add([1, 2], 8, 0.0));
        assert!(Arc::ptr_eq(&first, &of(add([3, 4], 8, 0.0))));
        for other in [add([1, 2], 9, 0.0), add([1, 2], 8, 1.0), add([1, 2], 8, -0.0)] {
            assert!(!Arc::ptr_eq(&first, &of(other)));
        }
        // A NaN is not equal to itself, so a form with a NaN is never shared.
        let nan = of(add([1, 2], 8, f64::NAN));
        assert!(!Arc::ptr_eq(&nan, &of(add([1, 2], 8, f64::NAN))));
        assert!(Arc::ptr_eq(&first, &of(add([5, 6], 8, 0.0))));
    }

    #[test]
    fn forms_that_nobody_uses_go() {
        let mut forms = Forms::new(Arc::default());
        let mut used = Vec::new();
        for i in 0..20_000 {
            let (form, _) = forms.of(add([1, 2], 8, f64::from(i)));
            if i % 100 == 0 {
                used.push(form);
            }
        }
        assert!(forms.known.len() <= 2 * used.len() + Forms::FEW, "{}", forms.known.len());
        for (i, form) in used.iter().enumerate() {
            assert!(Arc::ptr_eq(form, &forms.of(add([3, 4], 8, 100.0 * i as f64)).0));
        }
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
