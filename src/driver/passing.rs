//! Commands on their way through a driver: one of the driver's own, one of a program that is kept, and a read.

use super::books::Books;
use crate::command::{Command, TensorId};
use crate::device::{Device, DeviceError, Place};
use crate::engine::Engine;
use crate::error::{Error, HandleError};

/// A command, and what is wanted of it. Not a closure: its arguments are copied once more, and commands are large.
pub(super) trait Passing<D: Device>: Sized {
    /// What comes of it.
    type Value;

    fn command(&self) -> &Command<D::Op, D::Host>;

    /// It is done by the engine.
    fn run(self, books: &mut Books<D>) -> Self::Value;

    /// It was done by plan: what it reads is there. Returns the command, to be kept.
    fn ran_by_plan(
        self,
        engine: &mut Engine<D>,
        read: Option<Place>,
    ) -> (Self::Value, Command<D::Op, D::Host>);
}

/// One of the driver's own.
pub(super) struct Owned<D: Device>(pub Command<D::Op, D::Host>);

/// One of a program that is kept.
pub(super) struct Shared<'a, D: Device>(pub &'a Command<D::Op, D::Host>);

/// A read of a tensor, where it is.
pub(super) struct Read<D: Device, V> {
    tensor: TensorId,
    command: Command<D::Op, D::Host>,
    visit: V,
}

impl<D: Device, V> Read<D, V> {
    pub const fn new(tensor: TensorId, visit: V) -> Self {
        Self { tensor, command: Command::Get(tensor), visit }
    }
}

impl<D: Device> Passing<D> for Owned<D> {
    type Value = ();

    #[inline(always)]
    fn command(&self) -> &Command<D::Op, D::Host> {
        &self.0
    }

    #[inline(always)]
    fn run(self, books: &mut Books<D>) {
        books.run(self.0);
    }

    fn ran_by_plan(self, _: &mut Engine<D>, _: Option<Place>) -> ((), Command<D::Op, D::Host>) {
        ((), self.0)
    }
}

impl<D: Device<Op: Clone>> Passing<D> for Shared<'_, D> {
    type Value = ();

    #[inline(always)]
    fn command(&self) -> &Command<D::Op, D::Host> {
        self.0
    }

    #[inline(always)]
    fn run(self, books: &mut Books<D>) {
        books.run_shared(self.0);
    }

    fn ran_by_plan(self, _: &mut Engine<D>, _: Option<Place>) -> ((), Command<D::Op, D::Host>) {
        ((), self.0.clone())
    }
}

impl<D, V, T> Passing<D> for Read<D, V>
where
    D: Device,
    V: FnMut(&mut D, Place) -> Result<T, DeviceError>,
{
    type Value = Result<T, Error>;

    fn command(&self) -> &Command<D::Op, D::Host> {
        &self.command
    }

    fn run(self, books: &mut Books<D>) -> Self::Value {
        let Self { tensor, visit, .. } = self;
        books.about(tensor, Command::Get(tensor), |engine, key| engine.visit(key, visit))
    }

    fn ran_by_plan(
        self,
        engine: &mut Engine<D>,
        read: Option<Place>,
    ) -> (Self::Value, Command<D::Op, D::Host>) {
        let Self { command, mut visit, .. } = self;
        let place = read.ok_or_else(|| HandleError::Unknown.into());
        let visited =
            place.and_then(|place| engine.ask_device("get", |device| visit(device, place)));
        (visited, command)
    }
}
