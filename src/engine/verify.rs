//! Verification: recomputed values are compared with the evicted values
//! ([`Settings::verify_recomputed`]). The *print* of a value is a record of its bits, kept for the
//! comparison.
//!
//! ```text
//! a value is evicted      its print is kept                          (print.rs)
//! its path runs again     before the run, prints of resident outputs are kept: the run writes over them
//! after that run          the bits of each output are compared with its print
//! bits differ             all outputs are evicted; this command and each later command that needs the path fail
//! ```
//!
//! Steps by plan take a print of each value that the plan evicts or recomputes, when the value is
//! made. When a plan is left, these prints are moved into the tables.

mod print;

use self::print::{Difference, Print};
use super::run::Target;
use super::{Engine, Error, PathKey, Settings, StorageKey};
use crate::device::{Device, Place};
use crate::error::{FailureKey, OtherBits, RuntimeError};
use crate::event::Cause;
use crate::guard::guarded;
use crate::layout::Layout;
use crate::store::Body;
use remat_rng::spread;
use rustc_hash::FxHashMap;
use slotmap::SecondaryMap;

/// Prints of evicted values, and paths whose repeated run gave other bits than their first run.
#[derive(Debug)]
pub(super) struct Verify {
    /// Share of evicted values in the sample, whose prints are kept.
    share: f64,
    /// Number of values for which the engine has decided so far whether they are in the sample.
    asked: u64,
    prints: FxHashMap<StorageKey, Print>,
    /// Paths whose repeated run gave other bits than their first run, with the difference.
    wrong: SecondaryMap<PathKey, Wrong>,
    /// Latest failure that reported a path of `wrong` for the first time.
    found: Option<FailureKey>,
    by_plan: ByPlan,
    host_bytes: u64,
    counts: Counts,
}

/// Difference found in a repeated run of a path.
#[derive(Debug)]
struct Wrong {
    what: OtherBits,
    /// Whether a command has already failed because of the path.
    is_told: bool,
}

/// Prints and differences of a step that runs by plan. A value is identified by the number of its
/// path's first run and by its position among the outputs.
#[derive(Debug, Default)]
struct ByPlan {
    prints: FxHashMap<(u32, usize), Print>,
    wrong: Option<(u32, OtherBits)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub verified: u64,
    pub unverified: u64,
    pub hashed_bytes: u64,
}

impl Verify {
    /// Makes the state for the check; `None` if nothing is verified.
    ///
    /// # Errors
    /// If the device cannot show the bits of values.
    pub fn new<D: Device>(settings: &Settings, device: &D) -> Result<Option<Box<Self>>, Error> {
        let Some(share) = settings.verify_recomputed else { return Ok(None) };
        if !device.has_bits() {
            let name = device.name();
            let why = format!(
                "{name} shows no bits (Device::has_bits), so recomputed values cannot be verified; drop \
                 verify_recomputed, or use another device"
            );
            return Err(RuntimeError::Settings(why).into());
        }
        Ok(Some(Box::new(Self {
            share,
            asked: 0,
            prints: FxHashMap::default(),
            wrong: SecondaryMap::new(),
            found: None,
            by_plan: ByPlan::default(),
            host_bytes: 0,
            counts: Counts::default(),
        })))
    }

    /// Bytes of host memory that the prints (records of values' bits) take.
    pub fn host_bytes(&self) -> u64 {
        self.host_bytes
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Decides pseudo-randomly whether the next value is in the sample. The decision depends only
    /// on the number of earlier decisions.
    fn is_in_sample(&mut self) -> bool {
        self.asked += 1;
        // A pseudo-random number of 53 bits.
        let number = (spread(self.asked.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 11) as f64;
        number < self.share * (1u64 << 53) as f64
    }

    /// Makes a print of the bits of a value.
    fn print(&mut self, bits: &[u8], width: usize) -> Print {
        self.counts.hashed_bytes += bits.len() as u64;
        Print::of(bits, width)
    }

    fn keep(&mut self, key: StorageKey, print: Print) {
        self.host_bytes += bytes_of(&print);
        if let Some(before) = self.prints.insert(key, print) {
            self.host_bytes -= bytes_of(&before);
        }
    }

    fn keep_by_plan(&mut self, value: (u32, usize), print: Print) {
        self.host_bytes += bytes_of(&print);
        if let Some(before) = self.by_plan.prints.insert(value, print) {
            self.host_bytes -= bytes_of(&before);
        }
    }

    /// Compares a value's present bits with its print, the record of its earlier bits. Returns the
    /// first difference, if any.
    fn compare(&mut self, print: &Print, bits: &[u8], width: usize) -> Option<Difference> {
        self.counts.verified += 1;
        match self.print(bits, width) == *print {
            true => None,
            false => print.difference(bits, width),
        }
    }
}

/// Approximate bytes of host memory for a print, table entry included.
fn bytes_of(print: &Print) -> u64 {
    print.heap_bytes() + size_of::<(StorageKey, Print)>() as u64
}

/// Description of a run in errors.
struct Ran<'a> {
    op: &'a str,
    inputs: &'a [Layout],
    step: u64,
}

impl Ran<'_> {
    fn other_bits(&self, output: usize, layout: Layout, difference: Difference) -> OtherBits {
        let Difference { elements, bits, more } = difference;
        OtherBits {
            op: self.op.to_owned(),
            inputs: self.inputs.to_vec(),
            output,
            layout,
            step: self.step,
            elements,
            bits,
            more,
        }
    }
}

impl<D: Device> Engine<D> {
    /// Whether repeated runs are verified. Nothing is verified during a script, because the device
    /// runs nothing during it.
    pub(crate) fn verifies(&self) -> bool {
        self.verify.is_some() && self.store.script.is_none()
    }

    /// Keeps a print (record of the bits) of a storage that is about to be evicted.
    #[cold]
    pub(super) fn keep_bits(&mut self, key: StorageKey, cause: Cause) {
        // After a failed or postponed run, the block has no value, or only the remains of the
        // failed run.
        if matches!(cause, Cause::Failed | Cause::Postponed) || !self.verifies() {
            return;
        }
        let Some(path) = self.store.graph.storage(key).producer else { return };
        let Some(body) = self.store.bodies.get(path) else { return };
        let outputs = &self.store.graph.path(path).outputs;
        let Some(output) = outputs.iter().position(|&output| output == Some(key)) else { return };
        let layout = body.outputs()[output];
        self.keep_bits_of(key, layout);
    }

    /// Keeps a print (record) of a storage's present bits, unless a print exists already or the
    /// value is not in the sample.
    fn keep_bits_of(&mut self, key: StorageKey, layout: Layout) {
        let Some(held) = self.store.graph.held(key) else { return };
        let place = Place { storage: self.store.space.offset(held), layout };
        let Some(verify) = &mut self.verify else { return };
        if verify.prints.contains_key(&key) || !verify.is_in_sample() {
            return;
        }
        let mut print = None;
        // If the device fails here, no print is kept, and the value counts as unverified later.
        let seen = guarded("verifying", || {
            self.store.device.bits(place, &mut |bits| {
                print = Some(verify.print(bits, layout.dtype().bytes()));
            })
        });
        if let (Ok(()), Some(print)) = (seen, print) {
            verify.keep(key, print);
        }
    }

    /// Drops the print (record of the bits) of a storage before the storage is deleted or becomes a
    /// leaf, because no run makes the storage again.
    #[cold]
    pub(super) fn forget_bits(&mut self, key: StorageKey) {
        if let Some(verify) = &mut self.verify
            && let Some(print) = verify.prints.remove(&key)
        {
            verify.host_bytes -= bytes_of(&print);
        }
    }

    /// Prepares a repeated run of a path: keeps prints (records of the bits) of the outputs that
    /// are resident.
    ///
    /// # Errors
    /// If an earlier repeated run of the path gave other bits.
    #[cold]
    pub(super) fn before_again(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        targets: &[Target],
    ) -> Result<(), Error> {
        let Some(verify) = &mut self.verify else { return Ok(()) };
        if let Some(wrong) = verify.wrong.get_mut(path) {
            let error = Error::from(wrong.what.clone());
            if !std::mem::replace(&mut wrong.is_told, true) {
                verify.found = Some(error.key());
            }
            return Err(error);
        }
        for (target, &layout) in targets.iter().zip(body.outputs()) {
            if let Some(key) = target.storage() {
                self.keep_bits_of(key, layout);
            }
        }
        Ok(())
    }

    /// Verifies a repeated run of a path. If an output has other bits, all outputs are evicted.
    ///
    /// # Errors
    /// If an output has other bits, or the device failed to show them.
    #[cold]
    pub(super) fn after_again(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        targets: &[Target],
    ) -> Result<(), Error> {
        let result = self.compare_outputs(path, body, targets);
        if result.is_err() {
            self.give_up(targets);
        }
        result
    }

    fn compare_outputs(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        targets: &[Target],
    ) -> Result<(), Error> {
        let ran = Ran { op: body.work.name(), inputs: body.inputs(), step: self.step + 1 };
        let outputs = targets.iter().zip(body.outputs()).enumerate();
        for (output, (target, &layout)) in outputs {
            let Some(key) = target.storage() else { continue };
            let Some(held) = self.store.graph.held(key) else { continue };
            let place = Place { storage: self.store.space.offset(held), layout };
            let Some(verify) = &mut self.verify else { continue };
            // The print is taken out of the table during the comparison.
            let Some(print) = verify.prints.remove(&key) else {
                verify.counts.unverified += 1;
                continue;
            };
            let difference = self.compare_bits(&print, place);
            if let Some(verify) = &mut self.verify {
                verify.prints.insert(key, print);
                if let Some(difference) = difference? {
                    let what = ran.other_bits(output, layout, difference);
                    let error = Error::from(what.clone());
                    verify.wrong.insert(path, Wrong { what, is_told: true });
                    verify.found = Some(error.key());
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Keeps an error about other bits for the user, if it is the first error of its path. For
    /// callers whose command can do without the value, and therefore does not fail itself.
    pub(super) fn keep_other_bits(&mut self, error: &Error) {
        if self.verify.as_ref().is_some_and(|verify| verify.found == Some(error.key())) {
            self.keep_failure(error);
        }
    }

    /// Compares the bits at a place with a print, a record of earlier bits. Returns the first
    /// difference, if any.
    ///
    /// # Errors
    /// If the device failed to show the bits.
    fn compare_bits(&mut self, print: &Print, place: Place) -> Result<Option<Difference>, Error> {
        let Some(verify) = &mut self.verify else { return Ok(None) };
        let width = place.layout.dtype().bytes();
        let mut difference = None;
        let seen = guarded("verifying", || {
            self.store.device.bits(place, &mut |bits| {
                difference = verify.compare(print, bits, width);
            })
        });
        match seen {
            Ok(()) => Ok(difference),
            // If the device has too little memory to show the bits, the value counts as unverified.
            Err(Error::Device(fault)) if fault.out_of_memory => {
                verify.counts.unverified += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps prints (records of the bits) of the outputs of a first run in a step by plan. Only
    /// outputs that the plan evicts or makes again get a print.
    #[cold]
    pub(crate) fn keep_planned(&mut self, first: u32, outputs: &[Place]) {
        for (output, &place) in outputs.iter().enumerate() {
            let Some(verify) = &mut self.verify else { return };
            if !verify.is_in_sample() {
                continue;
            }
            let mut print = None;
            let seen = guarded("verifying", || {
                self.store.device.bits(place, &mut |bits| {
                    print = Some(verify.print(bits, place.layout.dtype().bytes()));
                })
            });
            if let (Ok(()), Some(print)) = (seen, print) {
                verify.keep_by_plan((first, output), print);
            }
        }
    }

    /// Verifies a run in a step by plan that repeats first run number `first`. Returns false if an
    /// output has other bits.
    #[cold]
    pub(crate) fn compare_planned(
        &mut self,
        first: u32,
        op: &str,
        inputs: &[Layout],
        outputs: &[Place],
    ) -> bool {
        let ran = Ran { op, inputs, step: self.step + 1 };
        for (output, &place) in outputs.iter().enumerate() {
            let Some(verify) = &mut self.verify else { return true };
            let value = (first, output);
            let Some(print) = verify.by_plan.prints.remove(&value) else {
                verify.counts.unverified += 1;
                continue;
            };
            let difference = self.compare_bits(&print, place);
            let Some(verify) = &mut self.verify else { return true };
            verify.by_plan.prints.insert(value, print);
            match difference {
                Ok(None) => {}
                Ok(Some(difference)) => {
                    let wrong = ran.other_bits(output, place.layout, difference);
                    verify.by_plan.wrong = Some((first, wrong));
                    return false;
                }
                // The engine repeats the comparison, and reports the error, when the command runs
                // without a plan.
                Err(_) => return false,
            }
        }
        true
    }

    /// Drops the prints (records of bits) of a turn by plan that has ended or did not begin.
    pub(crate) fn forget_planned(&mut self) {
        if let Some(verify) = &mut self.verify {
            let ByPlan { prints, .. } = std::mem::take(&mut verify.by_plan);
            verify.host_bytes -= prints.values().map(bytes_of).sum::<u64>();
        }
    }

    /// Moves the prints (records of bits) of a turn by plan into the tables. `firsts` has the paths
    /// of the turn's first runs, by number.
    pub(super) fn take_over_planned(&mut self, firsts: &[Option<PathKey>]) {
        let Some(verify) = &mut self.verify else { return };
        let ByPlan { prints, wrong } = std::mem::take(&mut verify.by_plan);
        let path_of = |first: u32| {
            let path = firsts.get(first as usize).copied().flatten()?;
            self.store.graph.paths.contains_key(path).then_some(path)
        };
        for ((first, output), print) in prints {
            verify.host_bytes -= bytes_of(&print);
            let path = path_of(first).map(|path| self.store.graph.path(path));
            let made = path.and_then(|path| path.outputs.get(output).copied().flatten());
            if let Some(key) = made {
                verify.keep(key, print);
            }
        }
        if let Some((first, wrong)) = wrong
            && let Some(path) = path_of(first)
        {
            verify.wrong.insert(path, Wrong { what: wrong, is_told: false });
        }
    }
}
