//! The state machine: tensors in a hard budget of device memory, evicted and regenerated as needed.
//!
//! One thread, no channel, no clock of its own. Everything that drives it (the interpreter, the lab,
//! the tests) drives this same machine, over whatever device and op type it likes.
//!
//! What happens when a tensor is evicted: `evict.rs`. When it is needed again: `regenerate.rs`. When
//! its handle goes: `delete.rs`. When memory runs short: `allocate.rs`. When something fails: `failures.rs`.

mod allocate;
mod apply;
mod candidates;
mod commit;
mod delete;
mod evict;
mod failures;
mod get;
mod guard;
mod in_place;
mod late;
mod out_of_memory;
mod put;
mod regenerate;
mod replace;
mod run;
mod schedule;
mod settings;
mod stats;
mod step;
mod table;
mod thrash;
mod update_all;

pub(crate) use guard::{caught, inferred, words};
pub use out_of_memory::OutOfMemory;
pub use settings::{Dead, Placement, Settings};
pub use stats::Stats;
pub use table::{
    ComputePath, Edge, PathKey, Residence, Storage, StorageKey, Table, TensorInfo, TensorKey, Use,
};
pub use update_all::Issue;

use crate::cost::CostModel;
use crate::device::{Device, Place};
use crate::error::{DeviceFault, Error, HandleError, RuntimeError};
use crate::layout::Layout;
use crate::memory::{Arena, Space};
use crate::policy::{Aging, Lowered, Policy};
use crate::rng::SplitMix64;
use failures::Failures;
use rustc_hash::FxHashMap;
use slotmap::{Key as _, SecondaryMap};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// The tensors an op made, in order.
pub type Keys = SmallVec<[TensorKey; 2]>;

/// The engine. See the [module](self) documentation.
pub struct Engine<D: Device> {
    device: D,
    space: Space,
    table: Table,
    /// What to run, for each path in the table.
    bodies: SecondaryMap<PathKey, Body<D>>,
    /// Why, for each poisoned storage.
    reasons: SecondaryMap<StorageKey, Error>,
    policy: Box<dyn Policy>,
    /// What the policy says of itself, always the same.
    evicts: bool,
    aging: Aging,
    costs: Box<dyn CostModel>,
    settings: Settings,
    /// Why nothing works any more: what the policy keeps books of is not what happened.
    broken: Option<Error>,
    /// Whether it was said that the threshold cannot be met, and that marks of steps are missing.
    warned_of_threshold: bool,
    warned_of_marks: bool,
    /// Held storages that may be made from what nobody holds any more of an earlier step.
    crossing: Vec<StorageKey>,
    /// Edges gone along to find those, ever.
    walked: u64,
    /// Cost of everything run so far: the clock that staleness is measured on.
    now: f64,
    /// Number of step marks so far.
    step: u64,
    stats: Stats,
    sampling: SplitMix64,
    failures: Failures,
    /// Key that stands for a value that replaced another one in this step -> key of the other one.
    replaced: FxHashMap<TensorKey, TensorKey>,
    last_run: LastRun,
    /// Of the step at hand.
    work: thrash::StepWork,
    /// What the policy reports as lowered. Empty but for a moment.
    lowered: Lowered,
    /// Runs whose time the device will tell, oldest first.
    late: VecDeque<late::Late>,
    /// Of ops that ran again.
    recomputed: late::Recomputed,
    /// Values from the host that are to be leaves, and wait for room.
    leaves_to_be: Vec<StorageKey>,
    /// Of the operands of a run, kept to reuse its memory.
    places: Vec<Place>,
    /// Lists of paths that are gone, empty: kept to reuse their memory, one for each new path.
    spare: Vec<Vec<Layout>>,
    /// Empty between commands; kept to reuse its memory.
    cascade: regenerate::Cascade,
    /// Asked before each run of a regeneration whether to give it up.
    interrupt: Option<Box<dyn Fn() -> bool + Send>>,
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

/// What a path runs.
enum Work<D: Device> {
    Op(D::Op),
    /// A leaf from host memory: its compute path is the upload.
    Upload(Arc<D::Host>),
}

impl<D: Device> Work<D> {
    fn name(&self) -> &str {
        use crate::op::Operation as _;
        match self {
            Self::Op(op) => op.name(),
            Self::Upload(_) => "put",
        }
    }

    /// Whether recorders say that it may run again.
    fn rematerializable(&self) -> bool {
        use crate::op::Operation as _;
        matches!(self, Self::Op(op) if op.rematerializable())
    }
}

/// A path's op, and how it looks at the storages at its edges.
struct Body<D: Device> {
    work: Work<D>,
    /// Of the inputs, then of the outputs. In one piece on the heap: layouts are large.
    layouts: Vec<Layout>,
    inputs: usize,
}

impl<D: Device> Body<D> {
    fn new(work: Work<D>, inputs: Vec<Layout>, outputs: impl Iterator<Item = Layout>) -> Self {
        let count = inputs.len();
        let mut layouts = inputs;
        outputs.for_each(|layout| layouts.push(layout));
        Self { work, layouts, inputs: count }
    }

    fn inputs(&self) -> &[Layout] {
        &self.layouts[..self.inputs]
    }

    fn outputs(&self) -> &[Layout] {
        &self.layouts[self.inputs..]
    }
}

type Layouts = SmallVec<[Layout; 2]>;

/// Lists of layouts that are kept to be used again, at most: those of the paths of a step of a large network.
const MOST_SPARE: usize = 4096;

impl<D: Device> Engine<D> {
    /// An engine over `device`, which is told to reserve the budget.
    ///
    /// # Errors
    /// If the settings make no sense, or the device cannot reserve that much.
    pub fn new(
        mut device: D,
        settings: Settings,
        policy: Box<dyn Policy>,
        costs: Box<dyn CostModel>,
    ) -> Result<Self, Error> {
        settings.check()?;
        if settings.placement == Placement::Counted && device.has_memory() {
            return Err(RuntimeError::Settings(format!(
                "bytes without places are for devices without memory, and {} has some; choose Placement::Arena",
                device.name()
            ))
            .into());
        }
        device.reserve(settings.budget).map_err(|e| DeviceFault::of("reserving the budget", &e))?;
        Ok(Self {
            device,
            space: settings.space(),
            table: Table::new(settings.min_evict_bytes),
            bodies: SecondaryMap::new(),
            reasons: SecondaryMap::new(),
            evicts: policy.evicts(),
            aging: policy.aging(),
            policy,
            costs,
            broken: None,
            warned_of_threshold: false,
            warned_of_marks: false,
            crossing: Vec::new(),
            walked: 0,
            now: 0.0,
            step: 0,
            stats: Stats::new(settings.budget),
            sampling: SplitMix64::new(settings.seed),
            failures: Failures::default(),
            replaced: FxHashMap::default(),
            last_run: LastRun::default(),
            work: thrash::StepWork::default(),
            lowered: Lowered::default(),
            late: VecDeque::new(),
            recomputed: late::Recomputed::default(),
            leaves_to_be: Vec::new(),
            places: Vec::new(),
            spare: Vec::new(),
            cascade: regenerate::Cascade::default(),
            interrupt: None,
            settings,
        })
    }

    /// Makes room in the tables for so many more tensors, each made by an op of its own.
    pub fn reserve(&mut self, tensors: usize) {
        self.table.reserve(tensors);
        self.bodies.set_capacity(self.bodies.capacity() + tensors);
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
        self.table.tensor(key).is_some_and(|t| self.table.is_resident(t.storage))
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
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Where everything is, to look at; `None` where bytes are only counted.
    #[must_use]
    pub const fn arena(&self) -> Option<&Arena> {
        self.space.arena()
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &D {
        &self.device
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
        Ok(self.table.add_tensor(storage, layout))
    }

    /// Panics if the engine contradicts itself: the invariants of edges, residence and bytes. For
    /// tests; walks everything.
    pub fn check(&self) {
        self.space.check();
        self.table.check();
        let resident: u64 = self
            .table
            .storages()
            .filter_map(|(key, _)| self.table.held(key))
            .map(|held| held.bytes)
            .sum();
        assert_eq!(
            resident,
            self.space.used(),
            "resident bytes and used bytes agree between commands"
        );
        assert!(
            self.table.storages().all(|(_, s)| s.pins == 0 && s.awaited == 0),
            "nothing is pinned between commands"
        );
        assert!(self.space.peak() <= self.settings.budget);
        assert_eq!(self.bodies.len(), self.table.paths.len(), "each path has a body");
    }

    /// Why nothing works any more, if that is so: a policy panicked when it was told what had happened, so that
    /// what it knows is not what is. Every command fails with this then.
    #[must_use]
    pub const fn broken(&self) -> Option<&Error> {
        self.broken.as_ref()
    }

    /// Fails if nothing works any more.
    fn working(&self) -> Result<(), Error> {
        match &self.broken {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// An empty list.
    fn layouts(&mut self) -> Vec<Layout> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a list back.
    fn reuse(&mut self, mut layouts: Vec<Layout>) {
        if self.spare.len() < MOST_SPARE {
            layouts.clear();
            self.spare.push(layouts);
        }
    }

    fn tensor(&self, key: TensorKey) -> Result<TensorInfo, Error> {
        self.table.tensor(key).copied().ok_or_else(|| HandleError::Unknown.into())
    }

    /// What a storage is called in reports.
    fn name_of(&self, key: StorageKey) -> &str {
        self.table.storage(key).label.as_deref().unwrap_or_else(|| self.op_of(key))
    }

    /// The op that makes a storage.
    fn op_of(&self, key: StorageKey) -> &str {
        match self.table.storage(key).producer {
            // A path's body is away while it runs.
            Some(path) => self.bodies.get(path).map_or("the op at hand", |body| body.work.name()),
            None => "leaf",
        }
    }

    /// What a storage is called in events: its label, or its number.
    fn tensor_name(&self, key: StorageKey) -> Cow<'_, str> {
        match &self.table.storage(key).label {
            Some(label) => Cow::Borrowed(label),
            None => Cow::Owned(format!("{:?}", key.data())),
        }
    }
}

impl<D: Device> std::fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("device", &self.device.name())
            .field("policy", &self.policy)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
