//! Cases: operations of each variant that can be run, with inputs of several shapes, types and
//! values. If Burn adds a variant, this module does not compile until the variant has a case.

use crate::session::numbers;
use burn_backend::{BoolStore, DType, Distribution, Element, Shape, Slice, SliceOps, TensorData};
use burn_ir::{
    AllReduceOpIr, BaseOperationIr as Base, BinaryOpIr, BoolOperationIr as Bool, CastOpIr, CatOpIr,
    ClampOpIr, CreationOpIr, CrossOpIr, DequantizeOpIr, DimOpIr,
    DistributedOperationIr as Distributed, FlipOpIr, FloatOperationIr as Float, FullOpIr,
    GatherNdOpIr, GatherOpIr, GridSample2dOpIr, GridSampleOptionsIr, GridSamplePaddingModeIr,
    IntOperationIr as Int, InterpolateModeIr, MaskFillOpIr, MaskWhereOpIr, MatmulOpIr,
    NumericOperationIr as Numeric, OperationIr, PadModeIr, PadOpIr, PermuteOpIr,
    QuantizationParametersIr, QuantizeOpIr, RandomOpIr, ReduceDimOpIr, ReduceDimWithIndicesOpIr,
    ReduceDimsOpIr, ReduceOpIr, RepeatDimOpIr, ScalarIr, ScalarOpIr, ScatterNdOpIr, ScatterOpIr,
    SelectAssignOpIr, SelectOpIr, ShapeOpIr, SliceAssignOpIr, SliceOpIr, SortOpIr,
    SortWithIndicesOpIr, SwapDimsOpIr, TensorId, TensorIr, TensorStatus, TopKWithIndicesOpIr,
    UnaryOpIr, UnfoldOpIr,
};
use burn_std::{IndexingUpdateOp, bf16, f16};
use modules::{activation, module};

mod modules;

/// Strides of inputs in their storages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Row by row.
    Rows,
    /// The last two dimensions are swapped.
    Swapped,
    /// The view contains only a part of each dimension.
    Part,
    /// Every second element along each dimension, from the last one backward.
    Backward,
}

impl Lie {
    pub const ALL: [Self; 4] = [Self::Rows, Self::Swapped, Self::Part, Self::Backward];
}

/// Input of an operation: the uploaded tensor, and the view read by the operation.
#[derive(Debug)]
pub(crate) struct Input {
    pub uploaded: TensorIr,
    pub data: TensorData,
    pub view: Option<OperationIr>,
}

/// Operation with its inputs.
#[derive(Debug)]
pub(crate) struct Case {
    pub inputs: Vec<Input>,
    pub ir: OperationIr,
}

/// Parameters of the case to make for a variant of [`OperationIr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Type that the variant works on.
    pub dtype: DType,
    pub shape: &'static [usize],
    pub lie: Lie,
    /// Index of the setting of the variant's own parameters, such as its dimension; taken modulo
    /// the number of settings.
    pub way: usize,
}

pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
pub(crate) const INTS: [DType; 8] =
    [DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8];
pub(crate) const BOOL: DType = DType::Bool(BoolStore::Native);
/// Types of booleans. Flex has no kernels for booleans of four bytes.
pub(crate) const BOOLS: [DType; 2] = [BOOL, DType::Bool(BoolStore::U8)];

/// Shapes of ranks 1 to 4, with sizes 0 and 1 among them. Each module fixes the ranks of its
/// inputs. A shape of rank 1 gives the batch size of a module's inputs.
pub(crate) const SHAPES: [&[usize]; 12] = [
    &[5],
    &[1],
    &[0],
    &[3, 4],
    &[1, 6],
    &[0, 3],
    &[3, 0],
    &[2, 3, 4],
    &[2, 1, 3],
    &[2, 0, 3],
    &[2, 3, 2, 3],
    &[1, 1, 1, 1],
];

/// Types that a variant works on.
pub(crate) fn dtypes(ir: &OperationIr) -> Vec<DType> {
    match ir {
        OperationIr::BaseFloat(_)
        | OperationIr::NumericFloat(..)
        | OperationIr::Float(..)
        | OperationIr::Module(_)
        | OperationIr::Activation(_)
        | OperationIr::Distributed(_)
        | OperationIr::Init(_)
        | OperationIr::Drop(_)
        | OperationIr::Custom(_) => FLOATS.to_vec(),
        OperationIr::BaseInt(_) | OperationIr::NumericInt(..) | OperationIr::Int(_) => {
            INTS.to_vec()
        }
        OperationIr::BaseBool(_) | OperationIr::Bool(_) => BOOLS.to_vec(),
    }
}

/// Case of the variant of `ir`, and the number of settings ([`Spec::way`]) that the variant has.
/// `None` if the variant has no case of this shape.
pub(crate) fn case(ir: &OperationIr, spec: Spec) -> (Option<Case>, usize) {
    let mut make = Make { spec, inputs: Vec::new(), ways: 1 };
    let mut ir = ir.clone();
    let made = fill(&mut ir, &mut make);
    (made.map(|()| Case { inputs: make.inputs, ir }), make.ways)
}

struct Make {
    spec: Spec,
    inputs: Vec<Input>,
    ways: usize,
}

fn new_id() -> TensorId {
    TensorId::new(numbers(1).0)
}

/// Data of a shape and type; `value` returns the element at each position.
fn values(shape: &[usize], dtype: DType, value: impl Fn(usize) -> f64) -> TensorData {
    fn of<E: Element>(shape: &[usize], value: impl Fn(usize) -> E) -> TensorData {
        let count = shape.iter().product();
        TensorData::new((0..count).map(value).collect::<Vec<E>>(), Shape::from(shape.to_vec()))
    }
    match dtype {
        DType::F64 => of(shape, value),
        DType::F32 => of(shape, |at| value(at) as f32),
        DType::F16 => of(shape, |at| f16::from_f64(value(at))),
        DType::BF16 => of(shape, |at| bf16::from_f64(value(at))),
        DType::I64 => of(shape, |at| value(at) as i64),
        DType::I32 => of(shape, |at| value(at) as i32),
        DType::I16 => of(shape, |at| value(at) as i16),
        DType::I8 => of(shape, |at| value(at) as i8),
        DType::U64 => of(shape, |at| value(at) as u64),
        DType::U32 => of(shape, |at| value(at) as u32),
        DType::U16 => of(shape, |at| value(at) as u16),
        DType::U8 => of(shape, |at| value(at) as u8),
        BOOL => of(shape, |at| value(at) > 0.0),
        DType::Bool(BoolStore::U8) => {
            let bytes = of(shape, |at| u8::from(value(at) > 0.0)).into_bytes();
            TensorData::from_bytes(bytes, Shape::from(shape.to_vec()), dtype)
        }
        other => panic!("no values of {other:?}"),
    }
}

impl Make {
    fn rank(&self) -> usize {
        self.spec.shape.len()
    }

    /// Chooses one of `of` settings by [`Spec::way`]. Tests try all settings in turn.
    fn way(&mut self, of: usize) -> usize {
        self.ways = self.ways.max(of);
        self.spec.way % of
    }

    /// Chooses a dimension, by [`Spec::way`].
    fn dim(&mut self) -> usize {
        let rank = self.rank();
        self.way(rank)
    }

    /// Number of examples for a module; `None` if the shape is not of rank 1.
    fn batch(&self) -> Option<usize> {
        match self.spec.shape {
            [1] => Some(1),
            [0] => Some(0),
            [_] => Some(2),
            _ => None,
        }
    }

    /// Makes an input; `value` returns the element at each position.
    fn with(&mut self, shape: &[usize], dtype: DType, value: impl Fn(usize) -> f64) -> TensorIr {
        let rank = shape.len();
        let mut whole = shape.to_vec();
        let read = |whole: &[usize]| TensorIr {
            id: new_id(),
            shape: Shape::from(whole.to_vec()),
            status: TensorStatus::ReadOnly,
            dtype,
        };
        let slices =
            |start: isize, end: Option<isize>, step: isize| vec![Slice { start, end, step }; rank];
        let base = |view| match dtype {
            DType::Bool(_) => OperationIr::BaseBool(view),
            _ if dtype.is_float() => OperationIr::BaseFloat(view),
            _ => OperationIr::BaseInt(view),
        };
        let (uploaded, view) = match self.spec.lie {
            Lie::Swapped if rank > 1 => {
                whole.swap(rank - 1, rank - 2);
                let uploaded = read(&whole);
                let (last, other) = (rank - 1, rank - 2);
                let view = SwapDimsOpIr::create(uploaded.clone(), other, last, new_id);
                (uploaded, Some(Base::SwapDims(view)))
            }
            Lie::Part => {
                whole.iter_mut().for_each(|size| *size += 1);
                let uploaded = read(&whole);
                let view = SliceOpIr::create(uploaded.clone(), slices(1, None, 1), new_id);
                (uploaded, Some(Base::Slice(view)))
            }
            Lie::Backward => {
                whole.iter_mut().for_each(|size| *size *= 2);
                let uploaded = read(&whole);
                let view = SliceOpIr::create(uploaded.clone(), slices(0, None, -2), new_id);
                (uploaded, Some(Base::Slice(view)))
            }
            Lie::Rows | Lie::Swapped => (read(&whole), None),
        };
        let count: usize = shape.iter().product();
        // The uploaded tensor also has values at positions that the view does not contain.
        let data = values(&whole, dtype, |at| value(at % count.max(1)));
        let view = view.map(base);
        let mut ir = match &view {
            Some(view) => view.outputs().next().unwrap().clone(),
            None => uploaded.clone(),
        };
        ir.status = TensorStatus::ReadOnly;
        assert_eq!(*ir.shape, *shape);
        self.inputs.push(Input { uploaded, data, view });
        ir
    }

    /// Makes an input of the case's type, with distinct numbers that most operations accept.
    fn of(&mut self, shape: &[usize]) -> TensorIr {
        let seed = self.inputs.len();
        let dtype = self.spec.dtype;
        self.with(shape, dtype, |at| {
            let mixed = (at * 7 + seed * 3 + 2) % 11;
            match dtype {
                DType::Bool(_) => (mixed % 3) as f64 - 0.5,
                _ if dtype.is_float() => (mixed as f64 - 4.5) * 0.375,
                _ if dtype.is_int() && mixed % 4 == 3 => -(mixed as f64),
                _ => 1.0 + (mixed % 6) as f64,
            }
        })
    }

    /// Makes an input of the case's type and shape.
    fn x(&mut self) -> TensorIr {
        let shape = self.spec.shape;
        self.of(shape)
    }

    /// Makes an input of the case's type and shape. With one of two settings, the input has special
    /// values: zeros of both signs, infinities and NaNs for floats, and the least and greatest
    /// values for integers.
    fn strange(&mut self) -> TensorIr {
        let (shape, dtype) = (self.spec.shape, self.spec.dtype);
        if self.way(2) == 0 {
            return self.of(shape);
        }
        self.with(shape, dtype, |at| match (at % 6, dtype) {
            (0, DType::Bool(_)) => 1.0,
            (_, DType::Bool(_)) => 0.0,
            (0, _) => 0.0,
            (1, _) if dtype.is_float() => -0.0,
            (2, _) if dtype.is_float() => f64::INFINITY,
            (3, _) if dtype.is_float() => f64::NAN,
            (4, _) if dtype.is_float() => f64::NEG_INFINITY,
            // Casts from `f64` to integers saturate, so these floats become the greatest and the
            // least integer.
            (1, _) => f64::MAX,
            (2, _) => f64::MIN,
            _ => 1.0,
        })
    }

    /// Type for a boolean tensor: the type of the case if it is boolean, or one of [`BOOLS`].
    fn bool(&mut self) -> DType {
        match self.spec.dtype {
            dtype @ DType::Bool(_) => dtype,
            _ => BOOLS[self.way(2)],
        }
    }

    fn mask(&mut self, shape: &[usize]) -> TensorIr {
        let dtype = self.bool();
        self.with(shape, dtype, |at| if at % 3 == 1 { 1.0 } else { 0.0 })
    }

    /// Makes indices below `below`; `None` if `below` is 0, but the shape has elements.
    fn indices(&mut self, shape: &[usize], below: usize) -> Option<TensorIr> {
        let count: usize = shape.iter().product();
        if below == 0 && count > 0 {
            return None;
        }
        Some(self.with(shape, DType::I64, |at| ((at * 5 + 1) % below.max(1)) as f64))
    }

    fn scalar(&self, value: f64) -> ScalarIr {
        match self.spec.dtype {
            DType::Bool(_) => ScalarIr::Bool(value != 0.0),
            dtype => ScalarIr::new(value, &dtype),
        }
    }

    fn unary(&mut self) -> UnaryOpIr {
        UnaryOpIr::create(self.strange(), new_id)
    }

    /// Makes two operands: two tensors of equal shape, or a tensor and a tensor to broadcast, or
    /// the same tensor twice.
    fn two(&mut self) -> (TensorIr, TensorIr) {
        match self.way(3) {
            0 => (self.x(), self.x()),
            1 => {
                let lhs = self.x();
                let mut shape = self.spec.shape.to_vec();
                shape[0] = 1;
                (lhs, self.of(&shape))
            }
            _ => {
                let lhs = self.x();
                (lhs.clone(), lhs)
            }
        }
    }

    fn binary(&mut self) -> BinaryOpIr {
        let (lhs, rhs) = self.two();
        BinaryOpIr::create(lhs, rhs, new_id)
    }

    fn compare(&mut self) -> BinaryOpIr {
        let (lhs, rhs) = self.two();
        BinaryOpIr::create_comparison(lhs, rhs, self.bool(), new_id)
    }

    fn with_scalar(&mut self, value: f64) -> ScalarOpIr {
        ScalarOpIr::create(self.strange(), self.scalar(value), new_id)
    }

    fn compare_scalar(&mut self) -> ScalarOpIr {
        ScalarOpIr::create_comparison(self.strange(), self.scalar(1.0), self.bool(), new_id)
    }

    fn reduce(&mut self) -> ReduceOpIr {
        ReduceOpIr::create(self.x(), new_id)
    }

    fn reduce_bool(&mut self) -> ReduceOpIr {
        ReduceOpIr::create_bool(self.strange(), self.bool(), new_id)
    }

    fn reduce_dim(&mut self, len: usize) -> Option<ReduceDimOpIr> {
        let dim = self.dim();
        (len <= self.spec.shape[dim].max(1))
            .then(|| ReduceDimOpIr::create(self.x(), dim, len, new_id))
    }

    /// Makes an op that finds positions along a dimension. If the input has integers, the positions
    /// have the type of the input, as in Burn's router.
    fn arg(&mut self, len: usize) -> Option<ReduceDimOpIr> {
        if !self.spec.dtype.is_float() {
            return self.reduce_dim(len);
        }
        let dim = self.dim();
        (len <= self.spec.shape[dim].max(1))
            .then(|| ReduceDimOpIr::create_arg(self.x(), dim, len, DType::I64, new_id))
    }

    fn reduce_dim_bool(&mut self) -> ReduceDimOpIr {
        let dim = self.dim();
        ReduceDimOpIr::create_bool(self.x(), dim, 1, self.bool(), new_id)
    }

    fn along(&mut self) -> DimOpIr {
        let dim = self.dim();
        DimOpIr::create(self.x(), dim, new_id)
    }

    fn creation(&mut self) -> CreationOpIr {
        CreationOpIr::create(Shape::from(self.spec.shape.to_vec()), self.spec.dtype, new_id)
    }

    fn random(&mut self) -> RandomOpIr {
        let distribution = match self.way(4) {
            0 => Distribution::Default,
            1 => Distribution::Uniform(1.0, 9.0),
            2 => Distribution::Normal(0.0, 1.0),
            _ => Distribution::Bernoulli(0.5),
        };
        RandomOpIr::create(self.spec.shape.to_vec().into(), self.spec.dtype, distribution, new_id)
    }

    fn cast(&mut self, to: &[DType]) -> CastOpIr {
        let way = self.way(to.len());
        CastOpIr::create(self.x(), to[way], new_id)
    }

    fn matmul(&mut self) -> Option<MatmulOpIr> {
        let mut shape = self.spec.shape.to_vec();
        let rank = shape.len();
        if rank < 2 {
            return None;
        }
        shape.swap(rank - 1, rank - 2);
        shape[rank - 1] += 1;
        if rank > 2 && self.way(2) == 1 {
            shape[0] = 1;
        }
        Some(MatmulOpIr::create(self.x(), self.of(&shape), new_id))
    }

    fn update(&mut self) -> IndexingUpdateOp {
        use IndexingUpdateOp::{Add, Assign, Max, Min, Mul};
        let way = self.way(5);
        [Add, Assign, Mul, Min, Max][way]
    }
}

/// Replaces the sample `ir` by an operation that can be run.
fn fill(ir: &mut OperationIr, make: &mut Make) -> Option<()> {
    match ir {
        OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op) => {
            base(op, make)
        }
        OperationIr::NumericFloat(dtype, op) | OperationIr::NumericInt(dtype, op) => {
            *dtype = make.spec.dtype;
            numeric(op, make)
        }
        OperationIr::Bool(op) => bool(op, make),
        OperationIr::Int(op) => int(op, make),
        OperationIr::Float(dtype, op) => {
            *dtype = make.spec.dtype;
            float(op, make)
        }
        OperationIr::Module(op) => module(op, make),
        OperationIr::Activation(op) => activation(op, make),
        OperationIr::Distributed(op) => {
            match op {
                Distributed::AllReduce(op) => {
                    *op = AllReduceOpIr::create(make.x(), op.op, op.device_ids.clone(), new_id);
                }
                Distributed::SyncCollective => {}
            }
            Some(())
        }
        OperationIr::Init(op) => {
            op.out = make.x();
            Some(())
        }
        OperationIr::Drop(tensor) => {
            *tensor = make.x();
            Some(())
        }
        OperationIr::Custom(op) => {
            let input = make.x();
            op.outputs = vec![TensorIr::uninit(new_id(), input.shape.clone(), input.dtype)];
            op.inputs = vec![input];
            Some(())
        }
    }
}

fn base(op: &mut Base, make: &mut Make) -> Option<()> {
    let shape = make.spec.shape;
    let rank = shape.len();
    match op {
        Base::Reshape(op) => {
            let count = shape.iter().product();
            let mut to = shape.to_vec();
            match make.way(4) {
                0 => to = vec![count],
                1 => to.insert(1, 1),
                2 => to.reverse(),
                _ => {}
            }
            *op = ShapeOpIr::reshape(make.x(), to.into(), new_id);
        }
        Base::SwapDims(op) => {
            let (a, b) = if make.way(2) == 0 { (0, rank - 1) } else { (rank / 2, rank / 2) };
            *op = SwapDimsOpIr::create(make.x(), a, b, new_id);
        }
        Base::Permute(op) => {
            let by = make.dim();
            let axes = (0..rank).map(|axis| (axis + by) % rank).collect();
            *op = PermuteOpIr::create(make.x(), axes, new_id);
        }
        Base::Flip(op) => {
            let axes = match make.way(3) {
                0 => vec![0],
                1 => (0..rank).collect(),
                _ => vec![],
            };
            *op = FlipOpIr::create(make.x(), axes, new_id);
        }
        Base::Expand(op) => {
            let mut to: Vec<usize> =
                shape.iter().map(|&size| if size == 1 { 3 } else { size }).collect();
            if make.way(2) == 1 {
                to.insert(0, 2);
            }
            *op = ShapeOpIr::expand(make.x(), to.into(), new_id);
        }
        Base::Unfold(op) => {
            let dim = make.way(rank * 2);
            let (dim, step) = (dim % rank, 1 + dim / rank);
            let size = shape[dim].min(2);
            *op = UnfoldOpIr::create(make.x(), dim, size, step, new_id);
        }
        Base::Slice(op) => {
            *op = SliceOpIr::create(make.x(), slices(make)?, new_id);
        }
        Base::SliceAssign(op) => {
            let slices = slices(make)?;
            let part = Shape::from(shape.to_vec()).slice(&slices).unwrap();
            *op = SliceAssignOpIr::create(make.x(), slices, make.of(&part), new_id);
        }
        Base::Select(op) => {
            let dim = make.dim();
            *op = SelectOpIr::create(make.x(), dim, make.indices(&[4], shape[dim])?, new_id);
        }
        Base::SelectAssign(op) => {
            let dim = rank - 1;
            let mut part = shape.to_vec();
            part[dim] = 3;
            let indices = make.indices(&[3], shape[dim])?;
            let update = make.update();
            *op = SelectAssignOpIr::create(make.x(), dim, indices, make.of(&part), update, new_id);
        }
        Base::MaskWhere(op) => {
            *op = MaskWhereOpIr::create(make.x(), make.mask(shape), make.x(), new_id);
        }
        Base::MaskFill(op) => {
            let value = make.scalar(1.0);
            *op = MaskFillOpIr::create(make.x(), make.mask(shape), value, new_id);
        }
        Base::Gather(op) => {
            let dim = make.dim();
            *op = GatherOpIr::create(make.x(), dim, make.indices(shape, shape[dim])?, new_id);
        }
        Base::Scatter(op) => {
            let dim = 0;
            let indices = make.indices(shape, shape[dim])?;
            let update = make.update();
            *op = ScatterOpIr::create(make.x(), dim, indices, make.x(), update, new_id);
        }
        Base::ScatterNd(op) => {
            let mut part = vec![3];
            part.extend(&shape[1..]);
            let indices = make.indices(&[3, 1], shape[0])?;
            let update = make.update();
            *op = ScatterNdOpIr::create(make.x(), indices, make.of(&part), update, new_id);
        }
        Base::GatherNd(op) => {
            *op = GatherNdOpIr::create(make.x(), make.indices(&[4, 1], shape[0])?, new_id);
        }
        Base::Equal(op) | Base::NotEqual(op) => *op = make.compare(),
        Base::EqualElem(op) | Base::NotEqualElem(op) => *op = make.compare_scalar(),
        Base::RepeatDim(op) => {
            let way = make.way(2 * rank);
            *op = RepeatDimOpIr::create(make.x(), way % rank, 1 + way / rank, new_id);
        }
        Base::Cat(op) => {
            let way = make.way(3 * rank);
            let tensors = (0..=way / rank).map(|_| make.x()).collect();
            *op = CatOpIr::create(tensors, way % rank, new_id);
        }
        Base::Cast(op) => {
            let to: &[DType] = match make.spec.dtype {
                DType::Bool(_) => &BOOLS,
                dtype if dtype.is_float() => &FLOATS,
                _ => &INTS,
            };
            *op = make.cast(to);
        }
        Base::Empty(op) | Base::Ones(op) | Base::Zeros(op) => *op = make.creation(),
        Base::All(op) | Base::Any(op) => *op = make.reduce_bool(),
        Base::AllDim(op) | Base::AnyDim(op) => *op = make.reduce_dim_bool(),
    }
    Some(())
}

/// Slices along each dimension: the first half, all but the first element, all elements backward,
/// or with steps.
fn slices(make: &mut Make) -> Option<Vec<Slice>> {
    let way = make.way(4);
    let slice = |size: usize| {
        let size = size as isize;
        let [start, end, step] = match way {
            0 => [0, (size + 1) / 2, 1],
            1 => [1.min(size), size, 1],
            2 => [0, size, -1],
            _ => [0, size, 2],
        };
        Slice { start, end: Some(end), step }
    };
    Some(make.spec.shape.iter().map(|&size| slice(size)).collect())
}

fn numeric(op: &mut Numeric, make: &mut Make) -> Option<()> {
    let shape = make.spec.shape;
    let rank = shape.len();
    match op {
        Numeric::Add(op)
        | Numeric::Sub(op)
        | Numeric::Div(op)
        | Numeric::Rem(op)
        | Numeric::Mul(op)
        | Numeric::Powi(op) => *op = make.binary(),
        Numeric::AddScalar(op)
        | Numeric::SubScalar(op)
        | Numeric::DivScalar(op)
        | Numeric::RemScalar(op)
        | Numeric::MulScalar(op)
        | Numeric::ClampMin(op)
        | Numeric::ClampMax(op) => *op = make.with_scalar(2.0),
        Numeric::PowiScalar(op) => {
            let exponent = [1, 2, 3, 0, 5][make.way(5)];
            *op = ScalarOpIr::create(make.x(), ScalarIr::Int(exponent), new_id);
        }
        Numeric::Abs(op) | Numeric::Neg(op) | Numeric::Sign(op) => *op = make.unary(),
        Numeric::Full(op) => {
            let value = make.scalar(3.0);
            *op = FullOpIr::create(shape.to_vec().into(), make.spec.dtype, value, new_id);
        }
        Numeric::Mean(op)
        | Numeric::Sum(op)
        | Numeric::Prod(op)
        | Numeric::Max(op)
        | Numeric::Min(op)
        | Numeric::MaxAbs(op) => *op = make.reduce(),
        Numeric::MeanDim(op)
        | Numeric::SumDim(op)
        | Numeric::ProdDim(op)
        | Numeric::MaxDim(op)
        | Numeric::MinDim(op)
        | Numeric::MaxAbsDim(op) => *op = make.reduce_dim(1)?,
        Numeric::SumDims(op) => {
            let axes = match make.way(3) {
                0 => vec![],
                1 => vec![rank - 1],
                _ => (0..rank).collect(),
            };
            *op = ReduceDimsOpIr::create(make.x(), axes, new_id);
        }
        Numeric::Greater(op)
        | Numeric::GreaterEqual(op)
        | Numeric::Lower(op)
        | Numeric::LowerEqual(op) => *op = make.compare(),
        Numeric::GreaterElem(op)
        | Numeric::GreaterEqualElem(op)
        | Numeric::LowerElem(op)
        | Numeric::LowerEqualElem(op) => *op = make.compare_scalar(),
        Numeric::ArgMax(op) | Numeric::ArgMin(op) => *op = make.arg(1)?,
        Numeric::ArgTopK(op) => *op = make.arg(2)?,
        Numeric::TopK(op) => *op = make.reduce_dim(2)?,
        Numeric::TopKWithIndices(op) => {
            let dim = make.dim();
            if shape[dim] < 2 {
                return None;
            }
            *op = TopKWithIndicesOpIr::create(make.x(), dim, 2, DType::I64, new_id);
        }
        Numeric::MaxDimWithIndices(op) | Numeric::MinDimWithIndices(op) => {
            let dim = make.dim();
            *op = ReduceDimWithIndicesOpIr::create(make.x(), dim, DType::I64, new_id);
        }
        Numeric::Clamp(op) => {
            let (min, max) = (make.scalar(1.0), make.scalar(2.0));
            *op = ClampOpIr::create(make.strange(), min, max, new_id);
        }
        Numeric::IntRandom(op) => *op = make.random(),
        Numeric::CumSum(op) | Numeric::CumProd(op) | Numeric::CumMin(op) | Numeric::CumMax(op) => {
            *op = make.along();
        }
        Numeric::Sort(op) => {
            let way = make.way(2 * rank);
            *op = SortOpIr::create(make.x(), way % rank, way < rank, new_id);
        }
        Numeric::SortWithIndices(op) => {
            let way = make.way(2 * rank);
            let dim = way % rank;
            *op = SortWithIndicesOpIr::create(make.x(), dim, way < rank, DType::I64, new_id);
        }
        Numeric::ArgSort(op) => {
            let way = make.way(2 * rank);
            *op = SortOpIr::create_arg(make.x(), way % rank, way < rank, DType::I64, new_id);
        }
        Numeric::Pad(op) => {
            let value = make.scalar(2.0);
            let mode = [PadModeIr::Constant(value), PadModeIr::Edge, PadModeIr::Reflect];
            let way = make.way(4);
            let mut padding = vec![(0, 0); rank];
            if way < 3 {
                padding[rank - 1] = (1, 2);
            }
            if way > 0 && way < 3 && shape[rank - 1] < 3 {
                return None;
            }
            *op = PadOpIr::create(make.x(), padding, mode[way % 3], new_id);
        }
    }
    Some(())
}

fn bool(op: &mut Bool, make: &mut Make) -> Option<()> {
    match op {
        Bool::IntoFloat(op) => *op = make.cast(&FLOATS),
        Bool::IntoInt(op) => *op = make.cast(&INTS),
        Bool::Not(op) => *op = make.unary(),
        Bool::And(op) | Bool::Or(op) | Bool::Xor(op) => *op = make.binary(),
    }
    Some(())
}

fn int(op: &mut Int, make: &mut Make) -> Option<()> {
    match op {
        Int::IntoFloat(op) => *op = make.cast(&FLOATS),
        Int::BitwiseAnd(op)
        | Int::BitwiseOr(op)
        | Int::BitwiseXor(op)
        | Int::BitwiseLeftShift(op)
        | Int::BitwiseRightShift(op) => *op = make.binary(),
        Int::BitwiseAndScalar(op)
        | Int::BitwiseOrScalar(op)
        | Int::BitwiseXorScalar(op)
        | Int::BitwiseLeftShiftScalar(op)
        | Int::BitwiseRightShiftScalar(op) => *op = make.with_scalar(3.0),
        Int::BitwiseNot(op) => *op = make.unary(),
        Int::Matmul(op) => *op = make.matmul()?,
    }
    Some(())
}

fn float(op: &mut Float, make: &mut Make) -> Option<()> {
    match op {
        Float::Exp(op)
        | Float::Log(op)
        | Float::Log1p(op)
        | Float::Erf(op)
        | Float::Sqrt(op)
        | Float::Cos(op)
        | Float::Cosh(op)
        | Float::Sin(op)
        | Float::Sinh(op)
        | Float::Tan(op)
        | Float::Tanh(op)
        | Float::ArcCos(op)
        | Float::ArcCosh(op)
        | Float::ArcSin(op)
        | Float::ArcSinh(op)
        | Float::ArcTan(op)
        | Float::ArcTanh(op)
        | Float::Round(op)
        | Float::Floor(op)
        | Float::Ceil(op)
        | Float::Trunc(op)
        | Float::Recip(op) => *op = make.unary(),
        Float::IsNan(op) | Float::IsInf(op) => {
            *op = UnaryOpIr::create_comparison(make.strange(), make.bool(), new_id);
        }
        Float::PowfScalar(op) => {
            let exponent = [1.0, 2.0, 0.5, -1.5, 0.0][make.way(5)];
            *op = ScalarOpIr::create(make.x(), ScalarIr::Float(exponent), new_id);
        }
        Float::ArcTan2(op) | Float::Powf(op) | Float::Hypot(op) => *op = make.binary(),
        Float::IntoInt(op) => *op = make.cast(&INTS),
        Float::Matmul(op) => *op = make.matmul()?,
        Float::Cross(op) => {
            let mut shape = make.spec.shape.to_vec();
            let dim = make.dim();
            shape[dim] = 3;
            *op = CrossOpIr::create(make.of(&shape), make.of(&shape), dim, new_id);
        }
        Float::Random(op) => *op = make.random(),
        Float::Quantize(op) => {
            let scales = make.of(&[1]);
            let qparams = QuantizationParametersIr { scales, global: None };
            *op = QuantizeOpIr::create(make.x(), qparams, op.scheme, new_id);
        }
        // The input is a float tensor, because a test cannot make a quantized tensor.
        Float::Dequantize(op) => *op = DequantizeOpIr::create(make.x(), make.spec.dtype, new_id),
        Float::GridSample2d(op) => {
            let batch = make.batch()?;
            let options = GridSampleOptionsIr {
                mode: if make.way(4) < 2 {
                    InterpolateModeIr::Bilinear
                } else {
                    InterpolateModeIr::Nearest
                },
                padding_mode: if make.way(3) == 0 {
                    GridSamplePaddingModeIr::Border
                } else {
                    GridSamplePaddingModeIr::Zeros
                },
                align_corners: make.way(2) == 0,
            };
            let (x, grid) = (make.of(&[batch, 2, 4, 3]), make.of(&[batch, 3, 2, 2]));
            *op = GridSample2dOpIr::create(x, grid, options, new_id);
        }
    }
    Some(())
}
