//! The state machine: tensors in a hard budget of device memory, evicted and regenerated as needed.
//!
//! One thread, no channel, no clock of its own. Everything that drives it (the interpreter, the lab,
//! the tests) drives this same machine, over whatever device and op type it likes.
//!
//! What happens when a tensor is evicted: `evict.rs`. When it is needed again: `regenerate.rs`. When
//! its handle goes: `delete.rs`. When memory runs short: `allocate.rs`. When something fails: `failures.rs`.

mod allocate;
mod apply;
mod commit;
mod control;
mod delete;
mod evict;
mod expect;
mod failures;
mod get;
mod in_place;
mod late_times;
mod planned;
mod put;
mod regenerate;
mod replace;
mod run;
mod running_values;
mod schedule;
mod settings;
mod stats;
mod step;
mod tell;
mod thrash;
mod update_all;
mod verify;

pub(crate) use planned::{PlannedRun, Totals};
pub use settings::{Dead, RecomputeLimit, Settings};
pub use stats::Stats;
pub use tell::Listener;
pub use update_all::{Issue, Issued};

use crate::cost::CostModel;
use crate::device::Device;
use crate::error::{Error, HandleError};
use crate::event::Hears;
use crate::evict::Evictor;
use crate::graph::{Future, Graph, PathKey, Residence, StorageKey, TensorInfo, TensorKey};
use crate::layout::Layout;
use crate::memory::Arena;
use crate::store::Store;
use failures::Failures;
use rustc_hash::FxHashMap;
use slotmap::SecondaryMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The tensors an op made, in order.
pub type Keys = SmallVec<[TensorKey; 2]>;

type Layouts = SmallVec<[Layout; 2]>;

/// The engine. See the [module](self) documentation.
pub struct Engine<D: Device> {
    store: Store<D>,
    /// Why, for each poisoned storage.
    reasons: SecondaryMap<StorageKey, Error>,
    evictor: Box<dyn Evictor>,
    /// What the evictor says of itself, always the same.
    evicts: bool,
    hears: Hears,
    by_step: bool,
    /// What it said when it was last told what is to come.
    keeps_unheld: bool,
    costs: Box<dyn CostModel>,
    settings: Settings,
    /// Whether history is kept.
    enabled: bool,
    /// Bytes of device memory that may be held, at any instant, workspaces included.
    budget: u64,
    /// Who hears every event, beside those whom the engine knows.
    listeners: Vec<Box<dyn Listener>>,
    /// Why nothing works any more: what the evictor keeps books of is not what happened.
    broken: Option<Error>,
    /// Whether it was said that the threshold cannot be met, and that marks of steps are missing.
    warned_of_threshold: bool,
    warned_of_marks: bool,
    /// Held storages that may be made from what nobody holds any more of an earlier step.
    crossing: Vec<StorageKey>,
    /// Edges gone along to find those, ever.
    walked: u64,
    /// Number of step marks so far.
    step: u64,
    stats: Stats,
    failures: Failures,
    /// Failures of before a script, while the script is gone through.
    failures_before: Failures,
    /// Key that stands for a value that replaced another one in this step -> key of the other one.
    replaced: FxHashMap<TensorKey, TensorKey>,
    last_run: LastRun,
    /// Of the step at hand.
    work: thrash::StepWork,
    repeats: thrash::Repeats,
    /// Runs whose time the device will tell, oldest first.
    late: VecDeque<late_times::Late>,
    /// Of ops that ran again.
    recomputed: late_times::Recomputed,
    /// What lingers ([`Dead::Linger`]), the oldest first; some of it may be gone or wanted again.
    lingering: VecDeque<StorageKey>,
    /// How many there were when those that are gone were last left out.
    lingered: usize,
    lengths: step::Lengths,
    running: running_values::Running,
    /// Values from the host that are to be leaves, and wait for room.
    leaves_to_be: Vec<StorageKey>,
    /// Empty between commands; kept to reuse its memory.
    cascade: regenerate::Cascade,
    /// Commands since everything was checked.
    #[cfg(debug_assertions)]
    unchecked: usize,
    /// Asked before each run of a regeneration whether to give it up.
    interrupt: Option<Box<dyn Fn() -> bool + Send>>,
    /// If what is recomputed is verified.
    verify: Option<Box<verify::Verify>>,
}

/// The last op that was run for the first time, for recorders.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastRun {
    /// Its cost.
    pub cost: f64,
    /// Floating-point operations, estimated; 0 for views and uploads.
    pub flops: f64,
    /// Scratch bytes it used.
    pub workspace: u64,
    /// Whether it may run again.
    pub rematerializable: bool,
}

impl<D: Device> Engine<D> {
    /// An engine over `device`, all of whose memory is its budget.
    ///
    /// # Errors
    /// If the settings make no sense, or what the device says of its memory.
    pub fn new(
        device: D,
        settings: Settings,
        mut evictor: Box<dyn Evictor>,
        costs: Box<dyn CostModel>,
    ) -> Result<Self, Error> {
        let memory = device.memory();
        let budget = memory.bytes();
        settings.check(budget)?;
        let space = settings.space(memory)?;
        let verify = verify::Verify::new(&settings, &device)?;
        Ok(Self {
            store: Store::new(device, memory, space, settings.min_evict_bytes(budget)),
            reasons: SecondaryMap::new(),
            evicts: evictor.evicts(),
            hears: tell::heard_by(&*evictor),
            by_step: evictor.by_step().is_some(),
            keeps_unheld: evictor.by_step().is_some_and(|step| step.keeps_unheld()),
            evictor,
            costs,
            enabled: true,
            listeners: Vec::new(),
            broken: None,
            warned_of_threshold: false,
            warned_of_marks: false,
            crossing: Vec::new(),
            walked: 0,
            step: 0,
            stats: Stats::new(budget),
            failures: Failures::default(),
            failures_before: Failures::default(),
            replaced: FxHashMap::default(),
            last_run: LastRun::default(),
            work: thrash::StepWork::default(),
            repeats: thrash::Repeats::default(),
            late: VecDeque::new(),
            recomputed: late_times::Recomputed::default(),
            lingering: VecDeque::new(),
            lingered: 0,
            lengths: step::Lengths::default(),
            running: running_values::Running::default(),
            leaves_to_be: Vec::new(),
            cascade: regenerate::Cascade::default(),
            #[cfg(debug_assertions)]
            unchecked: 0,
            interrupt: None,
            verify,
            settings,
            budget,
        })
    }

    /// Makes room in the tables for so many more tensors, each made by an op of its own.
    pub fn reserve(&mut self, tensors: usize) {
        self.store.reserve(tensors);
    }

    /// The layout of a tensor.
    ///
    /// # Errors
    /// [`HandleError::Unknown`] if the key is stale.
    pub fn layout(&self, key: TensorKey) -> Result<Layout, Error> {
        self.tensor(key).map(|t| t.layout)
    }

    /// Whether a tensor's bytes are on the device now. False for a stale key.
    #[must_use]
    pub fn is_resident(&self, key: TensorKey) -> bool {
        self.store.graph.tensor(key).is_some_and(|t| self.store.graph.is_resident(t.storage))
    }

    /// Asks `wanted` before each run of a regeneration whether to give it up. If so,
    /// the command fails with [`RegenerationError::Cancelled`](crate::error::RegenerationError::Cancelled), and all else is as it was.
    pub fn interrupt_when(&mut self, wanted: impl Fn() -> bool + Send + 'static) {
        self.interrupt = Some(Box::new(wanted));
    }

    /// The cost model's name.
    #[must_use]
    pub fn cost_model(&self) -> &str {
        self.costs.name()
    }

    /// Storages, paths and edges, to look at.
    #[must_use]
    pub const fn graph(&self) -> &Graph {
        &self.store.graph
    }

    /// What waiting commands will do, for who admits them.
    pub(crate) const fn future_mut(&mut self) -> &mut Future {
        &mut self.store.graph.future
    }

    /// Where everything is, to look at; `None` where bytes are only counted.
    #[must_use]
    pub const fn arena(&self) -> Option<&Arena> {
        self.store.space.arena()
    }

    /// Limits and options.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Bytes in use now; those that are lent to a plan are.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.store.space.used()
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &D {
        &self.store.device
    }

    /// What the last new op cost. All zero after a view.
    #[must_use]
    pub const fn last_run(&self) -> LastRun {
        self.last_run
    }

    /// Another tensor that looks at the same elements.
    ///
    /// # Errors
    /// If the key is stale.
    pub fn alias(&mut self, key: TensorKey) -> Result<TensorKey, Error> {
        let TensorInfo { storage, layout } = self.tensor(key)?;
        let alias = self.store.graph.add_tensor(storage, layout);
        if let Some(error) = self.failures.of_stale(key).cloned() {
            self.failures.make_stale(alias, &error);
        }
        Ok(alias)
    }

    /// Panics if the engine contradicts itself: the invariants of edges, residence and bytes. Walks everything.
    pub fn check(&self) {
        self.store.check();
        let space = &self.store.space;
        assert!(space.used() <= self.budget && space.peak() <= space.maximum());
    }

    /// Why nothing works any more, if that is so: the evictor panicked when it was told what had happened, so that
    /// what it knows is not what is. Every command fails with this then.
    #[must_use]
    pub const fn broken(&self) -> Option<&Error> {
        self.broken.as_ref()
    }

    /// Fails if nothing works any more. Called before each command.
    fn working(&mut self) -> Result<(), Error> {
        #[cfg(debug_assertions)]
        self.check_sometimes();
        match &self.broken {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Walks everything, so seldom that a command takes no longer on average.
    #[cfg(debug_assertions)]
    fn check_sometimes(&mut self) {
        self.unchecked += 1;
        let (tensors, storages, paths) = self.store.graph.counts();
        if self.unchecked > 16 + tensors + storages + paths {
            self.unchecked = 0;
            self.check();
        }
    }

    fn tensor(&self, key: TensorKey) -> Result<TensorInfo, Error> {
        self.store.graph.tensor(key).copied().ok_or_else(|| HandleError::Unknown.into())
    }

    /// A storage for a value that looks like this, which no tensor looks at yet.
    fn add_storage(&mut self, layout: &Layout) -> StorageKey {
        self.store.graph.add_storage(layout.bytes(), self.store.now, self.step)
    }
}

impl<D: Device> std::fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("device", &self.store.device.name())
            .field("evictor", &self.evictor)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
