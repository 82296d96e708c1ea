//! Future edges: reads, outputs and deletes of admitted commands that have not run yet.
//! [`StepFuture`] adds the uses in a known step.
//!
//! Future edges are separate from the edges of paths that ran, so that waiting commands do not
//! affect evicted neighbourhoods, deletions, updates in place or ends of steps. Without admitted
//! commands, future edges cost nothing.

use super::{Foreseen, StorageKey};
use crate::step::StepFuture;
use slotmap::{SecondaryMap, SlotMap, new_key_type};
use std::collections::VecDeque;
use std::sync::Arc;

new_key_type! {
    /// Key of a storage that a waiting command will make.
    pub(crate) struct UnmadeKey;
}

/// Storage that exists, or that a waiting command will make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Made(StorageKey),
    Unmade(UnmadeKey),
}

/// Uses of storages by waiting commands. Distances are counted in commands: the command after the
/// current command has distance 1.
#[derive(Debug, Default)]
pub struct Future {
    /// Number of the current command.
    now: u64,
    /// Number of the last admitted command.
    last: u64,
    /// Future uses of each existing storage. Storages without future uses have no entry.
    of_made: SecondaryMap<StorageKey, Plans>,
    unmade: SlotMap<UnmadeKey, Unmade>,
    /// The step that is running, if it is a known step.
    foreseen: Option<Foreseen>,
}

/// Uses of one storage by waiting commands, with rising command numbers.
#[derive(Debug, Default)]
struct Plans {
    /// Numbers of the reading commands.
    reads: VecDeque<u64>,
    /// Numbers of the commands that end a handle, one entry for each handle.
    ends: VecDeque<u64>,
    /// Number of handles that waiting commands will make.
    handles: usize,
}

#[derive(Debug, Default)]
struct Unmade {
    plans: Plans,
    /// Storage with the value, once the value is made. When the value is made, its future uses move
    /// to the entry of its storage.
    made: Option<StorageKey>,
    /// Number of tensors of the storage that waiting commands will make.
    names: usize,
}

impl Future {
    /// Number of admitted commands that have not run.
    #[must_use]
    pub const fn commands(&self) -> usize {
        (self.last - self.now) as usize
    }

    /// Distance to the next command that reads a storage; `None` if no admitted command reads it.
    #[must_use]
    pub fn next_read(&self, storage: StorageKey) -> Option<usize> {
        self.reads(storage).next()
    }

    /// Distances to the admitted commands that read a storage, nearest first.
    pub fn reads(&self, storage: StorageKey) -> impl Iterator<Item = usize> {
        let reads = self.of_made.get(storage).into_iter().flat_map(|plans| &plans.reads);
        reads.filter(|read| **read > self.now).map(|read| (read - self.now) as usize)
    }

    /// Distance to the command that ends the last handle of a storage; 0 for the current command.
    /// `handles` is the present number of the storage's handles. `None` if admitted commands do not
    /// end all handles. The storage may stay in the graph for longer, if other storages are made
    /// from it.
    #[must_use]
    pub fn last_handle(&self, storage: StorageKey, handles: u32) -> Option<usize> {
        let plans = self.of_made.get(storage)?;
        let last = *plans.ends.back()?;
        (handles as usize + plans.handles == plans.ends.len())
            .then(|| last.saturating_sub(self.now) as usize)
    }

    /// Current step, if it is a known step. The uses in a known step are predictions, and include
    /// commands that were not sent yet. All other methods of `Future` return only uses by commands
    /// that were sent.
    #[must_use]
    pub const fn foreseen(&self) -> Option<&Foreseen> {
        self.foreseen.as_ref()
    }

    /// Number of the current command: how many admitted commands have run or are running.
    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    /// Begins a turn of a known step, whose first command comes next. `None` if the step is not
    /// known.
    pub(crate) fn foresee(&mut self, step: Option<Arc<StepFuture>>) {
        match (step, &mut self.foreseen) {
            (Some(step), Some(foreseen)) => foreseen.begin(step),
            (step, foreseen) => *foreseen = step.map(Foreseen::new),
        }
    }

    /// Sets the position of the next command in the known step.
    pub(crate) fn seek(&mut self, position: u32) {
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.seek(position);
        }
    }

    /// Advances the known step by one command.
    #[inline]
    pub(crate) fn advance_foreseen(&mut self) {
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.advance();
        }
    }

    /// Notes that a storage holds value number `ordinal` of the known step.
    pub(crate) fn bind(&mut self, storage: StorageKey, ordinal: u32) {
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.bind(storage, ordinal);
        }
    }

    /// Numbers of the known step's values made by the current command, in the order of its outputs.
    pub(crate) fn foreseen_outputs(&self) -> &[u32] {
        self.foreseen.as_ref().map_or(&[], Foreseen::outputs)
    }

    /// Admits a command and returns its number. A command that does not count
    /// ([`Command::counts`](crate::command::Command::counts)) has the number of the command before
    /// it.
    pub(crate) const fn admit(&mut self, counts: bool) -> u64 {
        self.last += counts as u64;
        self.last
    }

    /// Advances to the next command.
    pub(crate) fn advance(&mut self) {
        self.now += 1;
        self.last = self.last.max(self.now);
    }

    /// Adds a storage that a waiting command will make, for its first tensor.
    pub(crate) fn add_unmade(&mut self) -> UnmadeKey {
        self.unmade.insert(Unmade::default())
    }

    /// Returns the storage in place of an unmade root, if the storage has been made since.
    pub(crate) fn resolve(&self, root: Root) -> Root {
        match root {
            Root::Unmade(key) => {
                let made = self.unmade.get(key).and_then(|unmade| unmade.made);
                made.map_or(root, Root::Made)
            }
            made => made,
        }
    }

    /// Notes that command number `at` will read `root`, a storage that may not be made yet.
    pub(crate) fn will_read(&mut self, root: Root, at: u64) {
        // A command may read the same storage twice.
        if let Some(plans) = self.plans(root)
            && plans.reads.back() != Some(&at)
        {
            plans.reads.push_back(at);
        }
    }

    /// Notes that command number `at` will end a handle to `root`, a storage that may not be made
    /// yet.
    pub(crate) fn will_end(&mut self, root: Root, at: u64) {
        if let Some(plans) = self.plans(root) {
            plans.ends.push_back(at);
        }
    }

    /// Notes that a waiting command will make a handle to `root`, a storage that may not be made
    /// yet.
    pub(crate) fn will_name(&mut self, root: Root) {
        if let Some(plans) = self.plans(root) {
            plans.handles += 1;
        }
        if let Root::Unmade(key) = root
            && let Some(unmade) = self.unmade.get_mut(key)
        {
            unmade.names += 1;
        }
    }

    /// Notes that the current command made its handle to `root`, and that the handle names
    /// `storage`. `storage` is `None` if the command failed.
    pub(crate) fn did_name(&mut self, root: Root, storage: Option<StorageKey>) {
        if let Some(plans) = self.plans_if_any(self.resolve(root)) {
            plans.handles = plans.handles.saturating_sub(1);
        }
        if let Root::Unmade(key) = root
            && let Some(unmade) = self.unmade.get_mut(key)
        {
            unmade.names -= 1;
            let gone = unmade.names == 0;
            if let (None, Some(storage)) = (unmade.made, storage) {
                unmade.made = Some(storage);
                let plans = std::mem::take(&mut unmade.plans);
                if let Some(made) = self.plans(Root::Made(storage)) {
                    made.merge(plans);
                }
                self.tidy(storage);
            }
            if gone {
                self.unmade.remove(key);
            }
        } else if let Root::Made(storage) = root {
            self.tidy(storage);
        }
    }

    /// Removes the noted reads of `root`, and ends of its handles, up to the current command.
    pub(crate) fn settle(&mut self, root: Root) {
        let (now, root) = (self.now, self.resolve(root));
        let Some(plans) = self.plans_if_any(root) else { return };
        while plans.reads.pop_front_if(|read| *read <= now).is_some() {}
        while plans.ends.pop_front_if(|end| *end <= now).is_some() {}
        if let Root::Made(storage) = root {
            self.tidy(storage);
        }
    }

    /// Removes the entry of a storage without future uses.
    fn tidy(&mut self, storage: StorageKey) {
        if self.of_made.get(storage).is_some_and(Plans::is_empty) {
            self.of_made.remove(storage);
        }
    }

    /// Future uses of a root, a storage that may not be made yet. `None` if the storage was
    /// removed: after an earlier failure, the command's handle names another storage. Future uses
    /// of the other storage are not noted; the engine finds it when the command runs.
    fn plans(&mut self, root: Root) -> Option<&mut Plans> {
        match self.resolve(root) {
            Root::Made(storage) => Some(self.of_made.entry(storage)?.or_default()),
            Root::Unmade(key) => self.unmade.get_mut(key).map(|unmade| &mut unmade.plans),
        }
    }

    fn plans_if_any(&mut self, root: Root) -> Option<&mut Plans> {
        match root {
            Root::Made(storage) => self.of_made.get_mut(storage),
            Root::Unmade(key) => self.unmade.get_mut(key).map(|unmade| &mut unmade.plans),
        }
    }
}

impl Plans {
    fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.ends.is_empty() && self.handles == 0
    }

    /// Adds the future uses of an unmade value to the future uses of its storage.
    fn merge(&mut self, other: Self) {
        let merge = |ours: &mut VecDeque<u64>, theirs: VecDeque<u64>| {
            ours.extend(theirs);
            ours.make_contiguous().sort_unstable();
        };
        merge(&mut self.reads, other.reads);
        merge(&mut self.ends, other.ends);
        self.handles += other.handles;
    }
}
