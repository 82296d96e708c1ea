//! Reading a value.

use super::run::own_out_of_memory;
use super::{Engine, Error, StorageKey, TensorKey};
use crate::device::{Device, DeviceError, Place, Reading};
use crate::guard::guarded;
use crate::store::Action;

impl<D: Device> Engine<D> {
    /// Reads the value of a tensor. The tensor is regenerated if it was evicted, and pinned while
    /// it is copied.
    ///
    /// # Errors
    /// Fails if the key names no tensor, the tensor was lost to a failure, memory does not suffice to
    /// regenerate the tensor, or the copy failed. After any error, the tensor is unchanged. If an
    /// update was skipped because of an unreported failure, the first call returns that failure,
    /// and a second call returns the value.
    pub fn get(&mut self, key: TensorKey) -> Result<D::Host, Error> {
        self.read(key, D::read)
    }

    /// Like [`Engine::get`], but does not wait for a device that still works on earlier commands.
    /// [`Engine::take_read`] then gives the value later.
    ///
    /// # Errors
    /// The errors of [`Engine::get`].
    pub fn get_later(&mut self, key: TensorKey) -> Result<Reading<D::Host>, Error> {
        // Later commands may write over the value, because the device works in order and reads the
        // value first.
        self.read(key, D::read_later)
    }

    /// Takes the value of the oldest read that [`Engine::get_later`] began, or the error of that
    /// read. `None` if the device has not finished the read yet. Never waits.
    pub fn take_read(&mut self) -> Option<Result<D::Host, Error>> {
        guarded("get", || self.store.device.take_read().transpose()).transpose()
    }

    /// Calls `visit` with the device and the place of a tensor, without a copy to the host. The
    /// tensor is regenerated if it was evicted, and pinned during the call. If `visit` returns
    /// [`DeviceError::out_of_memory`], a storage is evicted, and `visit` is called again.
    ///
    /// # Errors
    /// The errors of [`Engine::get`].
    pub fn visit<T>(
        &mut self,
        key: TensorKey,
        visit: impl FnMut(&mut D, Place) -> Result<T, DeviceError>,
    ) -> Result<T, Error> {
        self.read(key, visit)
    }

    fn read<T>(
        &mut self,
        key: TensorKey,
        mut read: impl FnMut(&mut D, Place) -> Result<T, DeviceError>,
    ) -> Result<T, Error> {
        self.working()?;
        let tensor = self.tensor(key)?;
        if !self.owes_no_word() || !self.reasons.is_empty() {
            std::hint::cold_path();
            self.tell_reader(key, tensor.storage)?;
        }
        self.repeats.pause(true);
        let ensured = self.ensure(&[tensor.storage]);
        self.repeats.pause(false);
        ensured?;
        if self.step == 0 {
            // If the program does not mark steps, each read counts as the end of a step.
            self.repeats.next_step();
        }
        let block = self.store.graph.held(tensor.storage).expect("just made resident");
        if let Some(tape) = &mut self.store.tape {
            tape.push(|record, _| Action::Read { from: record.operand(block, tensor.layout) });
        }
        let place = Place { storage: self.store.space.offset(block), layout: tensor.layout };
        let read = loop {
            let read = guarded("get", || read(&mut self.store.device, place));
            let failed = read.as_ref().err();
            let Some(word) = failed.and_then(own_out_of_memory) else { break read };
            // The device may need memory of its own for the read, for example to pack the value.
            let (layout, bytes) = (tensor.layout, tensor.layout.bytes());
            if let Err(error) = self.make_way_on_device("get", &[layout], bytes, word) {
                break Err(error);
            }
        };
        self.release_pins(&[tensor.storage]);
        read
    }

    /// Returns the failure because of which the tensor is lost or names an old value, or else an
    /// unreported failure of a skipped update.
    fn tell_reader(&mut self, key: TensorKey, storage: StorageKey) -> Result<(), Error> {
        let reason = self.reasons.get(storage).or(self.failures.of_stale(key)).cloned();
        let Some(reason) = reason else { return self.take_skipped().map_or(Ok(()), Err) };
        self.report(&reason);
        Err(reason)
    }
}
