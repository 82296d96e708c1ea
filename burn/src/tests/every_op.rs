//! Every operation of Burn's IR gives the bits that the backend gives: where it may write over its inputs, after they were evicted,
//! and after what it made was.

use crate::backend::Facts;
use crate::device::BurnDevice;
use crate::random::{alone, random, seed_of};
use crate::samples;
use crate::samples::cases::{self, Case, Lie, SHAPES, Spec};
use crate::session::Session;
use burn_backend::{DType, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_ir::{
    BackendIr, BaseOperationIr as Base, IrVisitorMut, MaskFillOpIr, OperationIr, ScalarIr,
    TensorId, TensorIr, TensorStatus,
};
use burn_router::TensorInterpreter;
use remat::evict::Evictor;
use remat::program::{Driver, Window};
use remat::{CostModelChoice, CostModelKind, Engine, PolicyChoice, PolicyKind, Settings};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::available_parallelism;

const SEED: u64 = 7;

/// Flex, or the way to it, has none of these, or not for all types and settings, and panics. Ours is an error.
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

/// Flex keeps more than shape and type say: indices are of another type, or the gradient is a part of a larger buffer.
const LARGER: [&str; 7] = [
    "NumericInt ArgMax",
    "NumericInt ArgMin",
    "NumericInt ArgTopK",
    "Module Conv2dXBackward",
    "Module ConvTranspose1dWeightBackward",
    "Module ConvTranspose2dWeightBackward",
    "Module ConvTranspose3dWeightBackward",
];

/// Where Flex panics and ours has an answer: numbers are drawn by us, and these make nothing, or nothing of empty views.
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

/// A backend, and what is different there.
pub(super) struct On<B: BackendIr> {
    pub device: B::Device,
    /// What booleans are stored as.
    pub bools: DType,
    /// Operations that keep more than shape and type say.
    pub larger: &'static [&'static str],
    /// Operations that may panic where ours has an answer.
    pub only_ours: &'static [&'static str],
}

impl<B: BackendIr> On<B> {
    /// A session without a server.
    fn session(&self) -> Session<B> {
        let facts = Facts::of::<B>(&self.device);
        with(BurnDevice::new(self.device.clone(), facts, 1 << 40, Default::default()), facts)
    }

    /// The sample, with booleans as the backend stores them.
    fn stored(&self, case: &mut Case) {
        struct Store(DType);
        impl IrVisitorMut for Store {
            fn visit_tensor_mut(&mut self, tensor: &mut TensorIr) {
                if tensor.dtype == cases::BOOL {
                    tensor.dtype = self.0;
                }
            }
        }
        let store = &mut Store(self.bools);
        case.ir.visit_mut(store);
        for input in &mut case.inputs {
            store.visit_tensor_mut(&mut input.uploaded);
            input.view.iter_mut().for_each(|view| view.visit_mut(store));
            if input.data.dtype() == cases::BOOL {
                input.data = input.data.clone().convert_dtype(self.bools);
            }
        }
    }
}

pub(super) fn with<B: BackendIr>(device: BurnDevice<B>, facts: Facts) -> Session<B> {
    let evictor: Box<dyn Evictor> = PolicyChoice::from(PolicyKind::default()).evictor(0, false);
    let cost_model = CostModelChoice::from(CostModelKind::default()).build();
    let engine = Engine::new(device, Settings::default(), evictor, cost_model).unwrap();
    Session::new(Driver::new(engine), facts, Window::default(), SEED, Default::default())
}

/// What it makes, as the type's name, shape and bytes; or what the panic said.
type Outcome = Result<Vec<TensorData>, String>;

/// A way to run a sample.
type Way<B> = fn(&On<B>, &mut Session<B>, &Case) -> Outcome;

const fn ways<B: BackendIr>() -> [(&'static str, Way<B>); 2] {
    [("given away", given), ("evicted", evicted)]
}

fn outputs(case: &Case) -> Vec<TensorIr> {
    // These two make nothing.
    if matches!(case.ir, OperationIr::Init(_) | OperationIr::Drop(_)) {
        return Vec::new();
    }
    let read = |out: &TensorIr| TensorIr { status: TensorStatus::ReadOnly, ..out.clone() };
    case.ir.outputs().map(read).collect()
}

/// The operation with its inputs given away, so that they may be written to: all, if each is there once.
fn giving(case: &Case) -> OperationIr {
    struct GiveAway;
    impl IrVisitorMut for GiveAway {
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

/// As Burn runs it.
fn bare<B: BackendIr>(device: &B::Device, case: &Case) -> Outcome {
    let mut bare = TensorInterpreter::<B>::new(device.clone());
    for input in &case.inputs {
        bare.register_tensor_data_id(input.uploaded.id, input.data.clone());
        input.view.iter().for_each(|view| {
            bare.register_op(view.clone());
            bare.register_op(OperationIr::Drop(input.uploaded.clone()));
        });
    }
    let ir = giving(case);
    let alone = random(&ir).map(|_| alone());
    let run = || {
        if alone.is_some() {
            // The first random operation of a session.
            bare.seed(seed_of(SEED, 1));
        }
        bare.register_op(ir);
        let read = |out| burn_std::future::block_on(bare.read_tensor_async(out)).unwrap();
        outputs(case).into_iter().map(read).collect()
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| crate::device::words(&*panic))
}

/// Makes inputs that can be evicted: uploads cannot, on a backend whose tensors are on the host.
fn upload<B: BackendIr>(on: &On<B>, session: &mut Session<B>, case: &Case) {
    for input in &case.inputs {
        let whole = &input.uploaded;
        let [from, mask] = [(); 2].map(|()| crate::session::numbers(1));
        let nothing = TensorData::full_dtype(whole.shape.clone(), false, on.bools);
        session.put(from, input.data.clone());
        session.put(mask, nothing);
        let at = |id: remat::program::TensorId, dtype| TensorIr {
            id: TensorId::new(id.0),
            shape: whole.shape.clone(),
            status: TensorStatus::ReadWrite,
            dtype,
        };
        let fill = Base::MaskFill(MaskFillOpIr {
            tensor: at(from, whole.dtype),
            mask: at(mask, on.bools),
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

fn evict<B: BackendIr>(session: &mut Session<B>, tensors: impl Iterator<Item = TensorId>) {
    tensors.for_each(|tensor| session.evict(remat::program::TensorId(tensor.value())));
}

fn read<B: BackendIr>(session: &mut Session<B>, case: &Case) -> Outcome {
    let read = |out: &TensorIr| session.read(out).map_err(|error| error.to_string());
    outputs(case).iter().map(read).collect()
}

/// Its inputs are given away: it may write over them. Outputs are read, evicted, and read again.
fn given<B: BackendIr>(on: &On<B>, session: &mut Session<B>, case: &Case) -> Outcome {
    upload(on, session, case);
    session.run(giving(case));
    let first = read(session, case)?;
    if case_is_rematerializable(case) {
        evict(session, case.ir.outputs().map(|out| out.id));
        let again = read(session, case)?;
        assert!(same(&first, &again), "other bits without its inputs");
    }
    Ok(first)
}

/// Inputs are evicted before it runs, and all is evicted before each of its outputs is read.
fn evicted<B: BackendIr>(on: &On<B>, session: &mut Session<B>, case: &Case) -> Outcome {
    let inputs = || case.inputs.iter().map(|input| input.uploaded.id);
    upload(on, session, case);
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

/// The variant, such as `BaseInt Cast`.
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

/// Equal in type, shape and bits.
fn same(a: &[TensorData], b: &[TensorData]) -> bool {
    let is_one = |(a, b): (&TensorData, &TensorData)| {
        a.dtype() == b.dtype() && a.shape() == b.shape() && a.as_bytes() == b.as_bytes()
    };
    a.len() == b.len() && a.iter().zip(b).all(is_one)
}

/// What came of the samples of some operations.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub samples: usize,
    /// What neither the backend nor we run, and why not.
    pub refused: BTreeMap<String, String>,
    pub wrong: Vec<String>,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.refused.extend(other.refused);
        self.wrong.extend(other.wrong);
    }

    /// All samples of an operation, of these types and shapes.
    pub fn of<B: BackendIr>(
        on: &On<B>,
        ir: &OperationIr,
        dtypes: &[DType],
        shapes: &[&'static [usize]],
    ) -> Self {
        let (name, mut found) = (variant(ir), Self::default());
        for &dtype in dtypes {
            for &shape in shapes {
                for lie in Lie::ALL {
                    let (mut way, mut ways) = (0, 1);
                    while way < ways {
                        ways = found.look_at(on, ir, &name, Spec { dtype, shape, lie, way });
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

    /// One sample. Returns how many ways there are.
    fn look_at<B: BackendIr>(
        &mut self,
        on: &On<B>,
        ir: &OperationIr,
        name: &str,
        spec: Spec,
    ) -> usize {
        // Before the tensors, which are numbered within it.
        let sessions = ways::<B>().map(|_| on.session());
        let made = catch_unwind(|| cases::case(ir, spec));
        let (case, ways) = made.unwrap_or_else(|panic| {
            let why = crate::device::words(&*panic);
            // Shapes of samples are what Burn infers, which refuses some.
            if !why.contains("Reflect padding must be less") {
                self.wrong.push(format!("{name} {spec:?}: {why}"));
            }
            (None, 1)
        });
        let Some(mut case) = case else { return ways };
        on.stored(&mut case);
        self.samples += 1;
        let expected = catch_unwind(AssertUnwindSafe(|| bare::<B>(&on.device, &case)))
            .unwrap_or_else(|panic| Err(crate::device::words(&*panic)));
        for ((way, run), mut session) in self::ways::<B>().into_iter().zip(sessions) {
            session.checks = !on.larger.contains(&name);
            let ran = catch_unwind(AssertUnwindSafe(|| run(on, &mut session, &case)));
            match (&expected, ran) {
                (Ok(expected), Ok(Ok(ours))) => {
                    if !same(expected, &ours) {
                        self.wrong.push(format!("{name} {spec:?}: other bits, {way}"));
                    }
                }
                (Err(why), Ok(Err(_))) => {
                    // Anything may refuse what is empty, and debug builds of Burn what overflows.
                    if !spec.shape.contains(&0) && !why.contains("overflow") {
                        self.refused.insert(name.to_owned(), why.clone());
                    }
                }
                (Err(_), Ok(Ok(_))) if on.only_ours.contains(&name) => {}
                (expected, ran) => self.wrong.push(format!(
                    "{name} {spec:?}, {way}: {expected:?}, but {:?}",
                    ran.map_err(|panic| crate::device::words(&*panic))
                )),
            }
        }
        ways
    }

    /// Of all operations, each of these types and shapes.
    pub fn of_all<B: BackendIr>(
        on: &On<B>,
        dtypes: fn(&OperationIr) -> Vec<DType>,
        shapes: &[&'static [usize]],
    ) -> Self {
        let all = samples::all();
        let next = AtomicUsize::new(0);
        let work = || {
            quiet();
            let mut found = Self::default();
            while let Some(ir) = all.get(next.fetch_add(1, Relaxed)) {
                found.add(Self::of(on, ir, &dtypes(ir), shapes));
            }
            found
        };
        let mut found = Self::default();
        std::thread::scope(|scope| {
            let threads = available_parallelism().map_or(1, usize::from);
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().for_each(|worker| found.add(worker.join().unwrap()));
        });
        let Self { samples, refused, wrong } = &found;
        println!("{} variants, {samples} samples, {} wrong", all.len(), wrong.len());
        println!(
            "refused by the backend, and by us: {refused:#?}\n{}",
            wrong[..wrong.len().min(50)].join("\n")
        );
        found
    }
}

#[test]
fn every_operation_gives_the_bits_of_flex() {
    let on = On::<Flex> {
        device: FlexDevice,
        bools: cases::BOOL,
        larger: &LARGER,
        only_ours: &ONLY_OURS,
    };
    let Found { refused, wrong, .. } = Found::of_all(&on, cases::dtypes, &SHAPES);
    assert!(wrong.is_empty());
    assert!(refused.keys().map(String::as_str).eq(REFUSED));
}

/// Panics that are caught are not printed.
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
