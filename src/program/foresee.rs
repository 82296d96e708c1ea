//! A step that is known as a whole: told from its commands, and followed by a driver while it runs.

use super::{Command, Driver, RecordedProgram, TensorId};
use crate::device::Device;
use crate::error::Error;
use crate::evict::Foresight;
use crate::graph::{StepFuture, StepFutureBuilder};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// Makes a [`StepFuture`] of commands, as they are told one after the other.
///
/// ```
/// use remat::op::Outputs;
/// use remat::program::{Apply, Command, StepTeller, TensorId};
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
    builder: StepFutureBuilder,
    /// The value that each tensor holds.
    values: FxHashMap<TensorId, u32>,
    told: Vec<Told>,
    /// Ends of steps told so far.
    ends: u32,
    /// The first value made since the last of them.
    since: usize,
}

/// A value that was told.
#[derive(Debug, Default)]
struct Told {
    bytes: u64,
    /// How many tensors hold it.
    handles: u32,
    /// The values that it is made from; none if it is a leaf.
    sources: SmallVec<[u32; 4]>,
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
        assert!(self.is_new(), "what was there before comes before all commands");
        let value = self.builder.carry(bytes);
        self.hold(tensor, value, bytes);
    }

    /// Another tensor that looks at the storage of one that was [carried](Self::carry).
    ///
    /// # Panics
    /// If that one was not.
    pub fn carry_view(&mut self, tensor: TensorId, of: TensorId) {
        self.look(tensor, self.values[&of]);
    }

    fn is_new(&self) -> bool {
        self.builder.is_new()
    }

    /// The next command: `put_bytes` is asked for the size of a value from the host, and `cost` is what it costs when
    /// all it reads is there. A command whose tensors are not known is told as far as they are.
    pub fn tell<O, H>(
        &mut self,
        command: &Command<O, H>,
        put_bytes: impl FnOnce(&H) -> u64,
        cost: f64,
    ) {
        match command {
            Command::Put { tensor, host, .. } => self.make(*tensor, put_bytes(host)),
            Command::Replace { value, made, .. } => {
                self.read(*value);
                self.make_view(*made, *value);
            }
            Command::Get(tensor) | Command::Commit(tensor) => self.read(*tensor),
            Command::Step => self.step(),
            _ => {}
        }
        for call in command.calls() {
            let views = call.outputs.views();
            if !views.is_empty() {
                // Free, and nothing need be there for it.
                for (tensor, look) in call.outputs().zip(views) {
                    match call.inputs.get(look.input) {
                        Some(&input) => self.make_view(tensor, input),
                        None => self.make(tensor, 0),
                    }
                }
                continue;
            }
            call.inputs.iter().for_each(|&input| self.read(input));
            let fresh = call.outputs.written().map_or(&[][..], |(_, fresh)| fresh);
            let updated = call.inputs.iter().take(call.outputs.targets());
            let updated: SmallVec<[u64; 2]> = updated.map(|input| self.bytes(*input)).collect();
            let sizes = updated.into_iter().chain(fresh.iter().map(crate::Layout::bytes));
            let sources = call.inputs.iter().filter_map(|input| self.values.get(input).copied());
            let sources: SmallVec<[u32; 4]> = match call.outputs.targets() {
                0 => sources.collect(),
                // Updates are committed.
                _ => SmallVec::new(),
            };
            for (tensor, bytes) in call.outputs().zip(sizes) {
                self.make(tensor, bytes);
                let made = self.told.last_mut().expect("it was just made");
                made.sources.clone_from(&sources);
            }
        }
        command.ends(|tensor| {
            if let Some(value) = self.values.remove(&tensor) {
                let told = &mut self.told[value as usize];
                told.handles -= 1;
                if told.handles == 0 {
                    self.builder.gone(value);
                }
            }
        });
        if command.is_position() {
            self.builder.next(cost);
        }
    }

    /// All commands were told.
    #[must_use]
    pub fn finish(self) -> StepFuture {
        self.builder.finish()
    }

    fn bytes(&self, tensor: TensorId) -> u64 {
        self.values.get(&tensor).map_or(0, |&value| self.told[value as usize].bytes)
    }

    fn read(&mut self, tensor: TensorId) {
        if let Some(&value) = self.values.get(&tensor) {
            self.builder.read(value);
        }
    }

    /// The end of a step. What is held and made from earlier steps, through what nobody holds, becomes a leaf there: it is
    /// read, as [`Engine::step`](crate::engine::Engine::step) says. So is what is held of what that is made from: if it was
    /// evicted, it is restored from that.
    fn step(&mut self) {
        let mut restored = Vec::new();
        for value in self.since..self.told.len() {
            let Told { born, ref sources, handles, .. } = self.told[value];
            let unheld = sources.iter().map(|&source| &self.told[source as usize]);
            let unheld = unheld.filter(|source| source.handles == 0);
            let oldest = unheld.map(|source| source.oldest).min().unwrap_or(born).min(born);
            if handles > 0 && oldest < born {
                restored.push(value as u32);
            }
            self.told[value].oldest = oldest;
        }
        restored.iter().for_each(|&value| self.builder.read(value));
        self.builder.read_sources(restored, |value| &self.told[value as usize].sources);
        self.ends += 1;
        self.since = self.told.len();
    }

    fn hold(&mut self, tensor: TensorId, value: u32, bytes: u64) {
        self.told.push(Told { bytes, born: self.ends, oldest: self.ends, ..Told::default() });
        self.look(tensor, value);
    }

    fn look(&mut self, tensor: TensorId, value: u32) {
        self.told[value as usize].handles += 1;
        self.values.insert(tensor, value);
    }

    fn make(&mut self, tensor: TensorId, bytes: u64) {
        let value = self.builder.value(bytes);
        self.hold(tensor, value, bytes);
        self.builder.output(value);
    }

    fn make_view(&mut self, tensor: TensorId, of: TensorId) {
        match self.values.get(&of) {
            Some(&value) => {
                self.look(tensor, value);
                self.builder.output(value);
            }
            None => self.make(tensor, 0),
        }
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

impl<D: Device> Driver<D> {
    /// The commands to come are those of a known step, from its first on: from now on each command that is executed, and
    /// is no deletion, is taken for the next of them, and what it makes for what that one makes. The evictor may go by
    /// it; nothing else does. `None`: nothing is known any more.
    ///
    /// Who foresees must notice where the program goes another way, and say so: by [`Driver::seek`], or by `None`. A
    /// wrong forecast costs time, and nothing else.
    ///
    /// # Errors
    /// If the evictor panics.
    pub fn foresee(&mut self, foresight: Option<Arc<Foresight>>) -> Result<(), Error> {
        self.engine.foresee(foresight)
    }

    /// The next command is the one at this position of the known step: commands in between do not come, or come again.
    /// A command that is not in the step is executed between two calls of this.
    pub fn seek(&mut self, position: u32) {
        self.engine.future_mut().seek(position);
    }

    /// A tensor holds a value of the known step: one that it carries over from before.
    ///
    /// # Errors
    /// If the number means nothing.
    pub fn bind(&mut self, tensor: TensorId, ordinal: u32) -> Result<(), Error> {
        let key = self.key(tensor)?;
        if let Some(&info) = self.engine.graph().tensor(key) {
            self.engine.future_mut().bind(info.storage, ordinal);
        }
        Ok(())
    }

    /// What a command makes, if it is one of a known step.
    #[inline(always)]
    pub(super) fn to_bind(&self, command: &Command<D::Op, D::Host>) -> SmallVec<[TensorId; 2]> {
        match self.engine.graph().future().foreseen() {
            Some(_) => made_by(command),
            None => SmallVec::new(),
        }
    }

    /// The command at hand ran and made these.
    #[inline(always)]
    pub(super) fn bind_made(&mut self, made: &[TensorId]) {
        if !made.is_empty() {
            self.bind_outputs(made);
        }
    }

    #[inline(never)]
    fn bind_outputs(&mut self, made: &[TensorId]) {
        for (output, &tensor) in made.iter().enumerate() {
            let ordinal = self.engine.graph().future().foreseen_outputs().get(output).copied();
            if let Some(ordinal) = ordinal {
                // What could not be made has no storage.
                _ = self.bind(tensor, ordinal);
            }
        }
    }
}

#[inline(never)]
fn made_by<O, H>(command: &Command<O, H>) -> SmallVec<[TensorId; 2]> {
    let mut made = SmallVec::new();
    if command.is_position() {
        command.makes(|tensor| made.push(tensor));
    }
    made
}
