//! Conversion of a step's commands to a [`StepFuture`].

use super::reader::{Deed, Reader, Values};
use super::{StepFuture, StepFutureBuilder};
use crate::command::{Command, RecordedProgram, TensorId};
use crate::layout::Layout;

/// Makes a [`StepFuture`] from the commands of a step, given in order.
///
/// ```
/// use remat::op::Outputs;
/// use remat::unstable::program::{Apply, Command, TensorId};
/// use remat::unstable::step::StepTeller;
/// use remat::Layout;
///
/// let (x, y) = (TensorId(7), TensorId(8));
/// let mut step = StepTeller::default();
/// step.carry(x, 64);
/// let call = Apply::new((), [x].as_slice(), Outputs::fresh([Layout::raw(32)]), y);
/// step.tell(&Command::<(), ()>::Apply(call), |()| 0, 1.0);
/// step.tell(&Command::<(), ()>::Get(y), |()| 0, 0.0);
/// let step = step.finish();
/// assert_eq!((step.len(), step.values(), step.carried()), (2, 2, 1));
/// assert_eq!(step.uses(1), [1]);
/// ```
#[derive(Debug, Default)]
pub struct StepTeller {
    reader: Reader,
    builder: StepFutureBuilder,
    /// Inputs of the command of each value, and how far the value's history reaches back.
    told: Vec<Told>,
    /// Number of step marks so far.
    ends: u32,
    /// First value made since the last mark.
    since: usize,
}

/// Inputs of a value's command, and how far the value's history reaches back.
#[derive(Debug, Default)]
struct Told {
    /// Inputs of the value's command; empty for a leaf.
    sources: Values,
    /// Number of the step that made the value. `oldest` is the number of the oldest step that the
    /// value's history reached through unheld values, at the end of step `born`.
    born: u32,
    oldest: u32,
}

impl StepTeller {
    /// Adds a tensor of `bytes` bytes that is live before the step. [`StepTeller::carry_view`] adds
    /// views of the tensor.
    ///
    /// A tensor that the step reads but that was never added counts as 0 bytes.
    ///
    /// # Panics
    /// If a command was added before.
    pub fn carry(&mut self, tensor: TensorId, bytes: u64) {
        assert!(self.builder.is_new(), "what was there before comes before all commands");
        self.reader.add(tensor, Layout::raw(bytes as usize));
        self.builder.carry(bytes);
        self.told.push(Told::default());
    }

    /// Adds a view of a [carried](Self::carry) tensor.
    ///
    /// # Panics
    /// If `of` was not added by [`carry`](Self::carry).
    pub fn carry_view(&mut self, tensor: TensorId, of: TensorId) {
        let layout = self.reader.layout(of);
        assert!(self.reader.look(tensor, of, layout).is_some(), "it was not carried");
    }

    /// Adds the next command. `put_bytes` gives the size of a host value, and `cost` is the cost of
    /// the command if its inputs are resident. Unknown tensors are left out.
    pub fn tell<O, H>(
        &mut self,
        command: &Command<O, H>,
        put_bytes: impl FnOnce(&H) -> u64,
        cost: f64,
    ) {
        let put = |host: &H| Layout::raw(put_bytes(host) as usize);
        let Deed { reads, makes, outputs, gone } = self.reader.read(command, put);
        reads.iter().for_each(|&value| self.builder.read(value));
        // The new value of an update is a leaf, so it has no sources.
        let updates = command.calls().iter().any(|call| call.outputs.are_updates());
        let sources = if updates { Values::new() } else { reads };
        for made in makes {
            self.builder.value(self.reader.bytes(made.value));
            let (born, sources) = (self.ends, sources.clone());
            self.told.push(Told { sources, born, oldest: born });
        }
        outputs.into_iter().for_each(|value| self.builder.output(value));
        if matches!(command, Command::Step) {
            self.step();
        }
        gone.into_iter().for_each(|value| self.builder.gone(value));
        if command.is_position() {
            self.builder.next(cost);
        }
    }

    /// Ends the step, after its last command.
    #[must_use]
    pub fn finish(self) -> StepFuture {
        self.builder.finish()
    }

    /// Marks the end of a step. A held value becomes a leaf at the mark if its history reaches back
    /// to earlier steps through unheld values. The mark reads the values that become leaves, as
    /// [`Engine::step`](crate::engine::Engine::step) says. The mark also reads the held values from
    /// which the new leaves would be restored if evicted.
    fn step(&mut self) {
        let mut restored = Vec::new();
        for value in self.since..self.told.len() {
            let Told { born, ref sources, .. } = self.told[value];
            let unheld = sources.iter().filter(|&&source| !self.reader.is_held(source));
            let unheld = unheld.map(|&source| self.told[source as usize].oldest);
            let oldest = unheld.min().unwrap_or(born).min(born);
            if self.reader.is_held(value as u32) && oldest < born {
                restored.push(value as u32);
            }
            self.told[value].oldest = oldest;
        }
        restored.iter().for_each(|&value| self.builder.read(value));
        self.builder.read_sources(restored, |value| &self.told[value as usize].sources);
        self.ends += 1;
        self.since = self.told.len();
    }
}

impl RecordedProgram {
    /// The future of a whole program, for a replay. Costs are the recorded costs.
    #[must_use]
    pub fn future(&self) -> StepFuture {
        let mut teller = StepTeller::default();
        for command in self.commands() {
            teller.tell(command, |host| host.layout.bytes(), command.cost());
        }
        teller.finish()
    }
}
