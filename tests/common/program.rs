//! Random programs, and a naive model that keeps every value in host memory.
//!
//! A [`Program`] is plain data: the same enum can be drawn by a property test or decoded by a fuzz
//! target. [`play`] gives its commands to an engine and to the model, and compares.

pub mod draw;

use super::toy::{Broken, Bytes, GRANULE, Toy, ToyDevice, ToyEngine, Watch, compute, packed};
use remat::engine::{Dead, Issue};
use remat::error::RegenerationError;
use remat::graph::TensorKey;
use remat::op::Operation as _;
use remat::{CostModelKind, DType, Engine, Error, Layout, PolicyKind, Settings, Stats};
use std::sync::Arc;

/// One command. A `usize` that stands for a tensor counts from the newest one back, modulo how many
/// there are.
#[derive(Clone, Debug)]
pub enum Command {
    Put {
        bytes: usize,
        seed: u64,
    },
    Draw {
        bytes: usize,
        seed: u64,
    },
    Mix {
        inputs: Vec<usize>,
        bytes: usize,
        scratch: u64,
    },
    Split {
        inputs: Vec<usize>,
        bytes: Vec<usize>,
    },
    Once {
        inputs: Vec<usize>,
        bytes: usize,
    },
    /// The first `targets` inputs in place.
    Update {
        inputs: Vec<usize>,
        targets: usize,
        fresh: Option<usize>,
    },
    /// Of the first input of each, as one.
    UpdateAll {
        inputs: Vec<Vec<usize>>,
    },
    /// By another value of the same size.
    Replace {
        target: usize,
        value: usize,
    },
    Break {
        inputs: Vec<usize>,
        bytes: Vec<usize>,
        run: u32,
        how: Broken,
    },
    Slice {
        input: usize,
        start: usize,
        len: usize,
    },
    Turn {
        input: usize,
        rows: usize,
    },
    Repeat {
        input: usize,
        times: usize,
    },
    Halves {
        input: usize,
        at: usize,
    },
    /// One more handle.
    Alias {
        input: usize,
    },
    Label {
        input: usize,
    },
    Del {
        input: usize,
    },
    DropNow {
        input: usize,
    },
    Commit {
        input: usize,
    },
    Get {
        input: usize,
    },
    Step,
}

/// Commands, each with whether an op is issued (errors wait) or applied (errors at once).
pub type Program = Vec<(Command, bool)>;

/// All that must not matter to the bits.
#[derive(Clone, Debug)]
pub struct Setup {
    pub budget: u64,
    pub policy: PolicyKind,
    pub costs: CostModelKind,
    pub threshold: Option<u64>,
    pub min_evict_bytes: u64,
    pub sqrt_sampling: bool,
    pub dead: Dead,
    pub regeneration_limit: f64,
    pub seed: u64,
}

impl Setup {
    pub fn plenty() -> Self {
        Self {
            budget: 1 << 20,
            policy: PolicyKind::default(),
            costs: CostModelKind::Flops,
            threshold: None,
            min_evict_bytes: 0,
            sqrt_sampling: false,
            dead: Dead::Drop,
            regeneration_limit: Settings::default().regeneration_limit,
            seed: 0,
        }
    }

    pub fn engine(&self, watch: Arc<Watch>) -> ToyEngine {
        let mut settings = Settings::default();
        settings.eviction_threshold = self.threshold;
        settings.min_evict_bytes = Some(self.min_evict_bytes);
        settings.dead = self.dead;
        settings.regeneration_limit = self.regeneration_limit;
        let device = ToyDevice::watched(self.budget, watch);
        let evictor = match self.sqrt_sampling {
            true => self.policy.build_sampled(self.seed),
            false => self.policy.build(self.seed),
        };
        Engine::new(device, settings, evictor, self.costs.build()).expect("the settings make sense")
    }
}

/// What a tensor is in the model.
#[derive(Clone, Debug)]
enum Value {
    Bytes(Vec<u8>),
    /// Lost to a failure that was reported, in these words.
    Lost(String),
}

#[derive(Clone, Debug)]
struct Held {
    key: TensorKey,
    value: Value,
}

/// What a run was like, for comparison with another.
#[derive(Debug, PartialEq)]
pub struct Played {
    /// Without times.
    pub stats: Stats,
    /// All the device was told, in a number.
    pub history: u64,
    /// Failures that were not broken on purpose.
    pub failures: usize,
    /// Values that could not be read in the end, for lack of memory.
    pub unread: usize,
}

struct Play<'a> {
    setup: &'a Setup,
    engine: ToyEngine,
    watch: Arc<Watch>,
    held: Vec<Held>,
    /// What replaced another value in this step, and the value before.
    replaced: Vec<(TensorKey, Value)>,
    /// `Once` ops that ran.
    once: u64,
    salt: u64,
    failures: usize,
}

/// Gives a program to an engine and to the model. Panics where they differ.
pub fn play(program: &Program, setup: &Setup) -> Played {
    let watch = Arc::<Watch>::default();
    let mut play = Play {
        setup,
        engine: setup.engine(Arc::clone(&watch)),
        watch: Arc::clone(&watch),
        held: Vec::new(),
        replaced: Vec::new(),
        once: 0,
        salt: 0,
        failures: 0,
    };
    for (command, issue) in program {
        play.salt += 1;
        play.command(command, *issue);
        play.consistent();
    }
    let unread = play.read_all();
    let mut stats = play.engine.stats();
    stats.search_seconds = 0.0;
    stats.recompute_seconds = 0.0;
    while let Some(held) = play.held.pop() {
        play.engine.del(held.key);
        play.consistent();
    }
    let left = play.engine.stats();
    assert_eq!(
        (left.tensors, left.storages, left.paths, left.used_bytes),
        (0, 0, 0, 0),
        "nothing outlives the handles"
    );
    let history = watch.history.load(std::sync::atomic::Ordering::Relaxed);
    Played { stats, history, failures: play.failures, unread }
}

impl Play<'_> {
    fn command(&mut self, command: &Command, issue: bool) {
        let salt = self.salt;
        match command {
            Command::Put { bytes, seed } => {
                let host = Bytes::of(*bytes, seed ^ salt << 32);
                let key = self.engine.put(Arc::clone(&host));
                let value = self.outcome(host.0.clone());
                self.held.push(Held { key, value });
            }
            Command::Draw { bytes, seed } => {
                let op = Toy::Draw { bytes: *bytes, key: *seed, counter: salt };
                self.apply(op, vec![], issue);
            }
            Command::Mix { inputs, bytes, scratch } => {
                let op = Toy::Mix { bytes: *bytes, salt, scratch: *scratch };
                self.apply(op, self.pick(inputs), issue);
            }
            Command::Split { inputs, bytes } => {
                let op = Toy::Split { bytes: bytes.clone(), salt };
                self.apply(op, self.pick(inputs), issue);
            }
            Command::Once { inputs, bytes } => {
                self.apply(Toy::Once { bytes: *bytes, salt }, self.pick(inputs), issue);
            }
            Command::Update { inputs, targets, fresh } => {
                let inputs = self.pick(inputs);
                let mut distinct = inputs.clone();
                distinct.truncate(*targets);
                distinct.dedup();
                if !inputs.is_empty() && distinct.len() == (*targets).min(inputs.len()) {
                    let targets = distinct.len();
                    self.apply(Toy::Update { targets, fresh: *fresh, salt }, inputs, issue);
                }
            }
            Command::UpdateAll { inputs } => self.update_all(inputs),
            Command::Replace { target, value } => {
                if let [target, value] = self.pick(&[*target, *value])[..]
                    && target != value
                {
                    self.replace(target, value);
                }
            }
            Command::Break { inputs, bytes, run, how } => {
                let op = Toy::Break { bytes: bytes.clone(), salt, run: *run, how: *how };
                self.apply(op, self.pick(inputs), issue);
            }
            Command::Slice { input, start, len } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    let size = self.layout(i).shape()[0];
                    let start = start % (size + 1);
                    let op = Toy::Slice { start, len: (*len).min(size - start) };
                    self.apply(op, vec![i], issue);
                }
            }
            Command::Turn { input, rows } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    self.apply(Toy::Turn { rows: *rows }, vec![i], issue);
                }
            }
            Command::Repeat { input, times } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    self.apply(Toy::Repeat { times: *times }, vec![i], issue);
                }
            }
            Command::Halves { input, at } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    let at = at % (self.layout(i).shape()[0] + 1);
                    self.apply(Toy::Halves { at }, vec![i], issue);
                }
            }
            Command::Alias { input } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    let key = self.engine.alias(self.held[i].key).unwrap();
                    self.held.push(Held { key, value: self.held[i].value.clone() });
                }
            }
            Command::Label { input } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    self.engine.label(self.held[i].key, "labelled").unwrap();
                }
            }
            Command::Del { input } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    let key = self.held.swap_remove(i).key;
                    self.engine.del(key);
                    assert!(matches!(self.engine.get(key), Err(Error::Handle(_))));
                    self.engine.del(key);
                }
            }
            Command::DropNow { input } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    let key = self.held[i].key;
                    let gone = self.engine.drop_now(key).unwrap();
                    assert!(!gone || !self.engine.is_resident(key));
                }
            }
            Command::Commit { input } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    let key = self.held[i].key;
                    match (self.engine.commit(key), self.held[i].value.clone()) {
                        (Ok(()), Value::Bytes(_)) => {
                            assert!(!self.engine.drop_now(key).unwrap(), "a leaf stays");
                        }
                        (Err(error), Value::Lost(why)) => assert_eq!(error.to_string(), why),
                        (Err(error), Value::Bytes(_)) => self.excuse(&error),
                        (Ok(()), Value::Lost(why)) => panic!("committed what was lost: {why}"),
                    }
                }
            }
            Command::Get { input } => {
                if let Some(&i) = self.pick(&[*input]).first() {
                    self.read(i);
                }
            }
            Command::Step => {
                self.engine.step();
                self.replaced.clear();
            }
        }
    }

    fn replace(&mut self, target: usize, value: usize) {
        let [old, new] = [target, value].map(|i| self.held[i].clone());
        let layouts = [target, value].map(|i| self.layout(i));
        let look = layouts.map(|layout| (layout.dtype(), *layout.shape(), layout.is_contiguous()));
        let fits = look[0] == look[1] && look[0].2;
        match self.engine.replace(old.key, new.key) {
            Err(error) => assert!(!fits && matches!(error, Error::Op(_)), "{error}"),
            Ok(key) if key != old.key => {
                assert!(fits && matches!(new.value, Value::Bytes(_)));
                let was = self.replaced.iter().position(|(key, _)| *key == old.key);
                let first = was.map_or(old.value, |at| self.replaced.swap_remove(at).1);
                self.replaced.push((key, first));
                self.held[target] = Held { key, value: new.value };
            }
            // It was skipped: for what was lost before, or because there is no room now.
            Ok(_) => match self.take_failure() {
                Some(error) => self.excuse(&error),
                None => assert!(matches!(new.value, Value::Lost(_))),
            },
        }
    }

    /// Each is an update of its first input by all.
    fn update_all(&mut self, inputs: &[Vec<usize>]) {
        let mut updates = Vec::new();
        let mut picked: Vec<Vec<usize>> = Vec::new();
        for inputs in inputs {
            let inputs = self.pick(inputs);
            let is_new = |i: &usize| picked.iter().all(|other| other[0] != *i);
            if !inputs.first().is_some_and(|i| is_new(i) && self.layout(*i).is_contiguous()) {
                continue;
            }
            let salt = self.salt ^ (picked.len() as u64) << 40;
            let op = Toy::Update { targets: 1, fresh: None, salt };
            let layouts: Vec<Layout> = inputs.iter().map(|&i| self.layout(i)).collect();
            let outputs = op.infer(&layouts).expect("the first one is contiguous");
            let keys = inputs.iter().map(|&i| self.held[i].key).collect();
            updates.push(Issue { op, inputs: keys, outputs });
            picked.push(inputs);
        }
        let expected: Vec<Value> = (updates.iter().zip(&picked))
            .map(|(update, inputs)| {
                let layouts: Vec<Layout> = inputs.iter().map(|&i| self.layout(i)).collect();
                self.expected(&update.op, inputs, &layouts).remove(0)
            })
            .collect();
        let made = self.engine.issue_all(updates).expect("they are all in place");
        let lost = expected.iter().any(|value| matches!(value, Value::Lost(_)));
        let failure = self.take_failure();
        if let Some(error) = &failure {
            assert!(!lost, "{error}");
            self.excuse(error);
        }
        for ((inputs, keys), value) in picked.iter().zip(made).zip(expected) {
            let held = &mut self.held[inputs[0]];
            held.key = keys.made[0];
            if failure.is_none() && !lost {
                held.value = value;
            }
        }
    }

    /// The next failure. It has taken back what was replaced.
    fn take_failure(&mut self) -> Option<Error> {
        let failure = self.engine.take_failure();
        if failure.is_some() {
            self.failed();
        }
        failure
    }

    /// What was replaced in this step is as it was before.
    fn failed(&mut self) {
        for (key, value) in std::mem::take(&mut self.replaced) {
            if let Some(held) = self.held.iter_mut().find(|held| held.key == key) {
                held.value = value;
            }
        }
    }

    /// Positions of the tensors that numbers stand for; none if there are no tensors.
    fn pick(&self, inputs: &[usize]) -> Vec<usize> {
        match self.held.len() {
            0 => vec![],
            n => inputs.iter().map(|i| n - 1 - i % n).collect(),
        }
    }

    fn layout(&self, held: usize) -> Layout {
        self.engine.layout(self.held[held].key).unwrap()
    }

    fn apply(&mut self, op: Toy, inputs: Vec<usize>, issue: bool) {
        let keys: Vec<TensorKey> = inputs.iter().map(|&i| self.held[i].key).collect();
        let layouts: Vec<Layout> = inputs.iter().map(|&i| self.layout(i)).collect();
        let outputs = match op.infer(&layouts) {
            Ok(outputs) => outputs,
            Err(_) => {
                // The shapes do not fit; nothing may happen.
                let before = self.engine.stats();
                assert!(matches!(self.engine.apply(op, &keys), Err(Error::Op(_))));
                assert_eq!(before, self.engine.stats());
                return;
            }
        };
        let made = self.expected(&op, &inputs, &layouts);
        let lost_before = inputs.iter().find_map(|&i| match &self.held[i].value {
            Value::Lost(why) => Some(why.clone()),
            Value::Bytes(_) => None,
        });
        let (name, is_once) = (op.name().to_owned(), matches!(op, Toy::Once { .. }));
        let targets = if let Toy::Update { targets, .. } = op { targets } else { 0 };
        let result = if issue {
            let keys = self.engine.issue(op, &keys, &outputs).expect("a good op is issued");
            (keys, self.take_failure())
        } else {
            match self.engine.apply(op, &keys) {
                Ok(keys) => (keys, None),
                Err(error) => {
                    if lost_before.is_none() {
                        self.failed();
                    }
                    (Default::default(), Some(error))
                }
            }
        };
        let (made_keys, failure) = result;
        // What an update that is skipped leaves.
        let old: Vec<Value> =
            inputs[..targets].iter().map(|&i| self.held[i].value.clone()).collect();
        let skipped = |lost: Vec<Value>| -> Vec<Value> {
            old.into_iter().chain(lost.into_iter().skip(targets)).collect()
        };
        if failure.is_none() && !made_keys.is_empty() || issue {
            self.held.retain(|h| !keys[..targets].contains(&h.key));
        }
        let keys = made_keys;
        let values = match (failure, lost_before) {
            (None, None) => {
                self.once += u64::from(is_once);
                made
            }
            // Issued on something lost: poisoned without another report.
            (None, Some(why)) => {
                assert!(issue, "{why}");
                skipped(made)
            }
            (Some(error), Some(why)) => {
                assert_eq!(error.to_string(), why, "the first failure is the one told");
                made
            }
            (Some(error), None) => {
                self.excuse(&error);
                let text = error.to_string();
                assert!(!text.is_empty() && (text.contains(&name) || self.elsewhere(&error)));
                skipped(vec![Value::Lost(text); made.len()])
            }
        };
        self.held.extend(keys.into_iter().zip(values).map(|(key, value)| Held { key, value }));
    }

    /// What the model says an op gives.
    fn expected(&self, op: &Toy, inputs: &[usize], layouts: &[Layout]) -> Vec<Value> {
        let outputs = op.infer(layouts).expect("inferred before");
        let mut values = Vec::new();
        for &i in inputs {
            match &self.held[i].value {
                Value::Bytes(bytes) => values.push(bytes.clone()),
                lost @ Value::Lost(_) => return vec![lost.clone(); outputs.len()],
            }
        }
        let whole = |i: usize| Layout::contiguous(DType::U8, *layouts[i].shape());
        let view = |layout: Option<Layout>| {
            Value::Bytes(packed(&values[0], &layout.expect("the device's layout allowed it")))
        };
        match *op {
            Toy::Slice { start, len } => vec![view(whole(0).slice(0, start, len))],
            Toy::Turn { rows } => {
                let matrix = whole(0).reshape(&[rows, values[0].len() / rows].into());
                vec![view(matrix.and_then(|m| m.permute(&[1, 0])))]
            }
            Toy::Repeat { times } => {
                vec![view(whole(0).broadcast_to(&[times, values[0].len()].into()))]
            }
            Toy::Halves { at } => {
                let rest = whole(0).shape()[0] - at;
                vec![view(whole(0).slice(0, 0, at)), view(whole(0).slice(0, at, rest))]
            }
            _ => compute(op, &values, self.once).into_iter().map(Value::Bytes).collect(),
        }
    }

    /// A value that was made, unless there was a failure.
    fn outcome(&mut self, bytes: Vec<u8>) -> Value {
        match self.take_failure() {
            None => Value::Bytes(bytes),
            Some(error) => {
                self.excuse(&error);
                Value::Lost(error.to_string())
            }
        }
    }

    /// Fails unless an error is one that may be. Running out of memory may, if it is true.
    fn excuse(&mut self, error: &Error) {
        match error {
            Error::Device(e) if e.message.contains("broken on purpose") => {}
            Error::OutOfMemory(e) => {
                self.failures += 1;
                let wanted = e.wanted.max(1).next_multiple_of(GRANULE);
                let never = self.setup.policy == PolicyKind::None;
                assert!(
                    never || e.free + e.evictable < wanted,
                    "out of memory although it could evict: {e}"
                );
                let usable = self.setup.budget / GRANULE * GRANULE;
                assert_eq!(e.used + e.free, usable, "{e}");
                assert_eq!(e.used, e.pinned + e.leaves + e.evictable, "{e}");
            }
            Error::Regeneration(e) => {
                self.failures += 1;
                let RegenerationError::RegenerationLimit { runs, paths, limit } = **e else {
                    panic!("no reason for this: {e}")
                };
                assert_eq!(limit, self.setup.regeneration_limit);
                assert!(runs > 1 && paths > 0, "{e}");
            }
            other => panic!("no reason for this: {other}"),
        }
    }

    /// An op may fail for another that could not be run again.
    fn elsewhere(&self, error: &Error) -> bool {
        matches!(error, Error::OutOfMemory(_) | Error::Regeneration(_) | Error::Device(_))
    }

    /// Reads a tensor. False if it could not be read this time.
    fn read(&mut self, i: usize) -> bool {
        let Held { key, value } = self.held[i].clone();
        match (self.engine.get(key), value) {
            (Ok(found), Value::Bytes(expected)) => {
                assert_eq!(found.0, expected, "the bits of {key:?}");
                true
            }
            (Err(error), Value::Lost(why)) => {
                assert_eq!(error.to_string(), why);
                true
            }
            (Err(error), Value::Bytes(_)) => {
                self.excuse(&error);
                false
            }
            (Ok(_), Value::Lost(why)) => panic!("read what was lost: {why}"),
        }
    }

    /// Reads all that is held, giving handles up as it goes. Returns how many could not be read.
    fn read_all(&mut self) -> usize {
        for i in 0..self.held.len() {
            self.read(i);
            self.consistent();
        }
        let mut progress = true;
        while progress {
            progress = false;
            let mut i = 0;
            while i < self.held.len() {
                let read = self.read(i);
                self.consistent();
                if read {
                    let key = self.held.remove(i).key;
                    self.engine.del(key);
                    self.consistent();
                    progress = true;
                } else {
                    i += 1;
                }
            }
        }
        self.held.len()
    }

    fn consistent(&mut self) {
        self.engine.check();
        let stats = self.engine.stats();
        assert!(stats.peak_bytes <= self.setup.budget);
        self.watch.check();
        assert!(self.engine.take_failure().is_none(), "nothing fails in silence");
        let kept = self.replaced.iter().filter(|(key, _)| self.held.iter().any(|h| h.key == *key));
        assert_eq!(stats.tensors, self.held.len() + kept.count());
    }
}
