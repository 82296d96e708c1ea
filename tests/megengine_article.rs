//! Compares `megengine-article` with a transcription of the code that it follows: that of MegEngine
//! 1.4, as quoted in the article about it.
//!
//! Random programs run in an engine. For each score, the policy and the transcription are compared.
//! The transcription builds its graph from the engine's tables and events, and never deletes
//! entries. The names are those of MegEngine's code.

use crate::common::toy::{Bytes, GRANULE, Toy, ToyDevice, ToyEngine, mix, settings};
use remat::evict::{ArticleConstants, ByScore, Exponents, Policy, View};
use remat::unstable::engine::Settings;
use remat::unstable::engine::{Dead, Engine};
use remat::unstable::event::{Cause, Event};
use remat::unstable::evict::{MegEngine, MegEngineArticle};
use remat::unstable::graph::{PathKey, StorageKey, TensorKey};
use remat::{CostModel, CostModelKind, Run};
use remat_rng::SplitMix64;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// Constants as they stand in the code.
const AS_WRITTEN: ArticleConstants = ArticleConstants {
    exponents: Exponents { cost: 1.0, bytes: 1.0, staleness: 1.0 },
    rerun_factor: 1.0001,
    cost_offset: 1e-3,
    staleness_offset: 1e-3,
    cost_scale: 1e8,
    memory_unit: 1024.0 * 1024.0,
};

struct DsuNode {
    parent: Option<usize>,
    t: f64,
}

struct TensorInfo {
    dropped: bool,
    compute_time: f64,
    recompute_times: u32,
    dsu_ptr: usize,
    producer: Option<usize>,
}

struct ComputePath {
    inputs: Vec<usize>,
    outputs: Vec<Option<usize>>,
}

struct Transcription {
    constants: ArticleConstants,
    nodes: Vec<DsuNode>,
    tensors: Vec<TensorInfo>,
    paths: Vec<ComputePath>,
    /// How often each of [`PECULIAR`] happened.
    seen: BTreeMap<&'static str, u32>,
}

/// Unusual situations that the random programs must reach, so that the test covers them.
const PECULIAR: [&str; 14] = [
    "a score",
    "a score with reruns",
    "a set below the neighbour's own cost",
    "a set below zero",
    "the same input again",
    "the same set again",
    "the set of a resident root",
    "a root that leaves others",
    "a node that leaves with others",
    "an eviction that was chosen",
    "an eviction that was not",
    "a rerun",
    "an output that a rerun finds resident",
    "an evicted tensor that is freed",
];

impl Transcription {
    fn see(&mut self, what: &'static str, really: bool) {
        *self.seen.entry(what).or_default() += u32::from(really);
    }

    fn find_father(&mut self, x: usize) -> usize {
        let Some(parent) = self.nodes[x].parent else { return x };
        let father = self.find_father(parent);
        self.nodes[x].parent = Some(father);
        father
    }

    fn merge(&mut self, x: usize, y: usize) {
        let (f_x, f_y) = (self.find_father(x), self.find_father(y));
        if f_x != f_y {
            self.nodes[f_y].t += self.nodes[f_x].t;
            self.nodes[f_x].parent = Some(f_y);
        }
    }

    fn update_dsu_after_recompute(&mut self, ptr: usize) {
        let TensorInfo { dsu_ptr, compute_time, .. } = self.tensors[ptr];
        let father = self.find_father(dsu_ptr);
        let others = self.nodes.iter().any(|node| node.parent == Some(dsu_ptr));
        self.see("a root that leaves others", others && father == dsu_ptr);
        self.see("a node that leaves with others", others && father != dsu_ptr);
        self.nodes[father].t -= compute_time;
        self.nodes[dsu_ptr].parent = None;
        self.nodes[dsu_ptr].t = compute_time;
    }

    fn update_dsu_after_evict(&mut self, ptr: usize) {
        let path = self.tensors[ptr].producer.unwrap();
        for i in self.paths[path].inputs.clone() {
            if self.tensors[i].dropped {
                self.merge(self.tensors[i].dsu_ptr, self.tensors[ptr].dsu_ptr);
            }
        }
        for i in self.paths[path].outputs.clone().into_iter().flatten() {
            if self.tensors[i].dropped {
                self.merge(self.tensors[ptr].dsu_ptr, self.tensors[i].dsu_ptr);
            }
        }
    }

    fn estimate_neighbor_cost(&mut self, ptr: usize) -> f64 {
        let path = &self.paths[self.tensors[ptr].producer.unwrap()];
        let (inputs, outputs) = (path.inputs.clone(), path.outputs.clone());
        let mut cost = 0.0;
        let (mut neighbours, mut fathers) = (vec![], vec![]);
        for i in inputs.into_iter().chain(outputs.into_iter().flatten()) {
            if self.tensors[i].dropped {
                let father = self.find_father(self.tensors[i].dsu_ptr);
                let mut t = self.nodes[father].t;
                self.see("a set below zero", t < 0.0);
                if t < self.tensors[i].compute_time {
                    t = self.tensors[i].compute_time;
                    self.see("a set below the neighbour's own cost", true);
                }
                cost += t;
                let owner = self.tensors.iter().find(|tensor| tensor.dsu_ptr == father).unwrap();
                self.see("the set of a resident root", !owner.dropped);
                let known = neighbours.contains(&i);
                self.see("the same input again", known);
                self.see("the same set again", !known && fathers.contains(&father));
                neighbours.push(i);
                fathers.push(father);
            }
        }
        cost
    }

    fn eval_func(&mut self, ptr: usize, memory: f64, free_mem: f64, unused_for: f64) -> f64 {
        let cost = self.estimate_neighbor_cost(ptr);
        let k = self.constants;
        let recompute_times = f64::from(self.tensors[ptr].recompute_times);
        self.see("a score", true);
        self.see("a score with reruns", recompute_times > 0.0);
        (cost + k.cost_offset).powf(k.exponents.cost) * k.rerun_factor.powf(recompute_times)
            / (((memory + free_mem) / k.memory_unit).powf(k.exponents.bytes)
                * (unused_for + k.staleness_offset).powf(k.exponents.staleness))
    }

    fn do_drop(&mut self, ptr: usize) {
        self.tensors[ptr].dropped = true;
    }

    fn recompute(&mut self, path: usize, again: bool) {
        self.see("a rerun", again);
        for o in self.paths[path].outputs.clone().into_iter().flatten() {
            self.tensors[o].recompute_times += u32::from(again);
            if self.tensors[o].dropped {
                self.tensors[o].dropped = false;
                self.update_dsu_after_recompute(o);
            } else {
                self.see("an output that a rerun finds resident", true);
            }
        }
    }

    fn real_free(&mut self, ptr: usize) {
        let path = self.tensors[ptr].producer.take().unwrap();
        let outputs = &mut self.paths[path].outputs;
        outputs.iter_mut().filter(|output| **output == Some(ptr)).for_each(|output| *output = None);
        self.tensors[ptr].dropped = false;
        self.see("an evicted tensor that is freed", true);
    }
}

/// Policy that asks [`MegEngineArticle`] and the transcription side by side.
#[derive(Clone)]
struct Both(Arc<Mutex<BothInner>>);

struct BothInner {
    policy: MegEngineArticle,
    transcription: Transcription,
    tensors: HashMap<StorageKey, usize>,
    paths: HashMap<PathKey, usize>,
    scores: Vec<(StorageKey, f64)>,
    /// Mismatches found. The policy keeps them and does not panic, because an engine catches the
    /// panics of a policy.
    wrong: Vec<String>,
}

impl BothInner {
    fn path_of(&mut self, key: PathKey, view: View<'_>) -> usize {
        if let Some(&path) = self.paths.get(&key) {
            return path;
        }
        let number = self.transcription.paths.len();
        self.paths.insert(key, number);
        self.transcription.paths.push(ComputePath { inputs: vec![], outputs: vec![] });
        let path = view.graph.path(key);
        let inputs = path.inputs.iter().map(|edge| self.tensor(edge.storage, view)).collect();
        let outputs = path.outputs.iter().map(|o| o.map(|key| self.tensor(key, view))).collect();
        self.transcription.paths[number] = ComputePath { inputs, outputs };
        number
    }

    /// Number of a storage in the transcription. A new storage counts as never evicted.
    fn tensor(&mut self, key: StorageKey, view: View<'_>) -> usize {
        if let Some(&tensor) = self.tensors.get(&key) {
            return tensor;
        }
        let transcription = &mut self.transcription;
        let (number, dsu_ptr) = (transcription.tensors.len(), transcription.nodes.len());
        let compute_time = view.graph.own_cost(key) * transcription.constants.cost_scale;
        transcription.nodes.push(DsuNode { parent: None, t: compute_time });
        transcription.tensors.push(TensorInfo {
            dropped: false,
            compute_time,
            recompute_times: 0,
            dsu_ptr,
            producer: None,
        });
        self.tensors.insert(key, number);
        let producer = view.graph.storage(key).producer.map(|path| self.path_of(path, view));
        self.transcription.tensors[number].producer = producer;
        number
    }
}

impl std::fmt::Debug for Both {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Both")
    }
}

impl Policy for Both {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let mut both = self.0.lock().unwrap();
        let tensor = both.tensor(candidate, view);
        let storage = view.graph.storage(candidate);
        let (memory, free) = (storage.bytes as f64, view.free_neighbour_bytes(candidate) as f64);
        let unused_for = view.now - storage.last_used;
        let expected = both.transcription.eval_func(tensor, memory, free, unused_for);
        let score = both.policy.score(candidate, view);
        if score.to_bits() != expected.to_bits() {
            both.wrong.push(format!("{score} for {candidate:?}, which is {tensor}: {expected}"));
        }
        both.scores.push((candidate, score));
        score
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        let mut both = self.0.lock().unwrap();
        both.policy.on(event, view);
        match *event {
            Event::DidEvict { storage, cause, .. } => {
                let tensor = both.tensor(storage, view);
                both.transcription.do_drop(tensor);
                let chosen = matches!(cause, Cause::Room | Cause::Threshold);
                if chosen {
                    both.transcription.update_dsu_after_evict(tensor);
                }
                both.transcription.see("an eviction that was chosen", chosen);
                both.transcription.see("an eviction that was not", !chosen);
            }
            Event::DidRegenerate { storage, .. } => {
                let tensor = both.tensor(storage, view);
                // The transcription notes a run only at its first output.
                if both.transcription.tensors[tensor].dropped {
                    let path = view.graph.storage(storage).producer.unwrap();
                    let number = both.path_of(path, view);
                    both.transcription.recompute(number, view.graph.path(path).ran);
                }
            }
            Event::WillForget { storage } => {
                let tensor = both.tensor(storage, view);
                both.transcription.real_free(tensor);
            }
            _ => {}
        }
    }
}

impl Both {
    fn new(policy: MegEngineArticle, constants: ArticleConstants) -> Self {
        let transcription = Transcription {
            constants,
            nodes: vec![],
            tensors: vec![],
            paths: vec![],
            seen: BTreeMap::new(),
        };
        Self(Arc::new(Mutex::new(BothInner {
            policy,
            transcription,
            tensors: HashMap::new(),
            paths: HashMap::new(),
            scores: vec![],
            wrong: vec![],
        })))
    }

    fn engine(
        &self,
        bytes: u64,
        settings: Settings,
        costs: Box<dyn CostModel>,
        sampled: Option<u64>,
    ) -> ToyEngine {
        let evictor = ByScore::new(self.clone());
        let evictor = match sampled {
            Some(seed) => evictor.sampled(seed),
            None => evictor,
        };
        Engine::new(ToyDevice::new(bytes), settings, Box::new(evictor), costs).unwrap()
    }
}

/// Runs random commands: ops of one to three outputs, deletions, evictions and reads. Commands may
/// fail for lack of memory.
fn play(engine: &mut ToyEngine, draw: &mut SplitMix64, commands: usize) {
    let mut held: Vec<TensorKey> = Vec::new();
    for salt in 0..commands as u64 {
        let pick = if held.is_empty() { None } else { Some(draw.below(held.len())) };
        match (draw.below(20), pick) {
            (0, _) | (_, None) => held.push(engine.put(Bytes::of(1 + draw.below(64), salt))),
            (1..=3, Some(i)) => engine.del(held.swap_remove(i)),
            (4..=5, Some(i)) => drop(engine.drop_now(held[i])),
            (6..=9, Some(i)) => drop(engine.get(held[i])),
            (10, Some(i)) => drop(engine.commit(held[i])),
            _ => {
                let inputs: Vec<TensorKey> = (0..1 + draw.below(3))
                    .map(|_| {
                        let reach = if draw.below(4) > 0 { 4 } else { held.len() };
                        held[held.len() - 1 - draw.below(reach.min(held.len()))]
                    })
                    .collect();
                let bytes = (0..1 + draw.below(3)).map(|_| 1 + draw.below(96)).collect();
                if let Ok(made) = engine.apply(Toy::Split { bytes, salt }, &inputs) {
                    held.extend(made);
                }
            }
        }
        drop(engine.take_failure());
        engine.check();
    }
}

#[test]
fn each_score_is_that_of_the_code_to_the_last_bit() {
    let mut total = BTreeMap::new();
    for seed in 0..60 {
        let mut draw = SplitMix64::new(seed);
        let own = ArticleConstants {
            exponents: Exponents { cost: 0.5, bytes: 1.5, staleness: 2.0 },
            rerun_factor: 1.5,
            cost_offset: 3.0,
            staleness_offset: 0.25,
            cost_scale: 1e6,
            memory_unit: 1000.0,
        };
        let both = match seed % 4 {
            0 => Both::new(MegEngineArticle::new(own), own),
            _ => Both::new(MegEngineArticle::default(), AS_WRITTEN),
        };
        let budget = GRANULE * (16 + draw.below(64)) as u64;
        let mut settings = settings();
        settings.dead = if draw.below(2) == 0 { Dead::Drop } else { Dead::Keep };
        let sampled = (draw.below(4) == 0).then_some(seed);
        settings.eviction_threshold = (draw.below(3) == 0).then_some(budget / 2);
        let costs = if seed % 2 == 0 { CostModelKind::Bytes } else { CostModelKind::Flops };
        let mut engine = both.engine(budget, settings, costs.build(), sampled);
        play(&mut engine, &mut draw, 120);
        let inner = both.0.lock().unwrap();
        assert!(inner.wrong.is_empty(), "seed {seed}: {}", inner.wrong.join("\n"));
        for (&what, times) in &inner.transcription.seen {
            *total.entry(what).or_insert(0) += times;
        }
    }
    println!("{total:#?}");
    for what in PECULIAR {
        assert!(total[what] >= 50, "{what}: {} times", total[what]);
    }
}

/// Policy that evicts as the article does, and counts where `megengine` would choose otherwise.
#[derive(Clone, Debug, Default)]
struct Compared(Arc<Mutex<ComparedInner>>);

#[derive(Debug, Default)]
struct ComparedInner {
    article: MegEngineArticle,
    usual: MegEngine,
    /// Scores that `megengine` gives to the candidates of the current choice.
    scores: Vec<(StorageKey, f64)>,
    choices: usize,
    other: usize,
}

impl Policy for Compared {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let mut inner = self.0.lock().unwrap();
        let score = inner.usual.score(candidate, view);
        inner.scores.push((candidate, score));
        inner.article.score(candidate, view)
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        let mut inner = self.0.lock().unwrap();
        inner.article.on(event, view);
        inner.usual.on(event, view);
        if let Event::DidEvict { storage, cause: Cause::Room | Cause::Threshold, .. } = *event {
            let scores = std::mem::take(&mut inner.scores);
            let least = scores.iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
            let chosen = scores.iter().find(|it| it.0 == storage);
            inner.choices += usize::from(scores.len() > 1);
            inner.other += usize::from(chosen.is_some_and(|it| it.1 > least));
        }
    }
}

/// The two policies differ in about the share of choices that the documentation of `megengine`
/// states.
#[test]
fn megengine_chooses_otherwise_as_often_as_its_page_says() {
    let (mut choices, mut other) = (0, 0);
    for seed in 0..60 {
        let mut draw = SplitMix64::new(seed);
        let compared = Compared::default();
        let budget = GRANULE * (16 + draw.below(64)) as u64;
        let evictor = Box::new(ByScore::new(compared.clone()));
        let costs = CostModelKind::Bytes.build();
        let mut engine = Engine::new(ToyDevice::new(budget), settings(), evictor, costs).unwrap();
        play(&mut engine, &mut draw, 160);
        let inner = compared.0.lock().unwrap();
        (choices, other) = (choices + inner.choices, other + inner.other);
    }
    println!("{other} of {choices} choices");
    // Another number of programs, or another machine's `pow`, may move the share a little.
    let share = 100.0 * other as f64 / choices as f64;
    let page = include_str!("../src/evict/megengine.rs");
    let said = page.split("about ").find_map(|rest| rest.split_once(" % of the choices"));
    let said: f64 = said.expect("the page says it").0.parse().unwrap();
    assert!(choices > 1_000 && (share - said).abs() < 6.0, "{other} of {choices}: {share}");
}

/// Cost model by bytes, in which an op without outputs costs 2.
#[derive(Debug)]
struct Waits(Box<dyn CostModel>);

impl CostModel for Waits {
    fn name(&self) -> &str {
        "waits"
    }

    fn cost(&mut self, run: Run<'_>) -> f64 {
        if run.outputs.is_empty() { 2.0 } else { self.0.cost(run) }
    }
}

/// Compares the score of one case with a score computed by hand. The cost of a neighbour is the
/// number of bytes that it reads and writes, without a divisor.
#[test]
fn costs_are_bytes_and_the_clock_is_not() {
    let both = Both::new(MegEngineArticle::default(), AS_WRITTEN);
    let costs = Box::new(Waits(CostModelKind::Bytes.build()));
    let mut engine = both.engine(16 * GRANULE, settings(), costs, None);
    let x = engine.put(Bytes::of(64, 1));
    engine.commit(x).unwrap();
    let y = engine.apply(mix(64, 2), &[x]).unwrap()[0];
    // The op reads y twice, so its cost counts twice.
    engine.apply(mix(32, 3), &[y, y]).unwrap();
    assert!(engine.drop_now(y).unwrap());
    let before = both.0.lock().unwrap().scores.len();
    engine.apply(Toy::Split { bytes: vec![], salt: 5 }, &[]).unwrap();
    engine.apply(mix(176, 4), &[x]).unwrap();
    let inner = both.0.lock().unwrap();
    assert!(inner.wrong.is_empty(), "{:?}", inner.wrong);
    // 256 bytes of memory, without the 64 of x: the candidate and its free neighbours.
    let bytes = 256.0 - 64.0;
    let expected = (2.0 * 128.0 + 1e-3) / (bytes / 1048576.0 * 2.001);
    let score = inner.scores[before].1;
    assert!((score / expected - 1.0).abs() < 1e-9, "{score}, not {expected}");
}
