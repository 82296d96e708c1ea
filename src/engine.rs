//! The engine: a state machine over tensors within a hard budget of device memory. The engine
//! evicts tensors and regenerates them as needed.
//!
//! The engine has one thread, no channel and no clock of its own. The interpreter, the lab and the
//! tests all drive the engine, with any device and op type.
//!
//! The main files are `evict.rs` (eviction), `regenerate.rs` (regeneration), `delete.rs` (dropped
//! handles), `allocate.rs` (allocations that do not fit) and `failures.rs` (failures).

mod allocate;
mod apply;
mod commit;
mod control;
mod delete;
mod evict;
mod expect;
mod failures;
mod get;
mod give_way;
mod in_place;
mod late_times;
mod over;
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
use crate::store::Store;
use failures::Failures;
use remat_memory::Arena;
use rustc_hash::FxHashMap;
use slotmap::SecondaryMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Keys of the tensors that an op made, in order.
pub type Keys = SmallVec<[TensorKey; 2]>;

type Layouts = SmallVec<[Layout; 2]>;

/// The engine: a store, the evictor, cost model and settings. See the [module](self) documentation.
pub struct Engine<D: Device> {
    store: Store<D>,
    /// Failure to which each storage without a value lost its value.
    reasons: SecondaryMap<StorageKey, Error>,
    evictor: Box<dyn Evictor>,
    /// Result of [`Evictor::evicts`], read once because it is constant for an evictor.
    evicts: bool,
    hears: Hears,
    /// Result of [`ByStep::keeps_unheld`](crate::evict::ByStep::keeps_unheld), read when the
    /// evictor is set and at each [`Engine::foresee`].
    keeps_unheld: bool,
    costs: Box<dyn CostModel>,
    settings: Settings,
    /// Whether compute paths are kept, so that tensors can be evicted and regenerated.
    enabled: bool,
    /// Hard limit of device memory in use, in bytes, workspaces included.
    budget: u64,
    /// Listeners of every event, in addition to statistics, `tracing` and the evictor.
    listeners: Vec<Box<dyn Listener>>,
    /// Error that every command returns once the engine is broken: see [`Engine::broken`].
    broken: Option<Error>,
    /// Whether the user was warned that the eviction threshold cannot be met.
    warned_of_threshold: bool,
    /// Whether the user was warned that marks of steps are missing.
    warned_of_marks: bool,
    /// Held storages whose history may go through unheld storages of an earlier step. Each storage
    /// in the list is checked when the step ends.
    crossing: Vec<StorageKey>,
    /// Whether some storage kept its history at the end of the last step.
    keeps_history: bool,
    /// Number of edges visited so far in searches for storages to add to `crossing`.
    walked: u64,
    /// Number of step marks so far.
    step: u64,
    stats: Stats,
    failures: Failures,
    /// Failures from before the script that is running (`Engine::begin_script`), put back when the
    /// script ends.
    failures_before: Failures,
    /// Values replaced in the current step. Maps the key of the new value to the key of the old
    /// value.
    replaced: FxHashMap<TensorKey, TensorKey>,
    last_run: LastRun,
    /// Costs of the current step's first and repeated runs.
    work: thrash::StepWork,
    repeats: thrash::Repeats,
    /// Runs whose times the device will report later, oldest first.
    late: VecDeque<late_times::Late>,
    /// Measured times of repeated runs.
    recomputed: late_times::Recomputed,
    /// Dead storages that stay resident for now ([`Dead::Linger`]), oldest first. Some listed
    /// storages may have been deleted since, or have a handle again.
    lingering: VecDeque<StorageKey>,
    /// Length of `lingering` when deleted storages were last removed from the list.
    lingered: usize,
    lengths: step::Lengths,
    running: running_values::Running,
    /// Storages whose upload is postponed for lack of memory, and which become leaves with the
    /// upload.
    leaves_to_be: Vec<StorageKey>,
    /// State of a regeneration. Empty between commands, and kept only so that its allocations are
    /// reused.
    cascade: regenerate::Cascade,
    /// Number of commands since [`Engine::check`] last ran.
    #[cfg(debug_assertions)]
    unchecked: usize,
    /// Callback that says whether to cancel, called before each run of a regeneration.
    interrupt: Option<Box<dyn Fn() -> bool + Send>>,
    /// State of the check of recomputed values, if it is on.
    verify: Option<Box<verify::Verify>>,
}

/// Cost and sizes of the most recent run of a new op, for recorders.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastRun {
    /// Cost of the run, in units of the cost model.
    pub cost: f64,
    /// Estimated floating-point operations; 0 for views and uploads.
    pub flops: f64,
    /// Workspace in bytes.
    pub workspace: u64,
    /// Whether the op may run again.
    pub rematerializable: bool,
}

impl<D: Device> Engine<D> {
    /// Makes an engine over `device`. The budget is all of the device's memory.
    ///
    /// # Errors
    /// If the settings do not suit the device, or the device reports memory that the engine cannot
    /// use.
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
            keeps_unheld: evictor.by_step().is_some_and(|step| step.keeps_unheld()),
            evictor,
            costs,
            enabled: true,
            listeners: Vec::new(),
            broken: None,
            warned_of_threshold: false,
            warned_of_marks: false,
            crossing: Vec::new(),
            keeps_history: false,
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

    /// Reserves table space for `tensors` more tensors, each made by a separate op.
    pub fn reserve(&mut self, tensors: usize) {
        self.store.reserve(tensors);
    }

    /// The layout of a tensor.
    ///
    /// # Errors
    /// [`HandleError::Unknown`] if the key names no tensor.
    pub fn layout(&self, key: TensorKey) -> Result<Layout, Error> {
        self.tensor(key).map(|t| t.layout)
    }

    /// Whether a tensor's bytes are on the device now; false if the key names no tensor.
    #[must_use]
    pub fn is_resident(&self, key: TensorKey) -> bool {
        self.store.graph.tensor(key).is_some_and(|t| self.store.graph.is_resident(t.storage))
    }

    /// Calls `wanted` before each run of a regeneration. If `wanted` returns true, the command
    /// fails with [`RegenerationError::Cancelled`](crate::error::RegenerationError::Cancelled), and
    /// all values stay as they were.
    pub fn interrupt_when(&mut self, wanted: impl Fn() -> bool + Send + 'static) {
        self.interrupt = Some(Box::new(wanted));
    }

    /// Name of the cost model.
    #[must_use]
    pub fn cost_model(&self) -> &str {
        self.costs.name()
    }

    /// Graph of storages, paths and edges, read-only.
    #[must_use]
    pub const fn graph(&self) -> &Graph {
        &self.store.graph
    }

    /// Uses of storages by commands that are admitted but have not run yet. The driver adds the
    /// uses of a command when it admits the command.
    pub(crate) const fn future_mut(&mut self) -> &mut Future {
        &mut self.store.graph.future
    }

    /// Arena with the address of each block, read-only; `None` on a device that owns its memory,
    /// where the engine only counts bytes.
    #[must_use]
    pub const fn arena(&self) -> Option<&Arena> {
        self.store.space.arena()
    }

    /// Limits and options of the engine.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Bytes in use now, including the block lent to a plan.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.store.space.used()
    }

    /// Device that the engine runs on.
    #[must_use]
    pub const fn device(&self) -> &D {
        &self.store.device
    }

    /// Cost, flops and workspace of the last new op; all zero if the last new op was a view.
    #[must_use]
    pub const fn last_run(&self) -> LastRun {
        self.last_run
    }

    /// Makes a second tensor with the storage and layout of `key`.
    ///
    /// # Errors
    /// Fails if the key names no tensor.
    pub fn alias(&mut self, key: TensorKey) -> Result<TensorKey, Error> {
        let TensorInfo { storage, layout } = self.tensor(key)?;
        let alias = self.store.graph.add_tensor(storage, layout);
        if let Some(error) = self.failures.of_stale(key).cloned() {
            self.failures.make_stale(alias, &error);
        }
        Ok(alias)
    }

    /// Checks the invariants of edges, residence and bytes. Walks all tables.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn check(&self) {
        self.store.check();
        let space = &self.store.space;
        assert!(space.used() <= self.budget && space.peak() <= space.maximum());
    }

    /// Error that makes every command fail from now on; `None` while the engine works.
    ///
    /// The engine breaks if the evictor panics in an event handler, because the evictor's state is
    /// then unknown. The engine also breaks if its tables do not agree with the memory after a step
    /// ran by plan.
    #[must_use]
    pub const fn broken(&self) -> Option<&Error> {
        self.broken.as_ref()
    }

    /// Fails if the engine is broken: see `Engine::broken`. Called before each command.
    fn working(&mut self) -> Result<(), Error> {
        #[cfg(debug_assertions)]
        self.check_sometimes();
        match &self.broken {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Runs [`Engine::check`] rarely: averaged over all commands, the check takes constant time per
    /// command.
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

    /// Adds a storage for a value of layout `layout`. The storage has no tensor yet.
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
