//! Ops of a captured step.

use std::sync::Arc;

/// An op of a step, with the buffers that it reads, makes and updates.
#[derive(Clone, Debug, PartialEq)]
pub struct CapturedOp {
    /// Name of the op.
    pub name: Arc<str>,
    /// Attributes of the op as text. Attributes that change from step to step are left out, such as
    /// learning rates and counters of random numbers.
    pub attributes: Arc<str>,
    /// Buffers read by the op, each once.
    pub reads: Vec<usize>,
    /// Buffers made by the op.
    pub makes: Vec<usize>,
    /// Buffers read and overwritten in place by the op.
    pub updates: Vec<usize>,
    /// Bytes of workspace while the op runs.
    pub workspace: u64,
    /// Cost of a run, in any unit.
    pub cost: f64,
    /// Whether the op may run again, with the same results.
    pub rematerializable: bool,
    /// Whether the host waits for the op, for example to read a value. The program issues its later
    /// commands only after the op has run.
    pub waits: bool,
}

impl CapturedOp {
    /// Op without buffers, workspace or cost, which may run again.
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

    /// Sets the buffers to read.
    #[must_use]
    pub fn reads(self, reads: impl Into<Vec<usize>>) -> Self {
        Self { reads: reads.into(), ..self }
    }

    /// Sets the buffers to make.
    #[must_use]
    pub fn makes(self, makes: impl Into<Vec<usize>>) -> Self {
        Self { makes: makes.into(), ..self }
    }

    /// Sets the buffers to update in place.
    #[must_use]
    pub fn updates(self, updates: impl Into<Vec<usize>>) -> Self {
        Self { updates: updates.into(), ..self }
    }

    /// Sets the cost of a run.
    #[must_use]
    pub fn costs(self, cost: f64) -> Self {
        Self { cost, ..self }
    }

    /// Buffers that must be in memory for the op: its reads, then its updates.
    pub fn uses(&self) -> impl Iterator<Item = usize> {
        self.reads.iter().chain(&self.updates).copied()
    }
}
