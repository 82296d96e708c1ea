//! Lower bound on the recomputation under a budget, and prices of memory at each instant.
//!
//! ```
//! use remat::Layout;
//! use remat::unstable::bound::Demand;
//! use remat::op::Outputs;
//! use remat::unstable::program::{Command, RecordedCosts, RecordedOp, RecordedProgram, RecordedValue};
//!
//! // x stays in memory; y and z are made from it, and both are read at the end.
//! let mut program = RecordedProgram::default();
//! let x = program.put(RecordedValue::constant(100))?;
//! let out = |bytes| Outputs::fresh([Layout::raw(bytes)]);
//! let y = program.apply(RecordedOp::new("exp", 7.0), &[x], out(100))?;
//! let z = program.apply(RecordedOp::new("sum", 2.0), &[x], out(100))?;
//! program.push(Command::Get(z))?;
//! program.push(Command::Get(y))?;
//!
//! let demand = Demand::new(program.commands(), 1, &mut RecordedCosts);
//! assert_eq!(demand.bound(300)?.cost, 0.0);
//! // y does not fit while z is made and read, so y is evicted and recomputed at a cost of 7.0.
//! # let cost = demand.bound(200)?.cost;
//! # assert!(cost > 0.0 && cost <= 7.0, "{cost}");
//! // An op needs x and its output at once, which is 200 bytes: no run fits 199 bytes.
//! assert_eq!(demand.bound(199).unwrap_err().bytes, 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Theorem
//!
//! Consider a run of a program that meets these conditions:
//!
//! 1. The commands run in the order of the program. The first run of each op is at the op's own
//!    position. Exception: an upload, or an op without inputs, may run as late as the first read of
//!    its value.
//! 2. A run of an op, the first or a later run, has its inputs, its outputs and its workspace in
//!    memory at once. A value that a `get`, a `commit` or a replacement reads is in memory at that
//!    instant. Views take no memory and run at no cost. Exception: an op that writes over a value
//!    ([`Outputs::Over`](crate::op::Outputs::Over)) may have its output in the bytes of the old
//!    value. The first run may do so if the last handle to the old value ends at the op.
//! 3. A value that is not in memory is restored only by another run of the op, or of the upload,
//!    that made the value. A run makes all outputs of its op.
//! 4. A value that cannot be made again stays in memory while a handle to the value exists. Values
//!    that cannot be made again are outputs of updates in place, outputs of ops that may run only
//!    once, and committed values. An update writes its new value into the bytes of the old value if
//!    the last handle to the old value ends at the update.
//! 5. The bytes in memory never exceed the budget.
//!
//! Under these conditions, the runs of ops after their first runs cost at least [`Bound::cost`] in
//! total.
//!
//! The engine meets these conditions under every policy, every threshold and every setting for dead
//! tensors. Some actions of the engine are outside the conditions. The engine may keep a value in
//! memory after its last handle is gone, because a compute path still reads the value. The engine
//! may also run an update on a copy of the old value, commit values by itself, and leave holes in
//! an arena. All these actions only take more memory, so no run of the engine recomputes less than
//! the bound. [`Command::Drop`](crate::program::Command::Drop) may make the engine recompute
//! although memory suffices.
//!
//! *Proof.* A *gap* of a value is the time between two successive commands that need the value. The
//! time from the command that makes the value to the first command that needs it is also a gap.
//! Choose some instants at which memory is short; an instant is the run of one command. If a value
//! is absent at a chosen instant of a gap, its op runs again before the gap ends. The gaps of one
//! value do not overlap, so each gap with an absence causes a separate run of the op. One run makes
//! all outputs of the op, so the cost of the run is divided among the outputs. Each gap is charged
//! with the share of its value. At each chosen instant, the budget must hold the needs of the
//! current command, the values that cannot be evicted, and the resident values that are in a gap.
//! Choosing absences at the least cost under these constraints is a relaxation of the problem.
//! Replace the constraints by a price of memory at each chosen instant. Any prices from 0 up are
//! allowed. By weak duality, the minimum of the problem with prices is at most the minimum of the
//! relaxation. The problem with prices has one independent part for each gap, and each part is
//! minimized separately. ∎
//!
//! # Two strengthenings
//!
//! To run again, an op needs its inputs in memory. Call an input `p` *dead* after its last use. The
//! relaxation above neither counts the bytes of a dead input nor charges for runs of its op. Let
//! `p` be dead. Among the ops that may have to run again, let only one read `p`. Let `s` be the
//! value that the reader of `p` makes. Take an instant of a gap of `s` at which `s` is absent.
//! Either `p` is resident and takes its bytes, or the op of `p` runs again before the gap ends, at
//! the cost of the share of `p`. The gaps of `s` do not overlap, so each gap may be charged for the
//! bytes of `p` or for the run of its op, whichever is less. The dead inputs of `p` are charged
//! like `p`. Let `w` be the price of holding a byte over the gap. Let `c(v)` be the share that the
//! value `v` has in the cost of its op. Under these charges, restoring `s` costs `c(s) + g(p)`,
//! with `g(p) = min(bytes(p) * w, c(p) + sum of g(q) over the inputs q of
//! p)`. The function `g(p)` is the minimum of several linear functions of `w`.
//!
//! Several ops that may have to run again may read `p`. In this case, the charge `g(p)` is counted
//! once for a group of overlapping gaps of the outputs of these ops. The price `w` in this charge
//! is for holding a byte while any output of these ops is absent. During the gaps of a group,
//! either `p` is resident while any of the outputs is absent, or the op of `p` runs at least once.

mod charge;
mod demand;
mod dual;
mod lp;
mod prices;
mod terms;

pub use demand::{Demand, Misfit};
pub use dual::{Absence, Effort, Relaxed};
pub use prices::Prices;

/// Lower bound on the recomputation of every run under a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Budget in bytes.
    pub budget: u64,
    /// Cost of running the whole program once, in the unit of its costs.
    pub work: f64,
    /// Lower bound on the cost of recomputation, in the unit of `work`.
    pub cost: f64,
    /// Prices that prove the bound.
    pub prices: Prices,
}

impl Bound {
    /// [`Bound::cost`] divided by [`Bound::work`]: a lower bound on the slowdown minus 1. The ratio
    /// is 0 if the bound is 0.
    #[must_use]
    pub fn excess(&self) -> f64 {
        if self.cost > 0.0 { self.cost / self.work } else { 0.0 }
    }
}
