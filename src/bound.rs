//! Lower bound on the recomputation under a budget, and prices of memory at each instant.
//!
//! ```
//! use remat::Layout;
//! use remat::bound::Demand;
//! use remat::op::Outputs;
//! use remat::program::{Command, RecordedCosts, RecordedOp, RecordedProgram, RecordedValue};
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
//! // y does not fit while z is made and read, so y runs again: 7.0 is unavoidable.
//! # let cost = demand.bound(200)?.cost;
//! # assert!(cost > 0.0 && cost <= 7.0, "{cost}");
//! // An op needs x and its output at once: no run fits.
//! assert_eq!(demand.bound(199).unwrap_err().bytes, 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Theorem
//!
//! Let a program be run so that
//!
//! 1. Its commands run in the order of the program. The first run of each op is at the op's own
//!    position. Exception: a value made of nothing (an upload, an op without inputs) may be made as
//!    late as its first read.
//! 2. A run of an op, the first or a later run, has its inputs, its outputs and its workspace in
//!    memory at once. A value that a `get`, a `commit` or a replacement reads is in memory at that
//!    instant. Views cost nothing.
//! 3. A value that is not in memory is restored only by another run of the op, or of the upload,
//!    that made the value. A run makes all outputs of its op.
//! 4. A value that cannot be made again stays in memory while a handle to it exists: the output of
//!    an update in place, the output of an op that may run only once, a committed value. The value
//!    that an update consumes makes room for the new value if its last handle ends there.
//! 5. At most the budget is in memory at any instant.
//!
//! Then the runs beyond the first of each op cost at least [`Bound::cost`].
//!
//! The engine meets these conditions under every policy, every threshold and every setting for dead
//! tensors. What the engine does besides only takes more memory: keeping values without handles for
//! their users, copying a value before an update, committing by itself, holes in an arena. So no
//! run of the engine recomputes less than the bound. Only
//! [`Command::Drop`](crate::program::Command::Drop) may make the engine recompute more than memory
//! asks for.
//!
//! *Proof.* A *gap* of a value is the time between two successive commands that need the value. The
//! time between the making of the value and the first need is a gap, too. Choose some instants at
//! which memory is short. If a value is absent at a chosen instant of a gap, its op runs again
//! before the gap ends. The gaps of one value do not overlap, so each gap with an absence pays a
//! share of a run of its own. The shares of the outputs of an op add up to the cost of the op. At
//! each chosen instant the budget holds three things: the needs of the current command, the values
//! that cannot be evicted, and each value in a gap that is resident. Choosing absences at the least
//! cost under these constraints is a relaxation of the problem. Move the constraints into the costs
//! with a price for each instant; any price from 0 up is allowed. By weak duality, the minimum of
//! the priced problem is at most the minimum of the relaxation. The priced problem splits into one
//! part per gap, and each part is minimized by itself. ∎
//!
//! # Two strengthenings
//!
//! Running an op again takes its inputs. Let `p` be *dead*: its last use is over, so the relaxation
//! above neither counts its bytes nor charges for its runs. Let only one relevant op read `p`, and
//! let this op make `s`. Take an instant of a gap of `s` at which `s` is absent. Either `p` is
//! resident and takes its bytes, or `p` runs again before the gap ends and costs its share. The
//! gaps of `s` do not overlap, so each gap may be charged for one of the two. The inputs of `p`, if
//! dead too, are charged in turn. Let `w` be the price of holding a byte over the gap. Then
//! restoring `s` costs `c(s) + g(p)`, with
//! `g(p) = min(bytes(p) * w, c(p) + sum of g(q) over the inputs q of p)`: the minimum of several
//! lines in `w`.
//!
//! If several ops read `p`, the charge `g(p)` is asked once for all gaps that overlap, with the
//! largest `w` among the gaps whose values are absent. In the time that these gaps cover, either
//! `p` is resident while any of their values is absent, or `p` runs at least once.

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
    /// Least cost of recomputation, in the same unit.
    pub cost: f64,
    /// Prices that prove the bound.
    pub prices: Prices,
}

impl Bound {
    /// [`Bound::cost`] over [`Bound::work`]: a lower bound of the slowdown minus 1. The ratio is 0
    /// if the bound is 0.
    #[must_use]
    pub fn excess(&self) -> f64 {
        if self.cost > 0.0 { self.cost / self.work } else { 0.0 }
    }
}
