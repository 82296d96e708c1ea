//! Values, gradients and second gradients of every op are those of PyTorch in float64. PyTorch's
//! numbers are in `tests/fixtures/ops.json`, written by `make.py` beside it.
//!
//! A new op needs a few lines in `make.py`, and none in this file. A method that is composed of ops
//! also needs a line in this file.

use crate::common::device::{Target, targets};
use crate::common::walk::{Case, Pass};
use remat::nn::{
    Gru, GruCell, Lstm, LstmCell, LstmState, Mode, Module, TransformerBlock, parameters,
};
use remat::op::Operation;
use remat::ops::{Conv1d, Conv2d, ConvTranspose2d, Library};
use remat::trace::{Entry, Recorder};
use remat::unstable::ops::samples::each;
use remat::{DType, Dims, Error, HostTensor, Runtime, Tensor, bf16};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Largest allowed error as a share of the largest element, in f32 and for values stored as `bf16`.
const TOLERANCE: [f64; 2] = [1e-5, 1e-2];

/// Cases that are compared in f32 only. The op `cross_entropy` takes no `bf16`, because the method
/// casts its input. In a transformer block, the roundings of some twenty ops add up. Each of these
/// ops has a separate case.
const IN_F32_ALONE: [&str; 2] = ["cross_entropy", "transformer_block"];

/// Ops that no case runs, with the reason.
const LEFT_OUT: [(&str, &str); 7] = [
    ("accumulate", "updates in place"),
    ("adamw", "updates in place; tests/optimizers.rs"),
    ("lion", "updates in place; tests/optimizers.rs"),
    ("sgd_momentum", "updates in place; tests/optimizers.rs"),
    ("uniform", "random"),
    ("normal", "random"),
    ("bernoulli", "random"),
];

/// Function made of ops: from the attributes and inputs of a case to the output.
type Function = fn(&Value, &[Tensor]) -> Result<Tensor, Error>;

const FUNCTIONS: &[(&str, Function)] = &[
    ("masked_fill", |_, x| x[0].masked_fill(&x[1], -3.5)),
    ("conv2d", |_, x| x[0].conv2d(&x[1], Conv2d::new([2, 1], [1, 0]))),
    ("conv_transpose2d", |attributes, x| {
        let pair = |name: &str, usual| [0, 1].map(|i| size(&attributes[name][i], usual));
        let conv = ConvTranspose2d {
            stride: pair("stride", 1),
            padding: pair("padding", 0),
            output_padding: pair("output_padding", 0),
            dilation: pair("dilation", 1),
            groups: size(&attributes["groups"], 1),
        };
        x[0].conv_transpose2d(&x[1], conv)
    }),
    ("conv1d", |attributes, x| {
        let conv = Conv1d {
            stride: size(&attributes["stride"], 1),
            padding: size(&attributes["padding"], 0),
            dilation: size(&attributes["dilation"], 1),
            groups: size(&attributes["groups"], 1),
        };
        x[0].conv1d(&x[1], conv)
    }),
    ("lstm_cell", |_, x| {
        let before = LstmState { h: x[1].clone(), c: x[2].clone() };
        let after = lstm_cell(&x[3..])?.step(&x[0], Some(&before))?;
        Tensor::concat(&[&after.h, &after.c], 1)
    }),
    ("lstm_cell_from_zero", |_, x| {
        let after = lstm_cell(&x[1..])?.step(&x[0], None)?;
        Tensor::concat(&[&after.h, &after.c], 1)
    }),
    ("gru_cell", |_, x| gru_cell(&x[2..])?.step(&x[0], Some(&x[1]))),
    ("gru_cell_from_zero", |_, x| gru_cell(&x[1..])?.step(&x[0], None)),
    ("lstm", |_, x| {
        let cells = vec![lstm_cell(&x[1..5])?, lstm_cell(&x[5..9])?];
        Ok(Lstm::of(cells).run(&x[0], None)?.0)
    }),
    ("gru", |_, x| {
        let cells = vec![gru_cell(&x[1..5])?, gru_cell(&x[5..9])?];
        Ok(Gru::of(cells).run(&x[0], None)?.0)
    }),
    ("var", |_, x| x[0].var_along(&[0, 2], 1, false)),
    ("std", |_, x| x[0].std_along(&[1], 0, true)),
    ("std_of_sample", |_, x| x[0].std_along(&[1], 1, true)),
    ("max_of_all", |_, x| x[0].max()),
    ("min_of_all", |_, x| x[0].min()),
    ("sqrt_of_clamp", |_, x| x[0].clamp(0.0, f32::INFINITY)?.sqrt()),
    ("sqrt_of_relu", |_, x| x[0].relu()?.sqrt()),
    ("sqrt_of_maximum", |_, x| x[0].maximum(&x[1])?.sqrt()),
    ("sqrt_of_where", |_, x| x[1].where_cond(&x[0], &x[0].affine(0.0, 1.0)?)?.sqrt()),
    ("logsumexp_along", |_, x| x[0].logsumexp(&[1], false)),
    ("logsumexp", |_, x| x[0].logsumexp(&[0, 2], false)),
    ("norm", |_, x| x[0].norm()),
    ("norm_of", |_, x| Tensor::norm_of(&[&x[0], &x[1]])),
    ("chunk", |_, x| {
        let parts = x[0].chunk(3, 1)?;
        Tensor::concat(&[&parts[2], &parts[0]], 1)
    }),
    ("split", |_, x| x[0].split(3, 2)?[1].contiguous()),
    ("stack", |_, x| Tensor::stack(&[&x[0], &x[1]], 1)),
    ("repeat", |_, x| x[0].repeat(&[2, 1, 3])),
    ("mse_loss", |_, x| x[0].mse_loss(&x[1])),
    ("bce_with_logits", |_, x| x[0].binary_cross_entropy_with_logits(&x[1])),
    ("bce", |_, x| x[0].binary_cross_entropy(&x[1])),
    ("rotary", |_, x| x[0].rotary(&x[1], &x[2])),
    ("clip_by_norm", |attributes, x| {
        let most = attributes["max_norm"].as_f64().unwrap() as f32;
        let (clipped, _) = Tensor::clip_by_norm(&[&x[0], &x[1]], most)?;
        Tensor::concat(&[&clipped[0].reshape(&[6])?, &clipped[1]], 0)
    }),
    ("upsample_nearest", |_, x| x[0].upsample_nearest([6, 7])),
    ("upsample_bilinear", |_, x| x[0].upsample_bilinear([9, 5], false)),
    ("upsample_bilinear_aligned", |_, x| x[0].upsample_bilinear([3, 5], true)),
    ("adaptive_avg_pool2d", |_, x| x[0].adaptive_avg_pool2d([3, 2])),
    ("cast", |_, x| x[0].cast(DType::BF16)?.cast(DType::F32)),
    ("contiguous", |_, x| x[0].permute(&[2, 0, 1])?.contiguous()),
];

/// Makes a module from the attributes of a case. The inputs are `x` and the parameters that the
/// attributes name.
type Maker = fn(&Runtime, &Value) -> Result<Box<dyn Module>, Error>;

const MODULES: &[(&str, Maker)] = &[("transformer_block", |runtime, attributes| {
    let block = TransformerBlock::new(runtime, 4, size(&attributes["heads"], 1))?;
    let causal = attributes["causal"].as_bool().expect("whether it is causal");
    Ok(Box::new(if causal { block.causal() } else { block }))
})];

/// Output of a module for a case's inputs.
fn run_module(
    make: Maker,
    runtime: &Runtime,
    attributes: &Value,
    x: &[Tensor],
) -> Result<Tensor, Error> {
    let mut module = make(runtime, attributes)?;
    let mut given: BTreeMap<&str, &Tensor> =
        list(&attributes["names"]).iter().map(|name| name.as_str().unwrap()).zip(&x[1..]).collect();
    for (name, parameter) in parameters(&mut *module) {
        *parameter = given.remove(name.as_str()).unwrap_or_else(|| panic!("no {name}")).clone();
    }
    assert!(given.is_empty(), "the module does not have {given:?}");
    module.forward(&x[0], Mode::Train)
}

/// Cell with the inputs `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`.
fn lstm_cell(x: &[Tensor]) -> Result<LstmCell, Error> {
    LstmCell::of(x[0].clone(), x[1].clone(), x[2].clone(), x[3].clone())
}

fn gru_cell(x: &[Tensor]) -> Result<GruCell, Error> {
    GruCell::of(x[0].clone(), x[1].clone(), x[2].clone(), x[3].clone())
}

/// Size in an attribute of a case, or `usual` if the case has none.
fn size(value: &Value, usual: usize) -> usize {
    value.as_u64().map_or(usual, |size| size as usize)
}

/// Case, and PyTorch's numbers for it.
struct Fixture {
    case: Case,
    constants: BTreeSet<usize>,
    /// Numbers for the unchanged inputs.
    full: Expected,
    /// Numbers for inputs rounded to `bf16`, if any input is a float.
    half: Option<Expected>,
}

struct Expected {
    outputs: Vec<HostTensor>,
    /// Gradients by order, then by input. `None`: the input is not watched.
    gradients: Vec<Vec<Option<HostTensor>>>,
}

impl Expected {
    fn new(entry: &Value) -> Self {
        let of_order = |order: &Value| {
            list(order).iter().map(|x| (!x.is_null()).then(|| host(x, false))).collect()
        };
        Self {
            outputs: list(&entry["outputs"]).iter().map(|x| host(x, false)).collect(),
            gradients: list(&entry["gradients"]).iter().map(of_order).collect(),
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// Tensor of a fixture. Floats become f64, but those of inputs become f32, exactly.
fn host(value: &Value, is_input: bool) -> HostTensor {
    let shape: Vec<usize> =
        list(&value["shape"]).iter().map(|size| size.as_u64().unwrap() as usize).collect();
    // Infinities and NaN are written as text.
    let float = |x: &Value| x.as_f64().or_else(|| x.as_str()?.parse().ok()).expect("a float");
    let floats = || list(&value["floats"]).iter().map(float);
    let host = if let Some(ints) = value["ints"].as_array() {
        HostTensor::i32(
            Dims::new(&shape),
            ints.iter().map(|x| x.as_i64().unwrap() as i32).collect(),
        )
    } else if is_input {
        HostTensor::f32(Dims::new(&shape), floats().map(|x| x as f32).collect())
    } else {
        HostTensor::new::<f64>(Dims::new(&shape), floats().collect())
    };
    host.expect("as many as the shape has")
}

impl Fixture {
    fn new(entry: &Value) -> Self {
        let name = entry["name"].as_str().expect("a name");
        let watched = list(&entry["watched"]).iter().map(|watched| watched.as_bool().unwrap());
        let given = list(&entry["inputs"]).iter().map(|x| host(x, true)).zip(watched).collect();
        let attributes = entry["attributes"].clone();
        let case = if let Some(op) = entry["op"].as_str() {
            let op = Library::default().op(op, Some(&attributes.to_string())).unwrap();
            Case::given(name, given, move |runtime, x| {
                let inputs: Vec<&Tensor> = x.iter().collect();
                Ok(runtime.apply(op.clone(), &inputs)?.into_vec())
            })
        } else {
            let wanted = entry["function"].as_str().expect("an op or a function");
            if let Some(&(_, make)) = MODULES.iter().find(|(name, _)| *name == wanted) {
                Case::given(name, given, move |runtime, x| {
                    Ok(vec![run_module(make, runtime, &attributes, x)?])
                })
            } else {
                let found = FUNCTIONS.iter().find(|(name, _)| *name == wanted);
                let (_, function) = found.unwrap_or_else(|| panic!("no function {wanted}"));
                Case::given(name, given, move |_, x| Ok(vec![function(&attributes, x)?]))
            }
        };
        Self {
            case,
            full: Expected::new(entry),
            half: (!entry["bf16"].is_null()).then(|| Expected::new(&entry["bf16"])),
            constants: list(&entry["constants"])
                .iter()
                .map(|k| k.as_u64().unwrap() as usize)
                .collect(),
        }
    }

    /// Compares the case in f32. The error says what differs.
    fn check(&self, runtime: &Runtime) -> Result<(), String> {
        self.compare(runtime, &self.case.hosts(), &self.full, TOLERANCE[0])
    }

    /// Compares the case in `bf16`. The error says what differs.
    fn check_half(&self, runtime: &Runtime) -> Result<(), String> {
        let Some(expected) = &self.half else { return Ok(()) };
        let round = |host: HostTensor| match host.as_f32() {
            Some(data) => {
                let data = data.iter().map(|&x| bf16::from_f32(x)).collect();
                HostTensor::new(*host.shape(), data).expect("as many as before")
            }
            None => host,
        };
        let hosts: Vec<HostTensor> = self.case.hosts().into_iter().map(round).collect();
        // A GRU runs dozens of ops in a row, each of which rounds.
        let ops = if self.case.name.starts_with("gru") { 3.0 } else { 1.0 };
        self.compare(runtime, &hosts, expected, ops * TOLERANCE[1])
    }

    fn compare(
        &self,
        runtime: &Runtime,
        hosts: &[HostTensor],
        expected: &Expected,
        tolerance: f64,
    ) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let compare = |found: Option<&Tensor>, expected| compare(found, expected, tolerance);
        let mut pass = Pass::start(runtime, &self.case, hosts).map_err(text)?;
        for (k, expected) in expected.outputs.iter().enumerate() {
            let found =
                pass.values.get(k).and_then(Option::as_ref).ok_or("an output is missing")?;
            compare(Some(found), expected).map_err(|e| format!("output {k} {e}"))?;
            let is_derived = expected.as_slice::<f64>().is_some() && !self.constants.contains(&k);
            // The loss is computed in f32, so that only the op under test rounds.
            let curve = || {
                let found = found.cast(DType::F32)?;
                found.mul(&found.affine(0.25, 1.0)?)
            };
            let curved = is_derived.then(curve).transpose();
            pass.values[k] = curved.map_err(text)?;
        }
        for (order, expected) in expected.gradients.iter().enumerate() {
            pass.derive(1).map_err(text)?;
            for (i, expected) in expected.iter().enumerate() {
                match (expected, &pass.values[i]) {
                    (Some(expected), found) => {
                        let what = |e| format!("gradient {} of input {i} {e}", order + 1);
                        compare(found.as_ref(), expected).map_err(what)?;
                    }
                    (None, None) => {}
                    (None, Some(_)) => return Err(format!("input {i} is not watched")),
                }
            }
        }
        Ok(())
    }
}

/// Compares a tensor with the expected one. `None` stands for zeros.
fn compare(found: Option<&Tensor>, expected: &HostTensor, tolerance: f64) -> Result<(), String> {
    let Some(expected) = expected.as_slice::<f64>() else {
        let found = found.ok_or("is missing")?.to_host().map_err(|e| e.to_string())?;
        let same = found.as_i32() == expected.as_i32() && found.shape() == expected.shape();
        return if same { Ok(()) } else { Err(format!("is {found:?}, expected {expected:?}")) };
    };
    let found = match found {
        Some(found) => {
            let found = found.cast(DType::F32).and_then(|found| found.to_vec::<f32>());
            found.map_err(|e| e.to_string())?
        }
        None => vec![0.0; expected.len()],
    };
    let finite = expected.iter().filter(|x| x.is_finite());
    let largest = finite.fold(0.0f64, |largest, x| largest.max(x.abs()));
    let near = |(&a, &b): (&f32, &f64)| match (f64::from(a), b) {
        (a, b) if b.is_finite() => (a - b).abs() <= tolerance * largest,
        (a, b) => a == b || a.is_nan() && b.is_nan(),
    };
    if found.len() == expected.len() && found.iter().zip(expected).all(near) {
        Ok(())
    } else {
        Err(format!("is {found:?}, expected {expected:?}"))
    }
}

fn fixtures() -> Vec<Fixture> {
    let all: Value = serde_json::from_str(include_str!("fixtures/ops.json")).expect("fixtures");
    list(&all).iter().map(Fixture::new).collect()
}

/// Texts about all cases that differ.
fn differences(
    runtime: &Runtime,
    check: impl Fn(&Fixture, &Runtime) -> Result<(), String>,
) -> Vec<String> {
    let check = |fixture: &Fixture| {
        let error = check(fixture, runtime).err()?;
        Some(format!("{}: {error}", fixture.case.name))
    };
    fixtures().iter().filter_map(check).collect()
}

#[test]
fn values_and_gradients_are_those_of_pytorch() {
    for target in targets() {
        let runtime = target.start(Runtime::builder().budget("16MiB"));
        let found = differences(&runtime, Fixture::check);
        assert!(found.is_empty(), "{target:?}:\n{}", found.join("\n"));
    }
}

#[test]
fn so_they_are_stored_in_half_the_bytes() {
    for target in targets() {
        let runtime = target.start(Runtime::builder().budget("16MiB"));
        let mut found = differences(&runtime, Fixture::check_half);
        found.retain(|text| !IN_F32_ALONE.iter().any(|name| text.starts_with(name)));
        assert!(found.is_empty(), "{target:?}:\n{}", found.join("\n"));
    }
}

/// Recorder that keeps the names of the ops that ran.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<BTreeSet<String>>>);

impl Recorder for Names {
    fn record(&mut self, entry: &Entry) {
        if let Entry::Did { command, .. } = entry {
            let names = command.calls().iter().map(|call| call.op.name.to_string());
            self.0.lock().unwrap().extend(names);
        }
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The ops that compute a gradient run in the cases of the op whose gradient they compute.
#[test]
fn every_op_has_a_case() {
    let names = Names::default();
    let builder = Runtime::builder().budget("16MiB").record(names.clone());
    let runtime = Target::Cpu.start(builder);
    differences(&runtime, Fixture::check);
    runtime.sync().unwrap();
    let ran = names.0.lock().unwrap();
    let all: BTreeSet<String> = each().iter().map(|op| op.name().to_owned()).collect();
    let left_out: BTreeSet<String> = LEFT_OUT.iter().map(|&(name, _)| name.to_owned()).collect();
    // Modules start with random weights, so random ops ran, too.
    let ran: BTreeSet<String> = ran.difference(&left_out).cloned().collect();
    let missing: BTreeSet<String> = all.difference(&ran).cloned().collect();
    assert_eq!(missing, left_out, "an op without a case");
}
