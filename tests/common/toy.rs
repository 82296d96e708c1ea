//! Device whose memory is a `Vec` of bytes, with ops that mix bytes. An engine needs nothing else.
//!
//! Every output byte of an op depends on all input bytes and on the op's parameters. A wrong
//! recomputation anywhere therefore changes every later value. The device also checks that bytes
//! which it reads were not changed since they were written.

use remat::device::{Call, Device, DeviceError, Memory, Place, Reading, Took};
use remat::evict::Evictor;
use remat::op::{Look, OpError, Operation, Outputs};
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::graph::TensorKey;
use remat::unstable::memory::ALIGNMENT;
use remat::{CostModelKind, DType, Layout, PolicyKind, Runtime};
use remat_rng::{SplitMix64, spread};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Host data of the toy device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// `len` bytes that look random.
    pub fn of(len: usize, seed: u64) -> Arc<Self> {
        Arc::new(Self(expand(hash(seed, 1, &[]), len)))
    }
}

/// Granularity of the arenas in these tests, in bytes.
pub const GRANULE: u64 = 16;

/// Failure of a [`Toy::Break`] op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Fails,
    Panics,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Toy {
    /// `() -> (y)`: random bytes. The op holds key and counter, so a recomputation draws the same
    /// bytes.
    Draw { bytes: usize, key: u64, counter: u64 },
    /// `(x..) -> (y)`: mixes all inputs, with `scratch` bytes of workspace.
    Mix { bytes: usize, salt: u64, scratch: u64 },
    /// `(x..) -> (y..)`: one output for each size in `bytes`.
    Split { bytes: Vec<usize>, salt: u64 },
    /// `(x..) -> (y)`: depends also on the number of `Once` ops that ran before, so it cannot be
    /// recomputed.
    Once { bytes: usize, salt: u64 },
    /// `(x..) -> (x' of the first `targets` inputs in place, and a fresh output of `fresh` bytes,
    /// if any)`.
    Update { targets: usize, fresh: Option<usize>, salt: u64 },
    /// `(x..) -> (x')`: writes over the first input. The new value can be evicted. Fails in run
    /// number `run`; 0 for an op that never fails.
    Over { salt: u64, run: u32, how: Broken },
    /// `(x..) -> (y..)`: fails in run number `run` (the first is 1), and leaves invalid bytes in
    /// its outputs. Other runs are those of a `Split`.
    Break { bytes: Vec<usize>, salt: u64, run: u32, how: Broken },
    /// `(x) -> (view)`: `len` entries of the first dimension, from `start` on.
    Slice { start: usize, len: usize },
    /// `(x) -> (view)`: `x` as a matrix of `rows` rows, transposed. `x` must be contiguous.
    Turn { rows: usize },
    /// `(x) -> (view)`: `x` repeated `times` times. `x` must have one dimension.
    Repeat { times: usize },
    /// `(x) -> (view, view)`: the first `at` entries, and the rest.
    Halves { at: usize },
    /// `(x..) -> (y)`: claims that its output is a view of input 7.
    Liar,
}

/// A mix without workspace.
pub fn mix(bytes: usize, salt: u64) -> Toy {
    Toy::Mix { bytes, salt, scratch: 0 }
}

/// An in-place update of the first input.
pub fn update(salt: u64) -> Toy {
    Toy::Update { targets: 1, fresh: None, salt }
}

/// An op that writes over the first input, whose new value can be evicted.
pub fn over(salt: u64) -> Toy {
    Toy::Over { salt, run: 0, how: Broken::Fails }
}

impl Operation for Toy {
    fn name(&self) -> &str {
        match self {
            Self::Draw { .. } => "draw",
            Self::Mix { .. } => "mix",
            Self::Split { .. } => "split",
            Self::Once { .. } => "once",
            Self::Update { .. } => "update",
            Self::Over { .. } => "over",
            Self::Break { .. } => "break",
            Self::Slice { .. } => "slice",
            Self::Turn { .. } => "turn",
            Self::Repeat { .. } => "repeat",
            Self::Halves { .. } => "halves",
            Self::Liar => "liar",
        }
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError> {
        let fail = |message: String| Err(OpError::new(self.name(), message));
        let fresh = |bytes: &usize| Layout::raw(*bytes);
        let view = |layout: Option<Layout>| match layout {
            Some(layout) => Ok(Outputs::view(0, layout)),
            None => fail(format!("{self:?} of {} is not a view", inputs[0])),
        };
        Ok(match self {
            Self::Draw { bytes, .. } if inputs.is_empty() => Outputs::fresh([fresh(bytes)]),
            Self::Draw { .. } => return fail(format!("takes nothing, not {}", inputs.len())),
            Self::Mix { bytes, .. } | Self::Once { bytes, .. } => Outputs::fresh([fresh(bytes)]),
            Self::Split { bytes, .. } | Self::Break { bytes, .. } => {
                Outputs::fresh(bytes.iter().map(fresh))
            }
            Self::Update { targets, fresh: more, .. } => {
                if let Some(x) = inputs.iter().take(*targets).find(|x| !x.is_contiguous()) {
                    return fail(format!("cannot update {x} in place: not contiguous"));
                }
                if inputs.len() < *targets {
                    return fail(format!("{targets} targets but {} inputs", inputs.len()));
                }
                Outputs::Updates { targets: *targets, fresh: more.iter().map(fresh).collect() }
            }
            Self::Over { .. } => match inputs.first() {
                Some(x) if x.is_contiguous() => Outputs::Over,
                _ => return fail("has nothing contiguous to write over".to_owned()),
            },
            Self::Slice { start, len } => return view(inputs[0].slice(0, *start, *len)),
            Self::Turn { rows } => {
                let columns = inputs[0].elements() / rows;
                let matrix = inputs[0].reshape(&[*rows, columns].into());
                return view(matrix.and_then(|m| m.permute(&[1, 0])));
            }
            Self::Repeat { times } => {
                let [n] = **inputs[0].shape() else {
                    return fail(format!("{} has not one dimension", inputs[0]));
                };
                return view(inputs[0].broadcast_to(&[*times, n].into()));
            }
            Self::Halves { at } => {
                let rest = inputs[0].shape()[0].saturating_sub(*at);
                match (inputs[0].slice(0, 0, *at), inputs[0].slice(0, *at, rest)) {
                    (Some(a), Some(b)) => {
                        let looks = [a, b].map(|layout| Look { input: 0, layout });
                        Outputs::Views(looks.into_iter().collect())
                    }
                    _ => return fail(format!("{} does not split at {at}", inputs[0])),
                }
            }
            Self::Liar => Outputs::view(7, Layout::raw(1)),
        })
    }

    fn rematerializable(&self) -> bool {
        !matches!(self, Self::Once { .. })
    }
}

/// Applies an op with one output.
pub fn one(engine: &mut ToyEngine, op: Toy, inputs: &[TensorKey]) -> TensorKey {
    let made = engine.apply(op, inputs).unwrap();
    assert_eq!(made.len(), 1);
    made[0]
}

/// Output of an op with one output on these values.
pub fn expected(op: &Toy, inputs: &[&[u8]]) -> Vec<u8> {
    compute(op, &inputs.iter().map(|x| x.to_vec()).collect::<Vec<_>>(), 0).remove(0)
}

/// Reads a tensor, and checks the engine and its device.
pub fn read(engine: &mut ToyEngine, key: TensorKey) -> Vec<u8> {
    let value = engine.get(key).unwrap().0;
    engine.check();
    engine.device().watch.check();
    value
}

/// Outputs of an op that is not a view. `before`: number of `Once` ops that ran before.
pub fn compute(op: &Toy, inputs: &[Vec<u8>], before: u64) -> Vec<Vec<u8>> {
    match op {
        Toy::Draw { bytes, key, counter } => {
            vec![expand(hash(*key ^ 0xd, *counter, inputs), *bytes)]
        }
        Toy::Mix { bytes, salt, .. } => vec![expand(hash(*salt, 2, inputs), *bytes)],
        Toy::Split { bytes, salt } | Toy::Break { bytes, salt, .. } => bytes
            .iter()
            .enumerate()
            .map(|(i, &n)| expand(hash(*salt, 3 + i as u64, inputs), n))
            .collect(),
        Toy::Once { bytes, salt } => {
            vec![expand(hash(*salt ^ 0x1_0000_0000, before, inputs), *bytes)]
        }
        Toy::Update { targets, fresh, salt } => {
            let sizes = inputs[..*targets].iter().map(Vec::len).chain(*fresh);
            sizes
                .enumerate()
                .map(|(i, n)| expand(hash(*salt ^ 0x2_0000_0000, i as u64, inputs), n))
                .collect()
        }
        Toy::Over { salt, .. } => {
            vec![expand(hash(*salt ^ 0x3_0000_0000, 6, inputs), inputs[0].len())]
        }
        Toy::Slice { .. }
        | Toy::Turn { .. }
        | Toy::Repeat { .. }
        | Toy::Halves { .. }
        | Toy::Liar => unreachable!("views are not computed"),
    }
}

fn hash(salt: u64, kind: u64, inputs: &[Vec<u8>]) -> u64 {
    let mut h = spread(salt.wrapping_add(SplitMix64::STEP)) ^ spread(kind.wrapping_add(77));
    for input in inputs {
        h = spread(h ^ input.len() as u64);
        for &byte in input {
            h = (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    spread(h)
}

fn expand(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| spread(seed.wrapping_add(i)) as u8).collect()
}

/// Elements of a layout, packed in row-major order. `storage` begins at the storage's first byte.
pub fn packed(storage: &[u8], layout: &Layout) -> Vec<u8> {
    let mut out = Vec::with_capacity(layout.elements());
    let mut index = vec![0; layout.rank()];
    for _ in 0..layout.elements() {
        let at: usize = index.iter().zip(layout.strides().iter()).map(|(i, s)| i * s).sum();
        out.push(storage[layout.offset() + at]);
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < layout.shape()[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}

/// A test's view of a toy device, and switches to disturb it.
#[derive(Debug, Default)]
pub struct Watch {
    /// Uploads and runs so far, failed runs included.
    pub runs: AtomicU64,
    /// Messages about calls that the device must never get.
    violations: Mutex<Vec<String>>,
    /// Hash of all calls that the device received so far.
    pub history: AtomicU64,
    /// 0: copies work. 1: copies fail. `n` above 1: `n - 1` more copies work, and all later ones
    /// fail.
    pub fail_copy: AtomicU32,
    /// Whether the device was dropped.
    pub gone: AtomicBool,
    /// Ranges written so far, scratch included, if a test asked for them.
    pub written: Mutex<Option<Vec<Range<u64>>>>,
}

impl Watch {
    fn note(&self, what: u64, place: u64) {
        let before = self.history.load(Ordering::Relaxed);
        self.history.store(spread(before ^ spread(what) ^ place), Ordering::Relaxed);
    }

    /// Panics if the engine made the device read changed bytes, or write where it must not. The
    /// device itself cannot panic at a wrong call, because the engine catches panics of devices.
    pub fn check(&self) {
        assert_eq!(*self.violations.lock().unwrap(), Vec::<String>::new());
    }

    fn forbid(&self, happened: bool, what: impl FnOnce() -> String) {
        if happened {
            self.violations.lock().unwrap().push(what());
        }
    }

    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub struct ToyDevice {
    memory: Vec<u8>,
    granularity: u64,
    /// Offset of a storage -> number of bytes last written there, and their hash.
    written: BTreeMap<u64, (u64, u64)>,
    /// Number of `Once` ops run.
    once: u64,
    /// Salt of a `Break` op -> number of its runs so far.
    breaks: HashMap<u64, u32>,
    /// Runs whose times were not reported yet: number and seconds.
    late: VecDeque<(u64, f64)>,
    /// Values whose reading has not ended, and the number of times each was requested.
    reads: VecDeque<(Bytes, u32)>,
    pub watch: Arc<Watch>,
}

impl ToyDevice {
    /// Device of `bytes` bytes whose tensors begin at multiples of [`GRANULE`].
    pub fn new(bytes: u64) -> Self {
        Self::watched(bytes, Arc::default())
    }

    pub fn watched(bytes: u64, watch: Arc<Watch>) -> Self {
        Self {
            // Initial bytes, which no value has written.
            memory: vec![0x5a; bytes as usize],
            granularity: GRANULE,
            written: BTreeMap::new(),
            once: 0,
            breaks: HashMap::new(),
            late: VecDeque::new(),
            reads: VecDeque::new(),
            watch,
        }
    }

    pub fn with_granularity(mut self, granularity: u64) -> Self {
        self.granularity = granularity;
        self
    }

    fn sum(&self, range: Range<u64>) -> u64 {
        hash(4, 5, &[self.memory[range.start as usize..range.end as usize].to_vec()])
    }

    /// Forgets the values that overlap a range, before the range is written.
    fn forget(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Known values do not overlap each other.
        while let Some((&at, &(len, _))) = self.written.range(..range.end).next_back()
            && at + len > range.start
        {
            self.written.remove(&at);
        }
    }

    fn fill(&mut self, at: u64, bytes: &[u8]) {
        let range = at..at + bytes.len() as u64;
        self.forget(&range);
        self.memory[range.start as usize..range.end as usize].copy_from_slice(bytes);
        if let Some(written) = &mut *self.watch.written.lock().unwrap() {
            written.push(range.clone());
        }
        if !range.is_empty() {
            let sum = self.sum(range);
            self.written.insert(at, (bytes.len() as u64, sum));
        }
    }

    /// Packed elements of a tensor. Notes a violation if the tensor's bytes were changed since they
    /// were written.
    fn value(&self, place: &Place) -> Vec<u8> {
        let span = place.layout.span() as u64;
        if place.layout.elements() > 0 {
            let intact = self.written.get(&place.storage).is_some_and(|&(len, sum)| {
                span <= len && self.sum(place.storage..place.storage + len) == sum
            });
            self.watch.forbid(!intact, || format!("{place:?} is not as it was written"));
        }
        packed(&self.memory[place.storage as usize..], &place.layout)
    }
}

impl Drop for ToyDevice {
    fn drop(&mut self) {
        self.watch.gone.store(true, Ordering::Release);
    }
}

impl Device for ToyDevice {
    type Op = Toy;
    type Host = Bytes;

    fn name(&self) -> &str {
        "toy"
    }

    fn memory(&self) -> Memory {
        Memory::Arena { bytes: self.memory.len() as u64, granularity: self.granularity }
    }

    fn layout_of(host: &Bytes) -> Layout {
        Layout::raw(host.0.len())
    }

    fn write(&mut self, host: &Bytes, to: Place) -> Result<Took, DeviceError> {
        self.watch.runs.fetch_add(1, Ordering::Relaxed);
        self.watch.note(1, to.storage);
        self.fill(to.storage, &host.0);
        Ok(Took::Unknown)
    }

    fn read(&mut self, from: Place) -> Result<Bytes, DeviceError> {
        Ok(Bytes(self.value(&from)))
    }

    fn has_bits(&self) -> bool {
        true
    }

    fn bits(&mut self, from: Place, see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        see(&self.value(&from));
        Ok(())
    }

    /// Returns some values at once. Others come only at the third request.
    fn read_later(&mut self, from: Place) -> Result<Reading<Bytes>, DeviceError> {
        let value = self.read(from)?;
        if self.watch.runs().is_multiple_of(2) {
            return Ok(Reading::Done(value));
        }
        self.reads.push_back((value, 0));
        Ok(Reading::Later)
    }

    fn take_read(&mut self) -> Option<Result<Bytes, DeviceError>> {
        let (_, asked) = self.reads.front_mut()?;
        *asked += 1;
        if *asked < 3 {
            return None;
        }
        self.reads.pop_front().map(|(value, _)| Ok(value))
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        match self.watch.fail_copy.load(Ordering::Relaxed) {
            0 => {}
            1 => return Err(DeviceError::new("copy broken on purpose")),
            n => self.watch.fail_copy.store(n - 1, Ordering::Relaxed),
        }
        self.watch.note(2 ^ from << 20, to);
        if let Some(&(len, sum)) = self.written.get(&from) {
            let broken = len >= bytes && self.sum(from..from + len) != sum;
            self.watch.forbid(broken, || format!("{bytes} bytes at {from} were written over"));
        }
        let moved = self.memory[from as usize..(from + bytes) as usize].to_vec();
        self.fill(to, &moved);
        Ok(())
    }

    fn workspace(&self, op: &Toy, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        if let Toy::Mix { scratch, .. } = op { *scratch } else { 0 }
    }

    fn execute(&mut self, call: Call<'_, Toy>) -> Result<Took, DeviceError> {
        self.watch.runs.fetch_add(1, Ordering::Relaxed);
        let bytes_at = |p: &Place| p.storage..p.storage + p.layout.span() as u64;
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let outputs: Vec<Range<u64>> = call.outputs.iter().map(bytes_at).collect();
        let expected = self.workspace(call.op, &[], &[]);
        let given = call.workspace.end - call.workspace.start;
        self.watch.forbid(given != expected, || format!("{given} bytes of scratch"));
        for (i, output) in outputs.iter().enumerate() {
            self.watch.note(3, output.start);
            let meets = outputs[..i].iter().any(|other| meet(output, other));
            self.watch
                .forbid(meets || meet(output, &call.workspace), || format!("output {i}: {call:?}"));
        }
        for (i, input) in call.inputs.iter().enumerate() {
            let range = bytes_at(input);
            self.watch.forbid(meet(&range, &call.workspace), || format!("scratch: {call:?}"));
            for (o, output) in outputs.iter().enumerate() {
                let old_value = match call.op {
                    Toy::Update { targets, .. } => i == o && o < *targets,
                    Toy::Over { .. } => i == 0,
                    _ => false,
                };
                let expected = old_value && !output.is_empty();
                self.watch
                    .forbid(meet(&range, output) != expected, || format!("input {i}: {call:?}"));
            }
        }
        let inputs: Vec<Vec<u8>> = call.inputs.iter().map(|place| self.value(place)).collect();
        // Scratch and outputs are filled with nonsense, so that an op that relies on earlier bytes
        // is found.
        let scratch = call.workspace.clone();
        self.fill(scratch.start, &vec![0xee; (scratch.end - scratch.start) as usize]);
        for output in &outputs {
            self.fill(output.start, &vec![0xdd; (output.end - output.start) as usize]);
            self.forget(output);
        }
        if let Toy::Break { salt, run, how, .. } | Toy::Over { salt, run, how } = call.op {
            let runs = self.breaks.entry(*salt).or_insert(0);
            *runs += 1;
            if runs == run {
                match how {
                    Broken::Fails => return Err(DeviceError::new("broken on purpose")),
                    Broken::Panics => panic!("broken on purpose"),
                }
            }
        }
        let values = compute(call.op, &inputs, self.once);
        self.once += u64::from(matches!(call.op, Toy::Once { .. }));
        let mut moved = 0;
        for (place, value) in call.outputs.iter().zip(&values) {
            moved += value.len();
            self.fill(place.storage, value);
        }
        let seconds = 1e-6 * (moved + 1) as f64;
        let runs = self.watch.runs.load(Ordering::Relaxed);
        // Some times are known at once, some later, and some never.
        match runs % 3 {
            0 => Ok(Took::Seconds(seconds)),
            1 if call.timed => {
                self.late.push_back((runs, seconds));
                Ok(Took::Later)
            }
            _ => Ok(Took::Unknown),
        }
    }

    fn take_time(&mut self) -> Option<f64> {
        let runs = self.watch.runs.load(Ordering::Relaxed);
        let known = self.late.front().is_some_and(|&(run, _)| run + 5 <= runs);
        if known { self.late.pop_front().map(|(_, seconds)| seconds) } else { None }
    }
}

pub type ToyEngine = Engine<ToyDevice>;

/// Settings without a filter for small tensors.
pub fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.min_evict_bytes = Some(0);
    settings
}

/// Engine over a toy device of `bytes` bytes.
pub fn engine_with(
    bytes: u64,
    settings: Settings,
    policy: PolicyKind,
    costs: CostModelKind,
) -> ToyEngine {
    engine_by(bytes, settings, policy.build(0), costs)
}

/// Like [`engine_with`], with any evictor.
pub fn engine_by(
    bytes: u64,
    settings: Settings,
    evictor: Box<dyn Evictor>,
    costs: CostModelKind,
) -> ToyEngine {
    Engine::new(ToyDevice::new(bytes), settings, evictor, costs.build())
        .expect("the settings make sense")
}

/// Runtime over a toy device whose tensors have the alignment of the other devices.
pub fn runtime(budget: u64, watch: &Arc<Watch>) -> Runtime<Toy, Bytes> {
    let watch = Arc::clone(watch);
    let builder = Runtime::builder().budget(budget).min_evict_bytes(0);
    let toy = |bytes| Ok(ToyDevice::watched(bytes, watch).with_granularity(ALIGNMENT));
    builder.device(toy).expect("the settings make sense")
}

/// Engine over a toy device, with the default policy.
pub fn engine(bytes: u64) -> ToyEngine {
    engine_with(bytes, settings(), PolicyKind::default(), CostModelKind::Flops)
}

const _: () = assert!(DType::U8.bytes() == 1);
