//! Runs a program on a device. The result is the list of values that the program reads.

use super::any::Any;
use super::ops;
use super::program::{Draw, Program};
use crate::{map, with, zip};
use burn::nn::DropoutConfig;
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, DType, Device, Distribution, Float, FloatDType, Int, Tensor, TensorData};

/// Maximum number of values of each kind that a program keeps.
const KEPT: usize = 24;
/// Maximum number of elements of a value that a program keeps.
const LARGEST: usize = 500;

/// Values that a program read, in order; or the error of the read.
pub type Reads = Vec<Result<TensorData, String>>;

/// Runs the program, and calls `mark` at the end of each step.
pub fn play(program: &Program, device: &Device, mut mark: impl FnMut()) -> Reads {
    let device = if program.autodiff { device.clone().autodiff() } else { device.clone() };
    let mut state = State {
        program,
        device,
        floats: Vec::new(),
        ints: Vec::new(),
        bools: Vec::new(),
        leaves: Vec::new(),
        reads: Vec::new(),
    };
    // Some initial values.
    for word in 0..3 {
        state.make(&mut Draw::new(word));
    }
    for word in &program.steps {
        let draw = &mut Draw::new(*word);
        let name = if draw.percent(4) {
            state.detach();
            if program.marks {
                mark();
            }
            "end of a step"
        } else {
            state.step(draw)
        };
        if program.told {
            println!("{name}: {}", state.shapes());
        }
    }
    // The remaining values are also read, so that every operation affects the result.
    let State { floats, ints, bools, mut reads, .. } = state;
    reads.extend(floats.into_iter().map(Any::read));
    reads.extend(ints.into_iter().map(Any::read));
    reads.extend(bools.into_iter().map(Any::read));
    reads
}

struct State<'a> {
    program: &'a Program,
    device: Device,
    floats: Vec<Any>,
    ints: Vec<Any<Int>>,
    bools: Vec<Any<Bool>>,
    /// Values whose gradients are computed.
    leaves: Vec<Any>,
    reads: Reads,
}

/// Keeps a value. Replaces another value if too many are kept.
fn keep<K: Basic>(kept: &mut Vec<Any<K>>, made: Any<K>, draw: &mut Draw) {
    if made.elements() > LARGEST {
        return;
    }
    if kept.len() < KEPT {
        return kept.push(made);
    }
    let at = draw.below(kept.len());
    kept[at] = made;
}

/// Takes a value: sometimes its last handle, otherwise a clone.
fn take<K: Basic>(kept: &mut Vec<Any<K>>, draw: &mut Draw) -> Option<Any<K>> {
    let at = (!kept.is_empty()).then(|| draw.below(kept.len()))?;
    Some(if draw.percent(20) { kept.swap_remove(at) } else { kept[at].clone() })
}

/// Another value with a compatible shape, or the value itself.
fn partner<K: Basic>(
    kept: &[Any<K>],
    x: &Any<K>,
    draw: &mut Draw,
    fits: impl Fn(&[usize], &[usize]) -> bool,
) -> Any<K> {
    let dims = x.dims();
    let all: Vec<&Any<K>> = kept
        .iter()
        .filter(|y| {
            let other = y.dims();
            y.dtype() == x.dtype() && other.len() == dims.len() && fits(&dims, &other)
        })
        .collect();
    if all.is_empty() { x.clone() } else { all[draw.below(all.len())].clone() }
}

fn broadcast(a: &[usize], b: &[usize]) -> bool {
    a.iter().zip(b).all(|(&a, &b)| a == b || a == 1 || b == 1)
}

fn dims(draw: &mut Draw) -> Vec<usize> {
    match draw.below(5) {
        // Most shapes are equal, so that many pairs of values are compatible.
        0 | 1 => vec![12, 16],
        2 => vec![2, 3, 6, 6],
        3 => vec![4, 6, 8],
        _ => (0..draw.from(1, 4)).map(|_| draw.of(&[1, 2, 3, 4, 5])).collect(),
    }
}

impl State<'_> {
    /// Types and shapes of all kept values.
    fn shapes(&self) -> String {
        fn of<K: Basic>(kept: &[Any<K>]) -> String {
            let all: Vec<String> =
                kept.iter().map(|x| format!("{:?}{:?}", x.dtype(), x.dims())).collect();
            all.join(" ")
        }
        format!("{} | {} | {}", of(&self.floats), of(&self.ints), of(&self.bools))
    }

    /// Runs a step, and returns the step's name.
    fn step(&mut self, draw: &mut Draw) -> &'static str {
        type Step<'a> = fn(&mut State<'a>, &mut Draw);
        let (name, step): (_, Step<'_>) = match draw.below(100) {
            0..8 => ("make", Self::make),
            8..29 => {
                ("unary", |s, draw| s.float(draw, |x, draw| map!(x, x => ops::unary(x, draw))))
            }
            29..39 => ("binary", Self::binary),
            39..42 => {
                ("reduce rows", |s, draw| s.float(draw, |x, draw| map!(x, x => ops::rows(x, draw))))
            }
            42..44 => ("reduce", |s, draw| {
                s.float(draw, |x, draw| Any::R1(with!(x, x => ops::total(x, draw))));
            }),
            44..49 => ("compare", Self::compare),
            49..53 => ("mask", Self::mask),
            53..63 => ("view", Self::view),
            63..67 => ("join", Self::join),
            67..70 => {
                ("scatter", |s, draw| s.float(draw, |x, draw| map!(x, x => ops::scatter(x, draw))))
            }
            70..77 => ("layer", |s, draw| s.float(draw, ops::layer)),
            77..82 => ("integers", Self::integers),
            82..85 => ("booleans", Self::booleans),
            85..89 => ("cast", Self::cast),
            89..92 => ("read", Self::read),
            92..95 => ("let go or hold", Self::forget),
            _ if self.program.autodiff && draw.percent(60) => ("backward", Self::backward),
            _ => ("matmul", Self::matmul),
        };
        step(self, draw);
        name
    }

    fn float(&mut self, draw: &mut Draw, op: impl FnOnce(Any, &mut Draw) -> Any) {
        if let Some(x) = take(&mut self.floats, draw) {
            let made = op(x, draw);
            keep(&mut self.floats, made, draw);
        }
    }

    /// Makes a value without inputs.
    fn make(&mut self, draw: &mut Draw) {
        let dims = dims(draw);
        let all = dims.iter().product::<usize>();
        let device = &self.device;
        if self.program.random && draw.percent(60) {
            let distribution = draw.of(&[
                Distribution::Default,
                Distribution::Normal(0.0, 1.0),
                Distribution::Bernoulli(0.3),
            ]);
            let x = if draw.percent(50) {
                Any::R1(Tensor::random([all], distribution, device)).reshape(&dims)
            } else {
                let dropout = DropoutConfig::new(0.3).init();
                let x = Any::R1(ops::filler([all], (device, DType::F32))).reshape(&dims);
                map!(x, x => dropout.forward(x))
            };
            return keep(&mut self.floats, x, draw);
        }
        match draw.below(6) {
            0 => {
                let values: Vec<i32> = (0..all).map(|_| draw.below(61) as i32 - 30).collect();
                let dtype = draw.of(&[DType::I32, DType::I32, DType::I64]);
                let data = TensorData::new(values, [all]);
                let x = Any::R1(Tensor::from_data(data, (device, dtype)));
                keep(&mut self.ints, x.reshape(&dims), draw);
            }
            1 => {
                let x = Any::R1(Tensor::arange(-3..all as i64 - 3, device)).reshape(&dims);
                keep(&mut self.ints, map!(x, x => x.remainder_scalar(13)), draw);
            }
            2 => {
                let values: Vec<bool> = (0..all).map(|_| draw.percent(40)).collect();
                let x = Any::R1(Tensor::from_data(TensorData::new(values, [all]), device));
                keep(&mut self.bools, x.reshape(&dims), draw);
            }
            3 => {
                let values: Vec<f32> =
                    (0..all).map(|_| draw.below(2001) as f32 / 1000.0 - 1.0).collect();
                let x = Any::R1(Tensor::from_data(TensorData::new(values, [all]), device));
                let x = self.tracked(x.reshape(&dims));
                keep(&mut self.floats, x, draw);
            }
            4 => {
                let value = draw.of(&[0.0, 0.5, -2.0, f32::INFINITY]);
                let x = Any::R1(Tensor::full([all], value, device)).reshape(&dims);
                keep(&mut self.floats, x, draw);
            }
            _ => {
                let x = ops::filler([all], (device, FloatDType::into(ops::float_type(draw))));
                let x = Any::R1(x).reshape(&dims);
                let x = self.tracked(x);
                keep(&mut self.floats, x, draw);
            }
        }
    }

    /// Makes a leaf of the gradient graph, in programs with gradients.
    fn tracked(&mut self, x: Any) -> Any {
        if !self.program.autodiff || self.leaves.len() == KEPT {
            return x;
        }
        let x = map!(x, x => x.detach().require_grad());
        self.leaves.push(x.clone());
        x
    }

    fn binary(&mut self, draw: &mut Draw) {
        if let Some(x) = take(&mut self.floats, draw) {
            let y = partner(&self.floats, &x, draw, broadcast);
            let made = zip!(x, y, x, y => ops::binary(x, y, draw));
            keep(&mut self.floats, made, draw);
        }
    }

    fn matmul(&mut self, draw: &mut Draw) {
        if let Some(x) = take(&mut self.floats, draw) {
            let fits = |x: &Any, y: &Any| {
                let (x, y) = (x.dims(), y.dims());
                let rank = x.len();
                rank == y.len()
                    && rank > 1
                    && x[rank - 1] == y[rank - 2]
                    && broadcast(&x[..rank - 2], &y[..rank - 2])
            };
            let y = self.floats.iter().find(|y| y.dtype() == x.dtype() && fits(&x, y)).cloned();
            let made = match (x, y) {
                (x @ Any::R1(_), _) => x,
                (x, Some(y)) => zip!(x, y, x, y => ops::matmul(x, Some(y))),
                (x, None) => map!(x, x => ops::matmul(x, None)),
            };
            keep(&mut self.floats, made, draw);
        }
    }

    fn compare(&mut self, draw: &mut Draw) {
        let made = if draw.percent(75) {
            take(&mut self.floats, draw).map(|x| {
                let y = partner(&self.floats, &x, draw, broadcast);
                match draw.below(6) {
                    0 => map!(x, x => x.is_nan()),
                    _ => zip!(x, y, x, y => ops::compare(x, y, draw)),
                }
            })
        } else {
            take(&mut self.ints, draw).map(|x| {
                let y = partner(&self.ints, &x, draw, broadcast);
                zip!(x, y, x, y => ops::compare(x, y, draw))
            })
        };
        if let Some(made) = made {
            keep(&mut self.bools, made, draw);
        }
    }

    /// Replaces elements by a mask. If no mask has the right shape, a mask is made from the value.
    fn mask(&mut self, draw: &mut Draw) {
        let Some(x) = take(&mut self.floats, draw) else { return };
        let dims = x.dims();
        let mask = self.bools.iter().find(|mask| mask.dims() == dims).cloned();
        let mask = mask.unwrap_or_else(|| map!(x.clone(), x => x.greater_scalar(0.2)));
        let made = if draw.percent(50) {
            let value = draw.of(&[0.0, 1.5, f32::NEG_INFINITY]);
            zip!(x, mask, x, mask => x.mask_fill(mask, value))
        } else {
            let other = partner(&self.floats, &x, draw, |a, b| a == b);
            let other = map!(other, other => other.mul_scalar(0.5));
            zip!(x, mask, x, mask => x.mask_where(mask, other.of_rank()))
        };
        keep(&mut self.floats, made, draw);
    }

    fn view(&mut self, draw: &mut Draw) {
        fn one<K: Basic>(kept: &mut Vec<Any<K>>, draw: &mut Draw, ways: usize) {
            let Some(x) = take(kept, draw) else { return };
            let made = match draw.below(ways) {
                0..6 => map!(x, x => ops::view(x, draw)),
                6 | 7 => ops::reshape(x, draw),
                8 => map!(x, x => ops::assign(x, draw)),
                _ => map!(x, x => ops::pick(x, draw)),
            };
            keep(kept, made, draw);
        }
        match draw.below(5) {
            0 => one(&mut self.ints, draw, 10),
            // Flex's select on booleans gives numbers, which no boolean operation accepts.
            1 => one(&mut self.bools, draw, 9),
            _ => one(&mut self.floats, draw, 10),
        }
    }

    fn join(&mut self, draw: &mut Draw) {
        fn one<K: Basic>(kept: &mut Vec<Any<K>>, draw: &mut Draw) {
            let Some(x) = take(kept, draw) else { return };
            let y = partner(kept, &x, draw, |a, b| a == b);
            let made = ops::join(x, y, draw);
            keep(kept, made, draw);
        }
        match draw.below(5) {
            0 => one(&mut self.ints, draw),
            1 => one(&mut self.bools, draw),
            _ => one(&mut self.floats, draw),
        }
    }

    fn integers(&mut self, draw: &mut Draw) {
        let made = if draw.percent(30) {
            take(&mut self.floats, draw).map(|x| map!(x, x => ops::indices(x, draw)))
        } else {
            take(&mut self.ints, draw).map(|x| {
                let y = partner(&self.ints, &x, draw, broadcast);
                zip!(x, y, x, y => ops::integers(x, y, draw))
            })
        };
        if let Some(made) = made {
            keep(&mut self.ints, made, draw);
        }
    }

    fn booleans(&mut self, draw: &mut Draw) {
        if let Some(x) = take(&mut self.bools, draw) {
            let y = partner(&self.bools, &x, draw, |a, b| a == b);
            let made = zip!(x, y, x, y => ops::booleans(x, y, draw));
            keep(&mut self.bools, made, draw);
        }
    }

    /// Converts a value to another kind, or to another float type.
    fn cast(&mut self, draw: &mut Draw) {
        let to = ops::float_type(draw);
        match draw.below(5) {
            0 => {
                if let Some(x) = take(&mut self.floats, draw) {
                    keep(&mut self.ints, map!(x, x => ops::whole(x)), draw);
                }
            }
            1 => {
                if let Some(x) = take(&mut self.ints, draw) {
                    keep(&mut self.floats, map!(x, x => x.cast(to)), draw);
                }
            }
            2 => {
                if let Some(x) = take(&mut self.bools, draw) {
                    keep(&mut self.ints, map!(x, x => x.int()), draw);
                }
            }
            3 => {
                if let Some(x) = take(&mut self.bools, draw) {
                    keep(&mut self.floats, map!(x, x => x.float()), draw);
                }
            }
            _ => self.float(draw, |x, _| map!(x, x => x.cast(to))),
        }
    }

    fn read(&mut self, draw: &mut Draw) {
        let read = match draw.below(4) {
            0 => take(&mut self.ints, draw).map(Any::read),
            1 => take(&mut self.bools, draw).map(Any::read),
            _ => take(&mut self.floats, draw).map(Any::read),
        };
        self.reads.extend(read);
    }

    /// Drops a value, or keeps a second handle of it.
    fn forget(&mut self, draw: &mut Draw) {
        fn one<K: Basic>(kept: &mut Vec<Any<K>>, draw: &mut Draw) {
            if kept.is_empty() {
                return;
            }
            let at = draw.below(kept.len());
            if draw.percent(60) {
                kept.swap_remove(at);
            } else {
                let copy = kept[at].clone();
                keep(kept, copy, draw);
            }
        }
        match draw.below(4) {
            0 => one(&mut self.ints, draw),
            1 => one(&mut self.bools, draw),
            _ => one(&mut self.floats, draw),
        }
    }

    /// Computes gradients of the leaves, and reads or keeps them. Afterwards no gradient graph
    /// exists.
    fn backward(&mut self, draw: &mut Draw) {
        let tracked = |x: &Any<Float>| with!(x, x => x.is_tracked()) && x.dtype() == DType::F32;
        let Some(loss) = self.floats.iter().rev().find(|x| tracked(x)).cloned() else { return };
        let gradients = with!(loss, x => (x.clone() * x).sum().backward());
        for leaf in std::mem::take(&mut self.leaves) {
            let Some(gradient) = (match leaf {
                Any::R1(x) => x.grad(&gradients).map(Any::R1),
                Any::R2(x) => x.grad(&gradients).map(Any::R2),
                Any::R3(x) => x.grad(&gradients).map(Any::R3),
                Any::R4(x) => x.grad(&gradients).map(Any::R4),
            }) else {
                continue;
            };
            if draw.percent(50) {
                self.reads.push(gradient.read());
            } else {
                keep(&mut self.floats, map!(gradient, x => Tensor::from_inner(x)), draw);
            }
        }
        self.detach();
    }

    /// Ends the gradient graph. The program keeps its values, some of them as leaves.
    fn detach(&mut self) {
        if !self.program.autodiff {
            return;
        }
        self.leaves.clear();
        for x in std::mem::take(&mut self.floats) {
            let x = map!(x, x => x.detach());
            let x = if self.leaves.len() < 3 { self.tracked(x) } else { x };
            self.floats.push(x);
        }
    }
}
