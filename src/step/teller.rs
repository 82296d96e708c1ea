//! A step that is known as a whole, told from its commands.

use super::reader::{Deed, Reader, Values};
use super::{StepFuture, StepFutureBuilder};
use crate::command::{Command, RecordedProgram, TensorId};
use crate::layout::Layout;

/// Makes a [`StepFuture`] of commands, as they are told one after the other.
///
/// ```
/// use remat::op::Outputs;
/// use remat::program::{Apply, Command, TensorId};
/// use remat::step::StepTeller;
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
    /// Value -> its history.
    told: Vec<Told>,
    /// Ends of steps told so far.
    ends: u32,
    /// The first value made since the last of them.
    since: usize,
}

/// The history of a value.
#[derive(Debug, Default)]
struct Told {
    /// The values that it is made from; none if it is a leaf.
    sources: Values,
    /// The step before whose end it was made, and the oldest one that its history went back to, when that ended, through
    /// what nobody held.
    born: u32,
    oldest: u32,
}

impl StepTeller {
    /// A tensor of so many bytes that is there before the step. Two that look at one storage are told by
    /// [`StepTeller::carry_view`]. What the step reads and was not told counts as a tensor without bytes.
    ///
    /// # Panics
    /// If a command was told before.
    pub fn carry(&mut self, tensor: TensorId, bytes: u64) {
        assert!(self.builder.is_new(), "what was there before comes before all commands");
        self.reader.add(tensor, Layout::raw(bytes as usize));
        self.builder.carry(bytes);
        self.told.push(Told::default());
    }

    /// Another tensor that looks at the storage of one that was [carried](Self::carry).
    ///
    /// # Panics
    /// If that one was not.
    pub fn carry_view(&mut self, tensor: TensorId, of: TensorId) {
        let layout = self.reader.layout(of);
        assert!(self.reader.look(tensor, of, layout).is_some(), "it was not carried");
    }

    /// The next command: `put_bytes` is asked for the size of a value from the host, and `cost` is what it costs when
    /// all it reads is there. A command whose tensors are not known is told as far as they are.
    pub fn tell<O, H>(
        &mut self,
        command: &Command<O, H>,
        put_bytes: impl FnOnce(&H) -> u64,
        cost: f64,
    ) {
        let put = |host: &H| Layout::raw(put_bytes(host) as usize);
        let Deed { reads, makes, outputs, gone } = self.reader.read(command, put);
        reads.iter().for_each(|&value| self.builder.read(value));
        // Updates are committed.
        let updates = command.calls().iter().any(|call| call.outputs.targets() > 0);
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

    /// All commands were told.
    #[must_use]
    pub fn finish(self) -> StepFuture {
        self.builder.finish()
    }

    /// The end of a step. What is held and made from earlier steps, through what nobody holds, becomes a leaf there: it is
    /// read, as [`Engine::step`](crate::engine::Engine::step) says. So is what is held of what that is made from: if it was
    /// evicted, it is restored from that.
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
    /// What it uses when: its own future, for who replays it. Costs are those that were recorded.
    #[must_use]
    pub fn future(&self) -> StepFuture {
        let mut teller = StepTeller::default();
        for command in self.commands() {
            teller.tell(command, |host| host.layout.bytes(), command.cost());
        }
        teller.finish()
    }
}
