//! Future edges: reads, outputs and deletes of admitted commands that have not run yet. In
//! addition, the uses in a step that is known as a whole ([`StepFuture`]).
//!
//! Future edges are kept apart from the edges of paths that ran. So waiting commands change nothing
//! for neighbourhoods, deletes, updates in place and ends of steps. Without admitted commands,
//! future edges cost nothing.

use super::{Foreseen, StorageKey};
use crate::step::StepFuture;
use slotmap::{SecondaryMap, SlotMap, new_key_type};
use std::collections::VecDeque;
use std::sync::Arc;

new_key_type! {
    /// Key of a storage that a waiting command will make.
    pub(crate) struct UnmadeKey;
}

/// Storage that exists, or is still to be made by a waiting command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Made(StorageKey),
    Unmade(UnmadeKey),
}

/// Uses of storages by waiting commands. Distances are in commands: 1 is the command after the
/// current one.
#[derive(Debug, Default)]
pub struct Future {
    /// Number of the current command.
    now: u64,
    /// Number of the last admitted command.
    last: u64,
    /// Future uses of each existing storage. No entry is empty.
    of_made: SecondaryMap<StorageKey, Plans>,
    unmade: SlotMap<UnmadeKey, Unmade>,
    /// Running step, if it is known ahead.
    foreseen: Option<Foreseen>,
}

/// Uses of one storage by waiting commands. Command numbers rise.
#[derive(Debug, Default)]
struct Plans {
    /// Numbers of the reading commands.
    reads: VecDeque<u64>,
    /// Numbers of the commands that end a handle, one entry for each handle.
    ends: VecDeque<u64>,
    /// Number of handles still to be made by waiting commands.
    handles: usize,
}

#[derive(Debug, Default)]
struct Unmade {
    plans: Plans,
    /// Storage with the value, once it is made. The plans are moved there.
    made: Option<StorageKey>,
    /// Number of tensors of this storage still to be made by waiting commands.
    names: usize,
}

impl Future {
    /// Number of known waiting commands. Past commands are not kept.
    #[must_use]
    pub const fn commands(&self) -> usize {
        (self.last - self.now) as usize
    }

    /// Distance to the next command that reads a storage; `None` if no known command does.
    #[must_use]
    pub fn next_read(&self, storage: StorageKey) -> Option<usize> {
        self.reads(storage).next()
    }

    /// Distances to the commands that read a storage, nearest first.
    pub fn reads(&self, storage: StorageKey) -> impl Iterator<Item = usize> {
        let reads = self.of_made.get(storage).into_iter().flat_map(|plans| &plans.reads);
        reads.filter(|read| **read > self.now).map(|read| (read - self.now) as usize)
    }

    /// Distance to the last command that ends a handle of a storage, 0 for the current command.
    /// `None` if not all of its handles are known to end; `handles` is their present number. A
    /// storage can stay in the graph for longer, if others are made from it.
    #[must_use]
    pub fn last_handle(&self, storage: StorageKey, handles: u32) -> Option<usize> {
        let plans = self.of_made.get(storage)?;
        let last = *plans.ends.back()?;
        (handles as usize + plans.handles == plans.ends.len())
            .then(|| last.saturating_sub(self.now) as usize)
    }

    /// Current step as a whole, if it is known: uses by commands not sent yet. A forecast, while
    /// all other answers here are certain.
    #[must_use]
    pub const fn foreseen(&self) -> Option<&Foreseen> {
        self.foreseen.as_ref()
    }

    /// Number of admitted commands that have run or are running.
    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    /// Begins a turn of a known step, whose first command comes next. `None`: the step is not
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

    /// Admits a command and returns its number. A command that does not count has the number of its
    /// predecessor.
    pub(crate) const fn admit(&mut self, counts: bool) -> u64 {
        self.last += counts as u64;
        self.last
    }

    /// Advances to the next command.
    pub(crate) fn advance(&mut self) {
        self.now += 1;
        self.last = self.last.max(self.now);
    }

    /// Adds a storage still to be made by a waiting command, for its first tensor.
    pub(crate) fn add_unmade(&mut self) -> UnmadeKey {
        self.unmade.insert(Unmade::default())
    }

    /// Replaces an unmade root by its storage, if the storage has been made.
    pub(crate) fn resolve(&self, root: Root) -> Root {
        match root {
            Root::Unmade(key) => {
                let made = self.unmade.get(key).and_then(|unmade| unmade.made);
                made.map_or(root, Root::Made)
            }
            made => made,
        }
    }

    /// Notes that command number `at` will read `root`.
    pub(crate) fn will_read(&mut self, root: Root, at: u64) {
        // A command may read the same storage twice.
        if let Some(plans) = self.plans(root)
            && plans.reads.back() != Some(&at)
        {
            plans.reads.push_back(at);
        }
    }

    /// Notes that command number `at` will end a handle to `root`.
    pub(crate) fn will_end(&mut self, root: Root, at: u64) {
        if let Some(plans) = self.plans(root) {
            plans.ends.push_back(at);
        }
    }

    /// Notes that a waiting command will make a handle to `root`.
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

    /// Notes that the current command made its handle to `root`, which names `storage`; `None` if
    /// the command failed.
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

    /// Removes the reads and ends of `root` up to the current command.
    pub(crate) fn settle(&mut self, root: Root) {
        let (now, root) = (self.now, self.resolve(root));
        let Some(plans) = self.plans_if_any(root) else { return };
        while plans.reads.pop_front_if(|read| *read <= now).is_some() {}
        while plans.ends.pop_front_if(|end| *end <= now).is_some() {}
        if let Root::Made(storage) = root {
            self.tidy(storage);
        }
    }

    /// Removes the entry of a storage if no plans are left.
    fn tidy(&mut self, storage: StorageKey) {
        if self.of_made.get(storage).is_some_and(Plans::is_empty) {
            self.of_made.remove(storage);
        }
    }

    /// Plans of a root. `None` if the storage was removed: after an earlier failure, the command's
    /// handle names another storage. No plan is made then; that other storage becomes known when
    /// the command runs.
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

    /// Adds the plans of an unmade value to the plans of its storage.
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
