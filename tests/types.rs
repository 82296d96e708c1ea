//! Tensors of every type and any rank are put, viewed, copied, evicted and read. Ops refuse the
//! types that they do not take.

use crate::common::device::targets;
use remat::device::{Call, Device, DeviceError, Memory, Place, Took, cpu};
use remat::op::{OpError, Operation, Outputs};
use remat::ops::{CustomOp, Op};
use remat::unstable::ops::Contiguous;
use remat::unstable::ops::samples::{Draw, Sizes, each};
use remat::{
    Builder, DType, Dims, Element, Error, HostTensor, Layout, MAX_RANK, Runtime, Tensor, bf16, f16,
};
use std::collections::BTreeMap;

/// Highest rank of the grids.
const RANKS: usize = 10;

/// Random bytes that are valid elements of the type.
fn any(draw: &mut Draw, dtype: DType, shape: &[usize]) -> HostTensor {
    let count = shape.iter().product::<usize>() * dtype.bytes();
    let limit = if dtype == DType::Bool { 2 } else { 256 };
    let bytes: Vec<u8> = (0..count).map(|_| draw.below(limit) as u8).collect();
    HostTensor::from_bytes(dtype, Dims::new(shape), &bytes).unwrap()
}

/// Shape of `rank` dimensions, few of them large.
fn shape(draw: &mut Draw, rank: usize) -> Vec<usize> {
    (0..rank).map(|_| [1, 1, 2, 2, 3][draw.below(5)]).collect()
}

/// Bytes of a view's elements, in row-major order, computed one element at a time.
fn bytes_of(storage: &[u8], view: &Layout) -> Vec<u8> {
    let size = view.dtype().bytes();
    let places = view.shape().iter().zip(view.strides().iter()).fold(
        vec![view.offset()],
        |places, (&count, &stride)| {
            let along = |&at: &usize| (0..count).map(move |i| at + i * stride);
            places.iter().flat_map(along).collect()
        },
    );
    places.iter().flat_map(|at| storage[at * size..][..size].to_vec()).collect()
}

/// Op that makes a view, as a tensor's methods do.
#[derive(Clone, Debug)]
enum See {
    Permute(Vec<usize>),
    Slice { axis: usize, start: usize, len: usize },
    Broadcast(Vec<usize>),
}

impl See {
    /// Draws a view that fits `shape`.
    fn draw(draw: &mut Draw, shape: &[usize]) -> Self {
        match draw.below(if shape.is_empty() { 2 } else { 3 }) {
            0 => {
                let mut axes: Vec<usize> = (0..shape.len()).collect();
                (1..shape.len()).for_each(|i| axes.swap(i, draw.below(i + 1)));
                Self::Permute(axes)
            }
            1 => {
                let more = usize::from(shape.len() < RANKS && draw.flip());
                let own = shape.iter().map(|&n| if n == 1 { 1 + draw.below(2) } else { n });
                Self::Broadcast(vec![2; more].into_iter().chain(own).collect())
            }
            _ => {
                let axis = draw.below(shape.len());
                let start = draw.below(shape[axis]);
                Self::Slice { axis, start, len: 1 + draw.below(shape[axis] - start) }
            }
        }
    }

    fn of_layout(&self, x: &Layout) -> Option<Layout> {
        match self {
            Self::Permute(axes) => x.permute(axes),
            Self::Slice { axis, start, len } => x.slice(*axis, *start, *len),
            Self::Broadcast(shape) => x.broadcast_to(&Dims::new(shape)),
        }
    }

    fn of_tensor(&self, x: &Tensor) -> Result<Tensor, Error> {
        match self {
            Self::Permute(axes) => x.permute(axes),
            Self::Slice { axis, start, len } => x.slice(*axis, *start..start + len),
            Self::Broadcast(shape) => x.broadcast(shape),
        }
    }
}

/// Op of a device that knows only bytes: a view, or a packed copy.
#[derive(Clone, Debug)]
enum Move {
    See(See),
    Pack,
}

impl Operation for Move {
    fn name(&self) -> &str {
        match self {
            Self::See(_) => "see",
            Self::Pack => "pack",
        }
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError> {
        let x = &inputs[0];
        Ok(match self {
            Self::Pack => Outputs::fresh([Layout::contiguous(x.dtype(), *x.shape())]),
            Self::See(see) => {
                let refuse = || OpError::new("see", format!("{see:?} does not fit {x}"));
                Outputs::view(0, see.of_layout(x).ok_or_else(refuse)?)
            }
        })
    }
}

/// Device whose memory is a vector of bytes, of any type.
struct Shelf(Vec<u8>);

impl Shelf {
    /// Elements of a tensor, packed.
    fn packed(&self, Place { storage, layout }: &Place) -> Vec<u8> {
        bytes_of(&self.0[*storage as usize..], layout)
    }

    fn put(&mut self, at: &Place, bytes: &[u8]) {
        self.0[at.storage as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

impl Device for Shelf {
    type Op = Move;
    type Host = HostTensor;

    fn name(&self) -> &str {
        "shelf"
    }

    fn memory(&self) -> Memory {
        Memory::arena(self.0.len() as u64)
    }

    fn layout_of(host: &HostTensor) -> Layout {
        host.layout()
    }

    fn write(&mut self, host: &HostTensor, to: Place) -> Result<Took, DeviceError> {
        self.put(&to, host.as_bytes());
        Ok(Took::Unknown)
    }

    fn read(&mut self, from: Place) -> Result<HostTensor, DeviceError> {
        HostTensor::from_bytes(from.layout.dtype(), *from.layout.shape(), &self.packed(&from))
            .map_err(|e| DeviceError::new(e.to_string()))
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        self.0.copy_within(from as usize..(from + bytes) as usize, to as usize);
        Ok(())
    }

    fn execute(&mut self, call: Call<'_, Move>) -> Result<Took, DeviceError> {
        let packed = self.packed(&call.inputs[0]);
        self.put(&call.outputs[0], &packed);
        Ok(Took::Unknown)
    }
}

/// Puts tensors of every type and rank, views, packs and reads them. All are held at once under a
/// budget that is too small for them.
///
/// `see` makes a view, `pack` a packed copy.
fn walk<O: Operation, H: Send + Sync + 'static>(
    runtime: &Runtime<O, H>,
    put: impl Fn(HostTensor) -> H,
    see: impl Fn(&Tensor, &See) -> Result<Tensor, Error>,
    pack: impl Fn(&Tensor) -> Result<Tensor, Error>,
    check: impl Fn(&H, &Layout, &[u8]),
) {
    let mut draw = Draw::new(1, Sizes::Small);
    let mut held = Vec::new();
    for dtype in DType::ALL {
        for rank in 0..=RANKS {
            let sizes = shape(&mut draw, rank);
            let host = any(&mut draw, dtype, &sizes);
            let (mut layout, mut tensor) = (host.layout(), runtime.put(put(host.clone())).unwrap());
            held.push((tensor.clone(), layout, host.as_bytes().to_vec()));
            for _ in 0..3 {
                let next = See::draw(&mut draw, layout.shape());
                layout = next.of_layout(&layout).unwrap();
                tensor = see(&tensor, &next).unwrap();
                assert_eq!(*tensor.layout(), layout, "{next:?}");
                held.push((tensor.clone(), layout, bytes_of(host.as_bytes(), &layout)));
            }
            let packed = pack(&tensor).unwrap();
            assert_eq!(*packed.layout(), Layout::contiguous(dtype, *layout.shape()));
            held.push((packed, layout, bytes_of(host.as_bytes(), &layout)));
        }
    }
    // All are read twice, the second time backwards, so that evicted tensors are restored.
    for (tensor, layout, expected) in held.iter().chain(held.iter().rev()) {
        check(&runtime.get(tensor).unwrap(), layout, expected);
    }
    let stats = runtime.stats().unwrap();
    assert!(stats.evictions > 0 && stats.recomputed_ops > 0, "{stats:?}");
}

fn tight() -> Builder {
    Runtime::builder().budget("40KiB").min_evict_bytes("0B")
}

fn same(found: &HostTensor, layout: &Layout, expected: &[u8]) {
    assert_eq!((found.dtype(), found.shape()), (layout.dtype(), layout.shape()));
    assert_eq!(found.as_bytes(), expected, "{layout:?}");
}

#[test]
fn a_device_of_your_own_holds_any_type_and_rank() {
    let runtime = tight().device(|bytes| Ok(Shelf(vec![0xA5; bytes as usize]))).unwrap();
    let one = |op: Move, x: &Tensor| Ok(runtime.apply(op, &[x])?.swap_remove(0));
    let see = |x: &Tensor, see: &See| one(Move::See(see.clone()), x);
    walk(&runtime, |host| host, see, |x| one(Move::Pack, x), same);
}

#[test]
fn the_crates_devices_hold_any_type_and_rank() {
    for target in targets() {
        let runtime = target.start(tight());
        let pack = |x: &Tensor| Ok(runtime.apply(Contiguous, &[x])?.swap_remove(0));
        walk(&runtime, |host| host, |x, see| see.of_tensor(x), pack, same);
    }
}

/// The simulator's values are all zeros, but types, shapes and counters are right.
#[test]
fn the_simulator_counts_any_type_and_rank() {
    let runtime = tight().sim().unwrap();
    let pack = |x: &Tensor| Ok(runtime.apply(Contiguous, &[x])?.swap_remove(0));
    let zeros = |found: &HostTensor, layout: &Layout, expected: &[u8]| {
        same(found, layout, &vec![0; expected.len()]);
    };
    walk(&runtime, |host| host, |x, see| see.of_tensor(x), pack, zeros);
}

fn there_and_back<T: Element + PartialEq + std::fmt::Debug>(runtime: &Runtime, elements: &[T]) {
    for rank in 0..=RANKS {
        let count = if rank == 0 { 1 } else { elements.len() };
        let mut sizes = vec![1; rank];
        sizes.iter_mut().take(1).for_each(|size| *size = count);
        sizes.reverse();
        let given = &elements[..count];
        let host = HostTensor::new(Dims::new(&sizes), given.to_vec()).unwrap();
        let x = runtime.put(host).unwrap();
        assert_eq!((x.dtype(), x.rank(), x.shape()), (T::DTYPE, rank, &sizes[..]));
        assert_eq!(x.to_vec::<T>().unwrap(), given);
        assert_eq!(x.to_host().unwrap().as_slice::<T>(), Some(given));
        let reversed: Vec<usize> = (0..rank).rev().collect();
        assert_eq!(x.permute(&reversed).unwrap().to_vec::<T>().unwrap(), given);
        let text = format!("{:?}", x.to_host().unwrap());
        assert_eq!(text, format!("{}{sizes:?} {given:?}", T::DTYPE));
    }
    let x = runtime.put(HostTensor::new([elements.len()], elements.to_vec()).unwrap()).unwrap();
    let wrong =
        if T::DTYPE == DType::I64 { x.to_vec::<f64>().err() } else { x.to_vec::<i64>().err() };
    let wrong = wrong.unwrap().to_string();
    assert!(
        wrong.contains(&format!("{}[{}] does not have elements of type", T::DTYPE, elements.len())),
        "{wrong}"
    );
}

#[test]
fn values_of_every_type_are_read_as_they_were_put() {
    for target in targets() {
        let runtime = target.start(Runtime::builder().budget("1MiB"));
        there_and_back(&runtime, &[0.1f64, -1e300, f64::INFINITY, 5e-324]);
        there_and_back(&runtime, &[0.1f32, -1e30, f32::MAX]);
        there_and_back(&runtime, &[0.1, -6e4, 65504.0].map(f16::from_f32));
        there_and_back(&runtime, &[0.1, -6e34, 3.0].map(bf16::from_f32));
        there_and_back(&runtime, &[i64::MIN, -1, 0, i64::MAX]);
        there_and_back(&runtime, &[i32::MIN, -1, 0, i32::MAX]);
        there_and_back(&runtime, &[u32::MAX, 0, 7]);
        there_and_back(&runtime, &[255u8, 0, 7, 128, 1]);
        there_and_back(&runtime, &[true, false, true]);
    }
}

#[test]
fn numbers_without_a_suffix_are_those_that_ops_take() {
    let runtime = Runtime::builder().budget("1MiB").cpu().unwrap();
    assert_eq!(runtime.tensor(&[2], vec![1.0, 2.0]).unwrap().dtype(), DType::F32);
    assert_eq!(runtime.tensor(&[2], vec![1, 2]).unwrap().dtype(), DType::I32);
    assert_eq!(runtime.tensor(&[2], vec![1u8, 2]).unwrap().dtype(), DType::U8);
    assert_eq!(runtime.tensor(&[1], vec![bf16::ONE]).unwrap().dtype(), DType::BF16);
    assert_eq!(HostTensor::new([1], vec![1.0f64]).unwrap().dtype(), DType::F64);
}

/// Each op is applied to inputs of every type. Before it runs, it refuses the types that it does
/// not take. The error names the op, the type given and the types expected.
#[test]
fn ops_refuse_the_types_they_do_not_take() {
    let (cpu, sim) = (Runtime::builder().budget("1MiB"), Runtime::builder().budget("1MiB"));
    let runtimes = [cpu.cpu().unwrap(), sim.sim().unwrap()];
    // These ops only move bytes, of one input or of several inputs of one type. Other ops that take
    // `bf16` are tested with the devices.
    let movers = [
        "broadcast",
        "concat",
        "contiguous",
        "flip",
        "pad",
        "permute",
        "reshape",
        "slice",
        "split",
    ];
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut refused = 0;
    for op in each() {
        // All inputs are contiguous and have elements.
        let mut draw = Draw::new(7, Sizes::Small);
        let sample = std::iter::repeat_with(|| draw.sample(&op))
            .find(|sample| sample.layouts().iter().all(|x| x.is_contiguous() && x.elements() > 0))
            .unwrap();
        let usual: Vec<Layout> =
            sample.layouts().iter().map(|x| Layout::contiguous(x.dtype(), *x.shape())).collect();
        let op = sample.op;
        for runtime in &runtimes {
            // The type of one input is changed, or of all.
            for which in (0..usual.len()).map(Some).chain([None]) {
                for dtype in DType::ALL {
                    let with = |(i, x): (usize, &Layout)| {
                        let is_other = which.is_none_or(|which| which == i);
                        Layout::contiguous(if is_other { dtype } else { x.dtype() }, *x.shape())
                    };
                    let layouts: Vec<Layout> = usual.iter().enumerate().map(with).collect();
                    let has_floats = usual.iter().any(|x| x.dtype() == DType::F32);
                    if layouts == usual
                        || (dtype == DType::BF16 && has_floats && !movers.contains(&op.name()))
                    {
                        continue;
                    }
                    let put =
                        |x: &Layout| runtime.put(HostTensor::zeros(x.dtype(), *x.shape()).unwrap());
                    let inputs: Vec<Tensor> = layouts.iter().map(|x| put(x).unwrap()).collect();
                    let inputs: Vec<&Tensor> = inputs.iter().collect();
                    match runtime.apply(op.clone(), &inputs) {
                        Ok(outputs) => {
                            *taken.entry(op.name().to_owned()).or_default() += 1;
                            for y in &outputs {
                                assert_eq!(y.dtype(), dtype, "{op:?} of {layouts:?}");
                                let zeros = runtime.get(y).unwrap();
                                assert!(zeros.as_bytes().iter().all(|&byte| byte == 0));
                            }
                        }
                        Err(Error::Op(error)) => {
                            refused += 1;
                            let error = error.to_string();
                            assert!(error.starts_with(&format!("{}: ", op.name())), "{error}");
                            // The error names the type given and the types taken.
                            let got = layouts.iter().any(|x| error.contains(&format!("is {x}")));
                            assert!(got && error.contains("expected "), "{error} of {layouts:?}");
                        }
                        Err(error) => panic!("{op:?} of {layouts:?}: {error}"),
                    }
                    runtime.sync().unwrap();
                }
            }
        }
    }
    assert_eq!(taken.keys().collect::<Vec<_>>(), movers, "{taken:?}");
    assert!(refused > 1000, "{refused}");
}

#[test]
fn too_many_loops_or_dimensions_are_refused_at_the_call() {
    let runtime = Runtime::builder().budget("1MiB").cpu().unwrap();
    let message = |result: Result<Tensor, Error>| match result {
        Err(Error::Op(error)) => error.to_string(),
        other => panic!("not an error of the op: {other:?}"),
    };
    let x = runtime.ones(&[2; 8]).unwrap();
    assert_eq!(x.relu().unwrap().sum().unwrap().item().unwrap(), 256.0, "one loop");
    let turned = x.permute(&[7, 6, 5, 4, 3, 2, 1, 0]).unwrap();
    for refused in [turned.relu(), &turned + &x, &x * &turned, turned.sum_along(&[], false)] {
        let text = message(refused);
        assert!(text.contains(&format!("f32{:?} with strides", [2; 8])), "{text}");
        assert!(text.contains(&format!("8 nested loops, at most {MAX_RANK}")), "{text}");
    }
    assert_eq!(turned.contiguous().unwrap().relu().unwrap().mean().unwrap().item().unwrap(), 1.0);
    let text = message(x.matmul(&x));
    assert!(
        text.contains("matmul: a is f32[2, 2, 2, 2, 2, 2, 2, 2] of rank 8, expected at most 6")
    );
    for many in [
        runtime.zeros(&[1; 256]),
        x.reshape(&[1; 300]),
        x.broadcast(&[2; 256]),
        runtime.uniform(&[1; 1000], 0.0..1.0),
    ] {
        assert!(message(many).contains("dimensions, but at most 255 are supported"));
    }
    let wide = runtime.ones(&[1; 255]).unwrap();
    assert_eq!((wide.rank(), wide.exp().unwrap().item().unwrap()), (255, 1f32.exp()));
    runtime.sync().unwrap();
}

/// `(x f32) -> (y bf16, negative bool)`: each element rounded to the nearest `bf16`, and whether it
/// is negative. Two types in one op.
#[derive(Debug)]
struct Round;

impl CustomOp for Round {
    fn name(&self) -> &str {
        "round"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        match inputs {
            [x] if x.dtype() == DType::F32 => Ok([DType::BF16, DType::Bool]
                .map(|dtype| Layout::contiguous(dtype, *x.shape()))
                .to_vec()),
            _ => Err(format!("takes one f32, got {inputs:?}")),
        }
    }

    fn cpu(&self, mut run: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (y, negative, x) = (run.write::<bf16>(0), run.write::<u8>(1), run.read::<f32>(0));
        for ((y, negative), &x) in y.iter_mut().zip(negative).zip(x) {
            (*y, *negative) = (bf16::from_f32(x), u8::from(x < 0.0));
        }
        Ok(())
    }
}

#[test]
fn a_custom_op_makes_tensors_of_other_types_and_any_rank() {
    let numbers: Vec<f32> = (0..512).map(|i| (i as f32 - 200.0) / 7.0).collect();
    let expected: Vec<bf16> = numbers.iter().copied().map(bf16::from_f32).collect();
    for budget in ["1MiB", "6KiB"] {
        let builder = || Runtime::builder().budget(budget).min_evict_bytes("0B");
        for runtime in [builder().cpu().unwrap(), builder().sim().unwrap()] {
            let x = runtime.tensor(&[2; 9], numbers.clone()).unwrap();
            let made = Tensor::apply(Round, &[&x]).unwrap();
            let others: Vec<Tensor> = (0..4).map(|_| x.exp().unwrap()).collect();
            let is_sim =
                made[1].to_host().unwrap() == HostTensor::zeros(DType::Bool, [2; 9]).unwrap();
            if !is_sim {
                assert_eq!(made[0].to_vec::<bf16>().unwrap(), expected);
                let negative: Vec<bool> = numbers.iter().map(|&x| x < 0.0).collect();
                assert_eq!(made[1].to_vec::<bool>().unwrap(), negative);
            }
            drop(others);
            assert_eq!(made[0].shape(), [2; 9]);
            let error = Tensor::apply(Round, &[&made[0]]).unwrap_err().to_string();
            assert!(error.starts_with("round: takes one f32"), "{error}");
            assert!(runtime.stats().unwrap().peak_bytes <= runtime.stats().unwrap().budget_bytes);
        }
    }
}

/// `() -> (y bool)`: bytes that are not all 0 or 1.
#[derive(Debug)]
struct NeitherNor;

impl CustomOp for NeitherNor {
    fn name(&self) -> &str {
        "neither_nor"
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![Layout::contiguous(DType::Bool, [3])])
    }

    fn cpu(&self, mut run: cpu::Operands<'_>) -> Result<(), DeviceError> {
        run.write::<u8>(0).copy_from_slice(&[1, 0, 2]);
        Ok(())
    }
}

#[test]
fn bytes_that_are_no_truth_values_are_an_error_of_the_read() {
    let runtime = Runtime::builder().budget("1MiB").cpu().unwrap();
    let y = runtime.apply(Op::from(NeitherNor), &[]).unwrap().remove(0);
    let error = y.to_host().unwrap_err().to_string();
    assert!(error.contains("element 2 of bool[3] is the byte 2, expected 0 or 1"), "{error}");
    // The elements with valid bytes can still be read.
    assert_eq!(y.slice(0, 0..2).unwrap().to_vec::<bool>().unwrap(), [true, false]);
}
