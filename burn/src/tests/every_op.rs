//! Under a budget, every operation of Burn's IR gives the same bits as Flex alone: with permission
//! to overwrite inputs, after eviction of inputs, and after eviction of outputs.

use crate::backend::Facts;
use crate::device::BurnDevice;
use crate::random::{alone, random, seed_of};
use crate::samples;
use crate::samples::cases::{self, Case, Lie, SHAPES, Spec};
use crate::session::Session;
use burn_backend::{DType, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_ir::{
    BaseOperationIr as Base, MaskFillOpIr, OperationIr, ScalarIr, TensorId, TensorIr, TensorStatus,
};
use burn_router::TensorInterpreter;
use remat::evict::Evictor;
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::program::{Driver, Window};
use remat::{CostModelChoice, CostModelKind, PolicyChoice, PolicyKind};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::available_parallelism;

const SEED: u64 = 7;

/// Operations on which Flex or Burn's interpreter panics, at least for some types and settings. A
/// session returns an error for these operations.
const REFUSED: [&str; 17] = [
    "BaseBool Cast",
    "BaseBool GatherNd",
    "BaseBool Scatter",
    "BaseBool ScatterNd",
    "BaseBool SelectAssign",
    "BaseInt Cast",
    "Custom",
    "Distributed AllReduce",
    "Float Dequantize",
    "Float Quantize",
    "Int Matmul",
    "Module CtcLossBackward",
    "Module Interpolate",
    "Module InterpolateBackward",
    "NumericFloat Powi",
    "NumericInt IntRandom",
    "NumericInt Mean",
];

/// Operations whose outputs take more bytes in Flex than their shape and type need: indices have
/// another type, or the gradient is a part of a larger buffer.
const LARGER: [&str; 7] = [
    "NumericInt ArgMax",
    "NumericInt ArgMin",
    "NumericInt ArgTopK",
    "Module Conv2dXBackward",
    "Module ConvTranspose1dWeightBackward",
    "Module ConvTranspose2dWeightBackward",
    "Module ConvTranspose3dWeightBackward",
];

/// Operations on which Flex panics, but a session gives a result. There are three reasons: the
/// session draws random numbers itself, the operation has no outputs, or the operation makes an
/// empty tensor from empty views.
const ONLY_OURS: [&str; 8] = [
    "NumericFloat IntRandom",
    "Distributed SyncCollective",
    "BaseFloat MaskFill",
    "BaseFloat MaskWhere",
    "BaseInt MaskFill",
    "BaseInt MaskWhere",
    "BaseBool MaskFill",
    "BaseBool MaskWhere",
];

/// Session on Flex, without a server.
pub(super) fn session(budget: u64) -> Session<Flex> {
    let facts = Facts::of::<Flex>(&FlexDevice);
    with(BurnDevice::new(FlexDevice, facts, budget, Default::default()), facts)
}

pub(super) fn with(device: BurnDevice<Flex>, facts: Facts) -> Session<Flex> {
    let evictor: Box<dyn Evictor> = PolicyChoice::from(PolicyKind::default()).evictor(0, false);
    let cost_model = CostModelChoice::from(CostModelKind::default()).build();
    let engine = Engine::new(device, Settings::default(), evictor, cost_model).unwrap();
    Session::new(Driver::new(engine), facts, Window::default(), SEED, Default::default())
}

/// Outputs of a sample, with type, shape and bytes; or the message of the panic.
type Outcome = Result<Vec<TensorData>, String>;

/// Way to run a sample.
type Way = fn(&mut Session<Flex>, &Case) -> Outcome;

const WAYS: [(&str, Way); 2] = [("given away", given), ("evicted", evicted)];

fn outputs(case: &Case) -> Vec<TensorIr> {
    // `Init` and `Drop` have no outputs.
    if matches!(case.ir, OperationIr::Init(_) | OperationIr::Drop(_)) {
        return Vec::new();
    }
    let read = |out: &TensorIr| TensorIr { status: TensorStatus::ReadOnly, ..out.clone() };
    case.ir.outputs().map(read).collect()
}

/// The operation of a case, with permission to overwrite all its inputs, if no input occurs twice.
fn giving(case: &Case) -> OperationIr {
    struct GiveAway;
    impl burn_ir::IrVisitorMut for GiveAway {
        fn visit_tensor_mut(&mut self, tensor: &mut TensorIr) {
            tensor.status = TensorStatus::ReadWrite;
        }
    }
    let mut ir = case.ir.clone();
    let mut ids: Vec<TensorId> = ir.inputs().map(|input| input.id).collect();
    ids.sort_unstable();
    if ids.windows(2).all(|two| two[0] != two[1]) {
        ir.visit_mut(&mut GiveAway);
    }
    ir
}

/// Runs a sample in Burn's interpreter on Flex, without remat.
fn bare(case: &Case) -> Outcome {
    let mut flex = TensorInterpreter::<Flex>::new(FlexDevice);
    for input in &case.inputs {
        flex.register_tensor_data_id(input.uploaded.id, input.data.clone());
        input.view.iter().for_each(|view| {
            flex.register_op(view.clone());
            flex.register_op(OperationIr::Drop(input.uploaded.clone()));
        });
    }
    let ir = giving(case);
    let alone = random(&ir).map(|_| alone());
    let run = || {
        if alone.is_some() {
            // Seed of the first random operation of a session.
            flex.seed(seed_of(SEED, 1));
        }
        flex.register_op(ir);
        let read = |out| burn_std::future::block_on(flex.read_tensor_async(out)).unwrap();
        outputs(case).into_iter().map(read).collect()
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| crate::runner::words(&*panic))
}

/// Makes inputs that can be evicted. On a backend in the host's memory, uploads cannot be evicted,
/// so an operation makes each input from an upload.
fn upload(session: &mut Session<Flex>, case: &Case) {
    for input in &case.inputs {
        let whole = &input.uploaded;
        let [from, mask] = [(); 2].map(|()| crate::session::numbers(1));
        let nothing = burn_backend::TensorData::full_dtype(whole.shape.clone(), false, cases::BOOL);
        session.put(from, input.data.clone());
        session.put(mask, nothing);
        let at = |id: remat::unstable::program::TensorId, dtype| TensorIr {
            id: TensorId::new(id.0),
            shape: whole.shape.clone(),
            status: TensorStatus::ReadWrite,
            dtype,
        };
        let fill = Base::MaskFill(MaskFillOpIr {
            tensor: at(from, whole.dtype),
            mask: at(mask, cases::BOOL),
            value: match whole.dtype {
                DType::Bool(_) => ScalarIr::Bool(false),
                dtype => ScalarIr::new(0, &dtype),
            },
            out: TensorIr { status: TensorStatus::NotInit, ..whole.clone() },
        });
        session.run(match whole.dtype {
            DType::Bool(_) => OperationIr::BaseBool(fill),
            dtype if dtype.is_float() => OperationIr::BaseFloat(fill),
            _ => OperationIr::BaseInt(fill),
        });
        input.view.iter().for_each(|view| session.run(view.clone()));
    }
}

fn evict(session: &mut Session<Flex>, tensors: impl Iterator<Item = TensorId>) {
    tensors.for_each(|tensor| session.evict(remat::unstable::program::TensorId(tensor.value())));
}

fn read(session: &mut Session<Flex>, case: &Case) -> Outcome {
    let read = |out: &TensorIr| session.read(out).map_err(|error| error.to_string());
    outputs(case).iter().map(read).collect()
}

/// Runs the operation with permission to overwrite its inputs. Reads the outputs, evicts them, and
/// reads them again.
fn given(session: &mut Session<Flex>, case: &Case) -> Outcome {
    upload(session, case);
    session.run(giving(case));
    let first = read(session, case)?;
    if case_is_rematerializable(case) {
        evict(session, case.ir.outputs().map(|out| out.id));
        let again = read(session, case)?;
        assert!(same(&first, &again), "other bits without its inputs");
    }
    Ok(first)
}

/// Evicts the inputs, runs the operation, and evicts all its tensors before each read of an output.
fn evicted(session: &mut Session<Flex>, case: &Case) -> Outcome {
    let inputs = || case.inputs.iter().map(|input| input.uploaded.id);
    upload(session, case);
    evict(session, inputs());
    session.run(case.ir.clone());
    let mut all = Vec::new();
    for out in outputs(case) {
        let again = case.ir.outputs().map(|out| out.id).chain(inputs());
        if case_is_rematerializable(case) {
            evict(session, again);
        }
        all.push(session.read(&out).map_err(|error| error.to_string())?);
    }
    Ok(all)
}

fn case_is_rematerializable(case: &Case) -> bool {
    !matches!(case.ir, OperationIr::Drop(_) | OperationIr::Custom(_) | OperationIr::Distributed(_))
}

/// Name of the variant, such as `BaseInt Cast`.
fn variant(ir: &OperationIr) -> String {
    let text = format!("{ir:?}");
    let words = text.split(['(', ' ', ',', '{']).filter(|word| !word.is_empty());
    let variant = match ir {
        OperationIr::Init(_) | OperationIr::Drop(_) | OperationIr::Custom(_) => 1,
        _ => 2,
    };
    let ours =
        words.filter(|word| !cases::FLOATS.iter().any(|dtype| format!("{dtype:?}") == *word));
    ours.take(variant).collect::<Vec<_>>().join(" ").trim_end_matches(')').to_owned()
}

/// Whether type, shape and bits are equal.
fn same(a: &[TensorData], b: &[TensorData]) -> bool {
    let is_one = |(a, b): (&TensorData, &TensorData)| {
        a.dtype() == b.dtype() && a.shape() == b.shape() && a.as_bytes() == b.as_bytes()
    };
    a.len() == b.len() && a.iter().zip(b).all(is_one)
}

/// Results for the samples of some operations.
#[derive(Debug, Default)]
struct Found {
    samples: usize,
    /// Operations that neither Flex nor a session can run, and the reason.
    refused: BTreeMap<String, String>,
    wrong: Vec<String>,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.refused.extend(other.refused);
        self.wrong.extend(other.wrong);
    }

    /// Runs all samples of an operation.
    fn of(ir: &OperationIr) -> Self {
        let (name, mut found) = (variant(ir), Self::default());
        for dtype in cases::dtypes(ir) {
            for shape in SHAPES {
                for lie in Lie::ALL {
                    let (mut way, mut ways) = (0, 1);
                    while way < ways {
                        ways = found.look_at(ir, &name, Spec { dtype, shape, lie, way });
                        way += 1;
                    }
                }
            }
        }
        if found.samples == 0 {
            found.wrong.push(format!("{name}: no samples"));
        }
        found
    }

    /// Runs one sample. Returns the number of settings of the operation.
    fn look_at(&mut self, ir: &OperationIr, name: &str, spec: Spec) -> usize {
        // Sessions are made before the tensors of the case: a session treats tensors with numbers
        // below its first number as tensors of earlier sessions.
        let sessions = WAYS.map(|_| session(1 << 40));
        let made = catch_unwind(|| cases::case(ir, spec));
        let (case, ways) = made.unwrap_or_else(|panic| {
            let why = crate::runner::words(&*panic);
            // Burn checks the shapes of the case, and refuses some.
            if !why.contains("Reflect padding must be less") {
                self.wrong.push(format!("{name} {spec:?}: {why}"));
            }
            (None, 1)
        });
        let Some(case) = case else { return ways };
        self.samples += 1;
        let expected = catch_unwind(AssertUnwindSafe(|| bare(&case)))
            .unwrap_or_else(|panic| Err(crate::runner::words(&*panic)));
        for ((way, run), mut session) in WAYS.into_iter().zip(sessions) {
            session.checks = !LARGER.contains(&name);
            let ran = catch_unwind(AssertUnwindSafe(|| run(&mut session, &case)));
            match (&expected, ran) {
                (Ok(expected), Ok(Ok(ours))) => {
                    if !same(expected, &ours) {
                        self.wrong.push(format!("{name} {spec:?}: other bits, {way}"));
                    }
                }
                (Err(why), Ok(Err(_))) => {
                    // Any operation may refuse empty tensors, and debug builds of Burn panic at an
                    // overflow.
                    if !spec.shape.contains(&0) && !why.contains("overflow") {
                        self.refused.insert(name.to_owned(), why.clone());
                    }
                }
                (Err(_), Ok(Ok(_))) if ONLY_OURS.contains(&name) => {}
                (expected, ran) => self.wrong.push(format!(
                    "{name} {spec:?}, {way}: {expected:?}, but {:?}",
                    ran.map_err(|panic| crate::runner::words(&*panic))
                )),
            }
        }
        ways
    }
}

/// Tests a third of the variants of operations, or all variants if `REMAT_ALL_CELLS` is set.
/// `.ci/release` sets it.
#[test]
fn every_operation_gives_the_bits_of_flex() {
    let is_whole = std::env::var_os("REMAT_ALL_CELLS").is_some();
    let all: Vec<_> = samples::all().into_iter().step_by(if is_whole { 1 } else { 3 }).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        quiet();
        let mut found = Found::default();
        while let Some(ir) = all.get(next.fetch_add(1, Relaxed)) {
            found.add(Found::of(ir));
        }
        found
    };
    let mut found = Found::default();
    std::thread::scope(|scope| {
        let threads = available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| found.add(worker.join().unwrap()));
    });
    let Found { samples, refused, wrong } = found;
    println!("{} variants, {samples} samples, {} wrong", all.len(), wrong.len());
    println!(
        "refused by Flex, and by us: {refused:#?}\n{}",
        wrong[..wrong.len().min(50)].join("\n")
    );
    assert!(wrong.is_empty());
    assert!(refused.keys().all(|name| REFUSED.contains(&name.as_str())));
    assert!(!is_whole || refused.len() == REFUSED.len());
}

/// Suppresses the printing of caught panics on this thread.
pub(super) fn quiet() {
    thread_local!(static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                loud(panic);
            }
        }));
    });
    QUIET.set(true);
}
