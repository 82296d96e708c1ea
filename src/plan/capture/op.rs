//! What a step does.

use std::sync::Arc;

/// What an op of a step does, to be captured.
#[derive(Clone, Debug, PartialEq)]
pub struct CapturedOp {
    /// Its name.
    pub name: Arc<str>,
    /// All that is the same each time the step comes back, in the op's own words. Not what changes by design, such as
    /// counters of random numbers and learning rates.
    pub attributes: Arc<str>,
    /// Buffers that it reads, each once.
    pub reads: Vec<usize>,
    /// Buffers that it makes.
    pub makes: Vec<usize>,
    /// Buffers that it reads and writes over in place.
    pub updates: Vec<usize>,
    /// Bytes that it needs beside while it runs.
    pub workspace: u64,
    /// What a run costs, in any unit.
    pub cost: f64,
    /// Whether it may run again and gives the same then.
    pub rematerializable: bool,
    /// Whether the host waits for it, as for a value that it reads: what comes after it in the program is not known before
    /// it is done.
    pub waits: bool,
}

impl CapturedOp {
    /// An op without workspace and of no cost, which may run again.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            attributes: Arc::from(""),
            reads: Vec::new(),
            makes: Vec::new(),
            updates: Vec::new(),
            workspace: 0,
            cost: 0.0,
            rematerializable: true,
            waits: false,
        }
    }

    /// Reads these.
    #[must_use]
    pub fn reads(self, reads: impl Into<Vec<usize>>) -> Self {
        Self { reads: reads.into(), ..self }
    }

    /// Makes these.
    #[must_use]
    pub fn makes(self, makes: impl Into<Vec<usize>>) -> Self {
        Self { makes: makes.into(), ..self }
    }

    /// Updates these in place.
    #[must_use]
    pub fn updates(self, updates: impl Into<Vec<usize>>) -> Self {
        Self { updates: updates.into(), ..self }
    }

    /// Costs so much.
    #[must_use]
    pub fn costs(self, cost: f64) -> Self {
        Self { cost, ..self }
    }

    /// The buffers that must be there for it: what it reads, then what it updates.
    pub fn uses(&self) -> impl Iterator<Item = usize> {
        self.reads.iter().chain(&self.updates).copied()
    }
}
