//! Random programs, and a naive model that keeps every value in host memory.
//!
//! A [`Recipe`] is plain data, drawn by a property test. [`play`](play::play) turns each entry into
//! a command for the tensors held at that moment. A driver and the model both get the command, and
//! their results are compared.

pub mod draw;
pub mod play;
mod resolve;

use super::toy::{Broken, ToyDevice, ToyEngine, Watch};
use remat::Dead;
use remat::unstable::engine::{Engine, Settings};
use remat::{CostModelKind, PolicyKind};
use std::sync::Arc;

/// Entry of a recipe, which becomes a command. A `usize` that stands for a tensor counts back from
/// the newest tensor, modulo the number of tensors.
#[derive(Clone, Debug)]
pub enum Drawn {
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
    /// Updates the first `targets` inputs in place.
    Update {
        inputs: Vec<usize>,
        targets: usize,
        fresh: Option<usize>,
    },
    /// Writes over the first input. The new value can be evicted.
    Over {
        inputs: Vec<usize>,
        run: u32,
        how: Broken,
    },
    /// Updates the first input of each list in place, all as one command.
    UpdateAll {
        inputs: Vec<Vec<usize>>,
    },
    /// Replaces the target by another value of the same size.
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
    /// Makes one more handle of a tensor: no command, but a call of the engine.
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

/// Entries of a program. The flag of an op says whether it is a command, whose errors wait, or a
/// call of the engine, whose errors return at once.
pub type Recipe = Vec<(Drawn, bool)>;

/// Settings that must not change the bits.
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
    /// Whether each command is admitted before it runs.
    pub admit: bool,
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
            admit: false,
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
