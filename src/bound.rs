//! The least that must be recomputed under a budget, and what memory is worth at each instant.
//!
//! ```
//! use remat::Layout;
//! use remat::bound::Demand;
//! use remat::op::Outputs;
//! use remat::program::{Command, RecordedCosts, RecordedOp, RecordedProgram, RecordedValue};
//!
//! // x is there for good; y and z are made from it, and both are read at the end.
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
//! // y is away while z is read, or z while y is: 2.0 is unavoidable.
//! # let cost = demand.bound(200)?.cost;
//! # assert!(cost > 0.0 && cost <= 7.0, "{cost}");
//! // x and y at once: no way to run it.
//! assert_eq!(demand.bound(199).unwrap_err().bytes, 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Theorem
//!
//! Let a program be run so that
//!
//! 1. its commands run in the order of the program, and each op for the first time where it stands; but what is made
//!    of nothing (an upload, an op without inputs) may be made as late as it is first read;
//! 2. an op that runs, again or for the first time, has all it reads, all it makes and its workspace in memory at
//!    once; a value that a `get`, a `commit` or a replacement reads is in memory then; views cost nothing;
//! 3. a value that is not in memory comes back only by another run of the op, or the upload, that made it; such a run
//!    makes all outputs of the op;
//! 4. what cannot be made again stays in memory while there is a handle to it: what an update in place made, what an
//!    op made that may run only once, and what was committed. The value that an update consumes makes room for the
//!    new one if that was its last handle;
//! 5. no more than the budget is in memory at any instant.
//!
//! Then the runs beyond the first of each op cost at least [`Bound::cost`].
//!
//! The engine runs like that under every policy, threshold and fate of the dead: what it does besides (keeping what
//! nobody holds for others, copying a value before an update, committing by itself, holes of an arena) only takes more
//! memory. So no run of it recomputes less. Only [`Command::Drop`](crate::program::Command::Drop) may make it recompute
//! more than memory asks for.
//!
//! *Proof.* Call the time between two commands that need a value (and between the one that makes it and the first that
//! needs it) a *gap* of it. Choose some instants at which memory is short. In a gap in which the value is away at one
//! of these, its op ran again before the gap was over, and the gaps of a value do not overlap: so each gap pays its
//! share of a run of its own, where the shares of the outputs of an op add up to its cost. At each chosen instant, what
//! the command at hand needs, what cannot go, and all gaps around it whose value is there fit the budget. To choose
//! what is away in which gap at the least cost under these constraints is a relaxation of the problem. Move the
//! constraints into the costs with a price for each instant, any price from 0 up: what is then the least is, by weak
//! duality, at most the least of the relaxation. And it falls into parts, one for each gap, that are minimized one by
//! one. ∎
//!
//! # Two strengthenings
//!
//! To run an op again takes what it reads. Let `p` be *dead*: its last use is over, so the relaxation above does not
//! count its bytes and asks no cost for its runs. Let only one op that matters read it, and `s` be made by that. At an
//! instant of a gap of `s` at which `s` is away, either `p` is there, and takes its bytes, or it runs again before the
//! gap is over, and costs its share. As gaps of `s` do not overlap, each may be asked for one or the other; and what
//! `p` is made of, if that is dead too, in turn. So bringing back `s`, where holding memory over the gap costs `w` a
//! byte, costs `c(s) + g(p)`, with `g(p) = min(bytes(p) * w, c(p) + sum of g(q) over what p is made from)`, one of
//! several lines in `w`.
//!
//! If several ops read `p`, then so much is asked once for all gaps that overlap, with the largest `w` of those whose
//! values are away: in the time that they cover, `p` is there while one of them is away, or it runs at least once.

mod charge;
mod demand;
mod dual;
mod lp;
mod prices;
mod terms;

pub use demand::{Demand, Misfit};
pub use dual::{Absence, Effort, Relaxed};
pub use prices::Prices;

/// What no run under a budget recomputes less than.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Bytes.
    pub budget: u64,
    /// Cost of the program once, in the unit of its costs.
    pub work: f64,
    /// Cost of what must be recomputed at least, in the same unit.
    pub cost: f64,
    /// Prices that prove it.
    pub prices: Prices,
}

impl Bound {
    /// [`Bound::cost`] over [`Bound::work`]: the least that slowdown is above 1. 0 for a program that costs nothing.
    #[must_use]
    pub fn excess(&self) -> f64 {
        if self.cost > 0.0 { self.cost / self.work } else { 0.0 }
    }
}
